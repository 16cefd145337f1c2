//! One request to the API server, and its whole answer.

use std::{fmt::Write as _, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};

use crate::identity::Identity;

/// Default time-out of a call.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What [`super::Pool`] sends.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(super) identity: &'a Identity,
    pub(super) method: Method,
    /// Path and query.
    pub(super) target: String,
    pub(super) body: Bytes,
    pub(super) content_type: &'static str,
    pub(super) accept: &'static str,
    pub(super) user_agent: Option<HeaderValue>,
    pub(super) unless_etag: Option<HeaderValue>,
    /// One more.
    pub(super) header: Option<(HeaderName, HeaderValue)>,
    pub(super) timeout: Duration,
}

/// A whole answer with a status of success.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) method: Method,
    /// Path of the request, without its query.
    pub(crate) path: String,
    pub(crate) etag: Option<String>,
    pub(crate) body: Bytes,
}

impl<'a> Call<'a> {
    pub(crate) fn new(identity: &'a Identity, method: Method, target: String) -> Self {
        Self {
            identity,
            method,
            target,
            body: Bytes::new(),
            content_type: "application/json",
            accept: "application/json",
            user_agent: None,
            unless_etag: None,
            header: None,
            timeout: TIMEOUT,
        }
    }

    pub(crate) fn get(identity: &'a Identity, target: String) -> Self {
        Self::new(identity, Method::GET, target)
    }

    pub(crate) fn body(mut self, body: Bytes) -> Self {
        self.body = body;
        self
    }

    pub(crate) fn content_type(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    pub(crate) fn user_agent(mut self, user_agent: HeaderValue) -> Self {
        self.user_agent = Some(user_agent);
        self
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some((name, value));
        self
    }

    /// Asks for nothing but the status 304, if the answer's ETag would be this.
    pub(crate) fn unless(mut self, etag: &str) -> Self {
        self.unless_etag = HeaderValue::from_str(etag).ok();
        self
    }

    /// For the whole exchange; for a watch: until the answer's head.
    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Path of the request, without its query.
    pub(super) fn path(&self) -> &str {
        self.target
            .split_once('?')
            .map_or(&self.target, |(path, _)| path)
    }
}

/// Appends `?` or `&`, `name`, `=` and the percent-encoded `value` to a request's path and query.
pub(crate) fn encode_query(target: &mut String, name: &str, value: &str) {
    target.push(if target.contains('?') { '&' } else { '?' });
    target.push_str(name);
    target.push('=');
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                target.push(char::from(byte));
            }
            other => {
                // Writing to a String cannot fail.
                _ = write!(target, "%{other:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_value_is_percent_encoded() {
        let mut target = "/api/v1/pods".to_owned();

        encode_query(&mut target, "labelSelector", "app in (a,b),tier!=c");
        encode_query(&mut target, "limit", "500");

        assert_eq!(
            target,
            "/api/v1/pods?labelSelector=app%20in%20%28a%2Cb%29%2Ctier%21%3Dc&limit=500"
        );
    }
}
