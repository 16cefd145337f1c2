//! The end of a hook's body, with the related objects of the parent.

use bytes::Bytes;
use metashard_api::hook::{Version, inner_key};

use crate::{object::Object, related::Related};

/// Adds the related objects, and what follows them, to a body. `opening`: what comes before their groups.
pub(super) fn splice(
    body: &mut Vec<Bytes>,
    opening: &str,
    version: Version,
    parent: &Object,
    related: &Related,
    finalizing: bool,
) {
    let mut seams = Seams::default();
    seams.text.extend_from_slice(opening.as_bytes());
    let mut shown = Vec::new();
    for (place, group) in related.groups().iter().enumerate() {
        seams.text(if place == 0 { "" } else { "," });
        seams.string(&group.key);
        seams.text(":{");
        let mut comma = "";
        for object in &group.objects {
            let Some(key) = key(version, parent, object) else {
                continue;
            };
            seams.text(comma);
            comma = ",";
            seams.string(&key);
            seams.text(":");
            seams.cut();
            shown.push(object.bytes().clone());
        }
        seams.text("}");
    }
    seams.text(&format!(r#"}},"finalizing":{finalizing}}}"#));
    seams.cut();
    body.reserve(2 * shown.len() + 1);
    let mut shown = shown.into_iter();
    for seam in seams.into_pieces() {
        body.push(seam);
        body.extend(shown.next());
    }
}

/// The key of a related object; `None` where the hook does not see it. Unlike a child, it may be cluster-scoped though
/// the parent is not: then it belongs to no other namespace, and a v1 hook sees it as well.
fn key<'a>(
    version: Version,
    parent: &Object,
    object: &'a Object,
) -> Option<std::borrow::Cow<'a, str>> {
    match object.namespace() {
        None => Some(object.name().into()),
        Some(namespace) => inner_key(
            version,
            parent.namespace().unwrap_or_default(),
            namespace,
            object.name(),
        ),
    }
}

/// All text around the objects, in one allocation.
#[derive(Default)]
struct Seams {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Seams {
    fn text(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn string(&mut self, text: &str) {
        // Writing to a Vec cannot fail.
        let _ok = serde_json::to_writer(&mut self.text, text);
    }

    /// Here comes an object, or the end.
    fn cut(&mut self) {
        self.ends.push(self.text.len());
    }

    fn into_pieces(self) -> impl Iterator<Item = Bytes> {
        let text = Bytes::from(self.text);
        let mut start = 0;
        self.ends.into_iter().map(move |end| {
            let piece = text.slice(start..end);
            start = end;
            piece
        })
    }
}
