//! The lines of a watch, taken out of the body's chunks without a parse of the objects in them.

use serde::Deserialize;
use serde_json::value::RawValue;

/// No line is longer: etcd takes objects of up to 1.5 MiB, which JSON may make some times longer.
const MAX_LINE: usize = 64 << 20;

/// Puts the pieces of lines together.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The start of a line whose end has not come yet.
    rest: Vec<u8>,
}

/// A line is too long to be one of a watch.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a line of the watch is longer than {MAX_LINE} bytes")]
pub(crate) struct TooLong;

/// One line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// An object is there, new or changed: its bytes.
    Applied(&'a [u8]),
    /// An object is gone: its last state, with the resourceVersion of the deletion.
    Deleted(&'a [u8]),
    /// Nothing more happened up to this resourceVersion.
    Bookmark {
        /// The resourceVersion.
        resource_version: String,
        /// Whether it ends the initial events of a streaming list.
        ends_list: bool,
    },
    /// The watch failed: the bytes of a `Status`.
    Failed(&'a [u8]),
    /// Something else: it is skipped.
    Unusable(String),
}

impl Lines {
    /// Takes a chunk of the body; calls `each` with every line that it completes.
    ///
    /// A line that lies within the chunk is not copied.
    pub(crate) fn push(
        &mut self,
        chunk: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), TooLong> {
        let mut left = chunk;
        while let Some(end) = left.iter().position(|&byte| byte == b'\n') {
            let (line, after) = left.split_at(end);
            if self.rest.is_empty() {
                each(line);
            } else {
                self.rest.extend_from_slice(line);
                each(&self.rest);
                // Its size was that of one large object: not kept for the small ones to come.
                self.rest = Vec::new();
            }
            left = after.get(1..).unwrap_or_default();
        }
        if self.rest.len() + left.len() > MAX_LINE {
            return Err(TooLong);
        }
        self.rest.extend_from_slice(left);
        Ok(())
    }
}

impl<'a> Frame<'a> {
    /// Reads a line; `None` for an empty one.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        Some(match split(line) {
            Ok((kind, object)) => Self::of(kind, object),
            Err(error) => Self::Unusable(error.to_string()),
        })
    }

    fn of(kind: &str, object: &'a [u8]) -> Self {
        match kind {
            "ADDED" | "MODIFIED" => Self::Applied(object),
            "DELETED" => Self::Deleted(object),
            "ERROR" => Self::Failed(object),
            "BOOKMARK" => match serde_json::from_slice::<Bookmark>(object) {
                Ok(Bookmark { metadata }) => Self::Bookmark {
                    resource_version: metadata.resource_version,
                    ends_list: metadata.annotations.is_some_and(|annotations| {
                        annotations.ends_list.as_deref() == Some("true")
                    }),
                },
                Err(error) => Self::Unusable(error.to_string()),
            },
            other => Self::Unusable(format!("type {other}")),
        }
    }
}

/// Splits a line into its type and the bytes of its object.
fn split(line: &[u8]) -> Result<(&str, &[u8]), serde_json::Error> {
    // The API server always writes exactly this form. What does not have it is parsed.
    for (kind, start) in [
        ("ADDED", &br#"{"type":"ADDED","object":"#[..]),
        ("MODIFIED", br#"{"type":"MODIFIED","object":"#),
        ("DELETED", br#"{"type":"DELETED","object":"#),
    ] {
        let object = line
            .strip_prefix(start)
            .and_then(|object| object.strip_suffix(b"}"));
        // An object parses as one exactly if this is all of it; else it is parsed again the slow way by the caller.
        if let Some(object) =
            object.filter(|object| object.starts_with(b"{") && object.ends_with(b"}"))
        {
            return Ok((kind, object));
        }
    }
    let line: Line<'_> = serde_json::from_slice(line)?;
    Ok((line.kind, line.object.get().as_bytes()))
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: String,
    annotations: Option<BookmarkAnnotations>,
}

#[derive(Deserialize)]
struct BookmarkAnnotations {
    /// Of the bookmark that ends the initial events of a streaming list: `true`.
    #[serde(rename = "k8s.io/initial-events-end")]
    ends_list: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for chunk in chunks {
            lines
                .push(chunk, |line| {
                    seen.push(String::from_utf8(line.to_vec()).unwrap());
                })
                .unwrap();
        }
        seen
    }

    #[test]
    fn lines_are_put_together_wherever_the_chunks_are_cut() {
        let text = b"first\nsecond\n\nthird\nunfinished";
        for cut in 0..text.len() {
            let (a, b) = text.split_at(cut);
            assert_eq!(
                lines(&[a, b]),
                ["first", "second", "", "third"],
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; MAX_LINE / 2 + 1];

        assert_eq!(lines.push(&chunk, |_| ()), Ok(()));
        assert_eq!(lines.push(&chunk, |_| ()), Err(TooLong));
    }

    #[test]
    fn the_bytes_of_an_object_are_taken_as_they_are() {
        let line = br#"{"type":"MODIFIED","object":{"kind":"A", "spec":{"b": [1,2]}}}"#;
        assert_eq!(
            Frame::parse(line),
            Some(Frame::Applied(br#"{"kind":"A", "spec":{"b": [1,2]}}"#))
        );
    }

    #[test]
    fn another_layout_of_a_line_is_understood_too() {
        let line = br#" { "object": {"kind":"A"}, "type": "DELETED" } "#;
        assert_eq!(Frame::parse(line), Some(Frame::Deleted(br#"{"kind":"A"}"#)));
    }

    #[test]
    fn a_bookmark_tells_how_far_and_whether_the_list_is_complete() {
        let bookmark = |annotations: &str| {
            let line = format!(
                r#"{{"type":"BOOKMARK","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"17"{annotations}}}}}}}"#
            );
            match Frame::parse(line.as_bytes()) {
                Some(Frame::Bookmark {
                    resource_version,
                    ends_list,
                }) => (resource_version, ends_list),
                other => panic!("{other:?}"),
            }
        };

        assert_eq!(bookmark(""), ("17".to_owned(), false));
        let end = r#","annotations":{"k8s.io/initial-events-end":"true"}"#;
        assert_eq!(bookmark(end), ("17".to_owned(), true));
    }

    #[test]
    fn what_is_no_line_of_a_watch_is_named_and_nothing_else() {
        assert!(matches!(Frame::parse(b"<html>"), Some(Frame::Unusable(_))));
        assert!(matches!(
            Frame::parse(br#"{"type":"NEWS","object":{}}"#),
            Some(Frame::Unusable(_))
        ));
        assert!(matches!(
            Frame::parse(br#"{"type":"BOOKMARK","object":{}}"#),
            Some(Frame::Unusable(_))
        ));
        assert_eq!(Frame::parse(b"  "), None);
    }
}
