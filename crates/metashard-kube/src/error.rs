//! How one call to the API server can fail.

use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use tower::BoxError;

/// Longest text of a refusal that is kept; an HTML page of a proxy says nothing after that.
const MAX_MESSAGE: usize = 512;

/// One call to the API server brought no result.
///
/// Prints as the request line without its query, such as `GET /api/v1/namespaces/a/configmaps`; the cause is the source.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path}")]
pub struct Error {
    /// Verb of the request.
    pub method: Method,
    /// Path of the request, without its query.
    pub path: String,
    /// Why there is no result.
    #[source]
    pub cause: Cause,
}

/// Why a call brought no result.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// No answer, or not all of it, in time. Whether the request was carried out is not known.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// No connection, or it broke before the whole answer was there. Whether the request was carried out is not known.
    #[error("reach the API server")]
    Unreachable(#[source] BoxError),
    /// The API server answered, and refused.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The API server answered with something that is not what was asked for.
    #[error("understand the answer: {0}")]
    Answer(String),
}

/// A refusal: the API server's `Status`, or what a proxy between said instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {reason}: {message}", code.as_u16())]
pub struct Refusal {
    /// HTTP status.
    pub code: StatusCode,
    /// `Status.reason`, such as `AlreadyExists`; the status line's text where there is none.
    pub reason: String,
    /// `Status.message`, or the start of the body.
    pub message: String,
    /// When to come back, if it said so.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// The API server's refusal, if it answered at all.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.cause {
            Cause::Refused(refusal) => Some(refusal),
            Cause::TimedOut(_) | Cause::Unreachable(_) | Cause::Answer(_) => None,
        }
    }

    /// HTTP status of the refusal.
    pub fn code(&self) -> Option<StatusCode> {
        self.refusal().map(|refusal| refusal.code)
    }

    /// Whether the object, or the resource, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(StatusCode::NOT_FOUND)
    }

    /// Whether a right is missing.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(StatusCode::FORBIDDEN)
    }

    /// Whether a precondition failed or the object exists already.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(StatusCode::CONFLICT)
    }

    /// Whether a repetition of the same call may well succeed: no answer, 401, 408, 429, 5xx.
    pub fn is_transient(&self) -> bool {
        match &self.cause {
            Cause::TimedOut(_) | Cause::Unreachable(_) => true,
            Cause::Answer(_) => false,
            Cause::Refused(refusal) => {
                refusal.code.is_server_error() || matches!(refusal.code.as_u16(), 401 | 408 | 429)
            }
        }
    }
}

impl Refusal {
    /// Reads the body of an answer whose status is not a success.
    pub(crate) fn read(code: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let status: Status = serde_json::from_slice(body).unwrap_or_default();
        let message = match status.message {
            Some(message) => message,
            None => String::from_utf8_lossy(body).trim().to_owned(),
        };
        let seconds = status
            .details
            .and_then(|details| details.retry_after_seconds);
        Self {
            code,
            reason: status
                .reason
                .filter(|reason| !reason.is_empty())
                .unwrap_or_else(|| code.canonical_reason().unwrap_or("Unknown").to_owned()),
            message: shortened(message),
            retry_after: retry_after.or_else(|| seconds.map(Duration::from_secs)),
        }
    }

    /// Reads the `Status` that a watch carries in an `ERROR` line.
    pub(crate) fn of_watch(status: &[u8]) -> Self {
        let code = serde_json::from_slice::<Status>(status)
            .ok()
            .and_then(|status| StatusCode::from_u16(status.code?).ok())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::read(code, None, status)
    }
}

/// The fields of `meta/v1.Status` that matter here.
#[derive(Deserialize, Default)]
struct Status {
    message: Option<String>,
    reason: Option<String>,
    code: Option<u16>,
    details: Option<Details>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u64>,
}

fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE)
            .rev()
            .find(|&at| message.is_char_boundary(at))
            .unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_gives_reason_message_and_delay() {
        let body = br#"{"kind":"Status","status":"Failure","message":"too many","reason":"TooManyRequests","details":{"retryAfterSeconds":3},"code":429}"#;

        let refusal = Refusal::read(StatusCode::TOO_MANY_REQUESTS, None, body);

        assert_eq!(refusal.to_string(), "429 TooManyRequests: too many");
        assert_eq!(refusal.retry_after, Some(Duration::from_secs(3)));
    }

    #[test]
    fn a_page_of_a_proxy_is_cut_and_keeps_the_status_line() {
        let page = format!("<html>{}</html>", "ä".repeat(2000));

        let refusal = Refusal::read(StatusCode::BAD_GATEWAY, None, page.as_bytes());

        assert_eq!(refusal.reason, "Bad Gateway");
        assert!(refusal.message.starts_with("<html>ä"));
        assert!(refusal.message.len() <= MAX_MESSAGE + '…'.len_utf8());
    }

    #[test]
    fn the_error_line_of_a_watch_carries_its_code() {
        let line = br#"{"kind":"Status","status":"Failure","message":"too old resource version: 1 (9)","reason":"Expired","code":410}"#;

        assert_eq!(Refusal::of_watch(line).code, StatusCode::GONE);
    }
}
