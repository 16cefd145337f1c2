//! What a fake hook answers, and the ways in which it fails to.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use serde_json::Value;

/// One answer of a fake hook. Built from a base (`json`, `status`, `never`, `cut`) and refined.
#[derive(Debug, Clone)]
pub struct Answer {
    pub(crate) delay: Duration,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Reply {
        status: StatusCode,
        headers: Vec<(HeaderName, HeaderValue)>,
        body: Bytes,
        /// How much of the body is sent before the connection is cut; `None`: all, and it is kept open.
        cut_after: Option<usize>,
    },
    Never,
    Cut,
}

impl Answer {
    /// Status 200 and JSON.
    pub fn json(body: &Value) -> Self {
        Self::status(200, body.to_string())
    }

    /// A status and a body, of content type `application/json`.
    ///
    /// # Panics
    /// If `code` is no HTTP status.
    pub fn status(code: u16, body: impl Into<Bytes>) -> Self {
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        debug_assert_eq!(status.as_u16(), code, "no HTTP status");
        Self {
            delay: Duration::ZERO,
            kind: Kind::Reply {
                status,
                headers: Vec::new(),
                body: body.into(),
                cut_after: None,
            },
        }
    }

    /// No answer at all; the connection stays open until the caller gives up.
    pub fn never() -> Self {
        Self {
            delay: Duration::ZERO,
            kind: Kind::Never,
        }
    }

    /// The connection is closed without a byte of an answer.
    pub fn cut() -> Self {
        Self {
            delay: Duration::ZERO,
            kind: Kind::Cut,
        }
    }

    /// The same, `delay` after the request.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The same with a further header field, in place of the usual one of that name. Only for answers with a status.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        if let (Kind::Reply { headers, .. }, Ok(value)) =
            (&mut self.kind, HeaderValue::from_str(value))
        {
            headers.push((HeaderName::from_static(name), value));
        }
        self
    }

    /// The same, cut in the middle of the body: `Content-Length` promises all of it, `sent` bytes come.
    #[must_use]
    pub fn cut_after(mut self, sent: usize) -> Self {
        if let Kind::Reply { cut_after, .. } = &mut self.kind {
            *cut_after = Some(sent);
        }
        self
    }
}

/// The HTTP answer; `None` means that the connection is to be cut.
pub(crate) async fn respond(answer: Answer) -> Option<Response<Content>> {
    tokio::time::sleep(answer.delay).await;
    match answer.kind {
        Kind::Never => std::future::pending().await,
        Kind::Cut => None,
        Kind::Reply {
            status,
            headers,
            body,
            cut_after,
        } => {
            let mut response = Response::new(Content::new(&body, cut_after));
            *response.status_mut() = status;
            let fields = response.headers_mut();
            fields.insert(
                http::header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
            for (name, value) in headers {
                fields.insert(name, value);
            }
            Some(response)
        }
    }
}

/// A body that may promise more than it gives.
#[derive(Debug)]
pub(crate) struct Content {
    promised: u64,
    /// What is still to be sent.
    rest: Option<Bytes>,
    end: End,
}

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    /// Cut off, once the server has had a chance to send what it has.
    Cut {
        flushed: bool,
    },
}

/// Why a body ended early: we wanted it to.
#[derive(Debug)]
pub(crate) struct CutOff;

impl Content {
    fn new(body: &Bytes, cut_after: Option<usize>) -> Self {
        let sent = cut_after.unwrap_or(body.len()).min(body.len());
        Self {
            promised: body.len() as u64,
            rest: Some(body.slice(..sent)).filter(|it| !it.is_empty()),
            end: cut_after.map_or(End::Whole, |_| End::Cut { flushed: false }),
        }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        if let Some(bytes) = self.rest.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match self.end {
            End::Whole => Poll::Ready(None),
            End::Cut { flushed: true } => Poll::Ready(Some(Err(CutOff))),
            End::Cut { flushed: false } => {
                self.end = End::Cut { flushed: true };
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.promised)
    }
}

impl std::fmt::Display for CutOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut off on purpose")
    }
}

impl std::error::Error for CutOff {}
