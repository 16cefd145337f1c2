//! Which request follows a redirect, by the rules of Go's client, which hooks of the peer rely on.

use http::{Method, StatusCode, Uri};

/// Most requests made for one call, the first included.
pub(crate) const MAX_REQUESTS: usize = 10;

/// What a redirect asks to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The same request again.
    Same,
    /// A GET without body.
    Get,
}

/// Whether `status` is a redirect, and what has to be sent to the new place.
pub(crate) const fn repeat(status: StatusCode) -> Option<Repeat> {
    match status {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
            Some(Repeat::Get)
        }
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => Some(Repeat::Same),
        _ => None,
    }
}

impl Repeat {
    /// The method of the next request.
    pub(crate) fn method(self, method: Method) -> Method {
        match self {
            Self::Same => method,
            Self::Get => Method::GET,
        }
    }
}

/// The place that `reference` (a `Location` header) means when it comes from `base` (RFC 3986, section 5.2).
/// `None` if it cannot be called.
pub(crate) fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let reference = reference.split('#').next().unwrap_or_default();
    let authority = base.authority()?;
    let scheme = base.scheme_str()?;
    if has_scheme(reference) {
        return reference.parse().ok();
    }
    if reference.starts_with("//") {
        return format!("{scheme}:{reference}").parse().ok();
    }
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (reference, None),
    };
    let path_and_query = match (path, query) {
        ("", None) => base.path_and_query()?.to_string(),
        ("", Some(query)) => format!("{}?{query}", base.path()),
        (path, query) => {
            let path = without_dots(&absolute_path(base.path(), path));
            match query {
                Some(query) => format!("{path}?{query}"),
                None => path,
            }
        }
    };
    format!("{scheme}://{authority}{path_and_query}")
        .parse()
        .ok()
}

fn has_scheme(reference: &str) -> bool {
    reference.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    })
}

/// `path` itself, or in place of what follows the last slash of `base`.
fn absolute_path(base: &str, path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let folder = base.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/{path}")
}

/// Takes out `.` and `..`.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_is_resolved_against_the_place_that_it_comes_from() {
        let base = Uri::from_static("http://hook.example:8080/a/b/sync?x=1");
        for (location, expected) in [
            ("http://other/p", "http://other/p"),
            ("https://other:1/p?q", "https://other:1/p?q"),
            ("//other/p", "http://other/p"),
            ("/p", "http://hook.example:8080/p"),
            ("/p?q=2#part", "http://hook.example:8080/p?q=2"),
            ("p", "http://hook.example:8080/a/b/p"),
            ("./p", "http://hook.example:8080/a/b/p"),
            ("../p", "http://hook.example:8080/a/p"),
            ("../../../../p", "http://hook.example:8080/p"),
            ("..", "http://hook.example:8080/a/"),
            ("?y=2", "http://hook.example:8080/a/b/sync?y=2"),
            ("", "http://hook.example:8080/a/b/sync?x=1"),
        ] {
            let resolved = resolve(&base, location).map(|uri| uri.to_string());
            assert_eq!(resolved.as_deref(), Some(expected), "{location:?}");
        }
    }

    #[test]
    fn location_that_is_no_url_leads_nowhere() {
        let base = Uri::from_static("http://hook/");

        for location in ["http://", "http://a b/", "/\u{7f}"] {
            assert_eq!(resolve(&base, location), None, "{location:?}");
        }
    }

    #[test]
    fn only_307_and_308_repeat_the_body() {
        let of = |code| repeat(StatusCode::from_u16(code).unwrap());

        assert_eq!(of(301), Some(Repeat::Get));
        assert_eq!(of(302), Some(Repeat::Get));
        assert_eq!(of(303), Some(Repeat::Get));
        assert_eq!(of(307), Some(Repeat::Same));
        assert_eq!(of(308), Some(Repeat::Same));
        assert_eq!(of(300), None);
        assert_eq!(of(304), None);
    }
}
