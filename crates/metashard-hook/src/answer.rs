//! Reading an answer, within limits.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{
    HeaderMap, Response, StatusCode,
    header::{CONTENT_ENCODING, RETRY_AFTER},
};
use http_body::Body;
use hyper::body::Incoming;
use metashard_reconcile::sync::HookResult;
use metashard_runtime::log;
use tokio::time::timeout;

use crate::{Error, connection::Connection, etag::Tagged, retry_after};

/// Longest body of a good answer.
pub(crate) const MAX_BODY: usize = 8 * 1024 * 1024;
/// How much of the body of a bad answer is shown.
const MAX_SHOWN: usize = 1024;
/// How much of a body that nobody needs is read, so that its connection can be used again.
const MAX_DRAINED: usize = 64 * 1024;
/// How long that is tried.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// What an answer comes to.
pub(crate) struct Answer {
    pub(crate) result: Result<HookResult, Error>,
    /// Whether the answer was read to its end, so that the connection can carry another request.
    pub(crate) is_read: bool,
}

/// Why a body could not be read to its end.
pub(crate) enum Unread {
    TooLong,
    Broken(hyper::Error),
}

/// Reads the rest of an answer that is no redirect. A broken connection is left to the caller to explain.
/// `sent` is the former answer whose tag the request carried.
pub(crate) async fn read(
    connection: &mut Connection,
    response: Response<Incoming>,
    sent: Option<&Tagged>,
    wall: SystemTime,
) -> Result<Answer, hyper::Error> {
    let (head, body) = response.into_parts();
    match (head.status, sent) {
        (StatusCode::NOT_MODIFIED | StatusCode::PRECONDITION_FAILED, Some(former)) => Ok(Answer {
            is_read: drain(connection, body).await,
            result: Ok(HookResult::Answer(former.body.clone())),
        }),
        (StatusCode::OK, _) => good(connection, &head.headers, body).await,
        (StatusCode::TOO_MANY_REQUESTS, _) => Ok(Answer {
            is_read: drain(connection, body).await,
            result: Ok(HookResult::TooManyRequests {
                retry_after: retry_after_of(&head.headers, wall),
            }),
        }),
        (status, _) => {
            let (body, is_read) = shown(connection, &head.headers, body).await;
            let error = Error::Status {
                code: status.as_u16(),
                body,
            };
            let result = match retry_after_of(&head.headers, wall) {
                Some(retry_after) if status == StatusCode::SERVICE_UNAVAILABLE => {
                    Ok(HookResult::Unavailable {
                        error: log::chain(&error),
                        retry_after,
                    })
                }
                _ => Err(error),
            };
            Ok(Answer { result, is_read })
        }
    }
}

/// Reads a short body to its end, so that the connection can be used again; whether it got there.
pub(crate) async fn drain(connection: &mut Connection, body: Incoming) -> bool {
    matches!(
        timeout(DRAIN_LIMIT, collect(connection, body, MAX_DRAINED)).await,
        Ok(Ok(_))
    )
}

async fn good(
    connection: &mut Connection,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Answer, hyper::Error> {
    let refuse = |error| Answer {
        result: Err(error),
        is_read: false,
    };
    if let Some(encoding) = encoding_of(headers) {
        return Ok(refuse(Error::Encoded { encoding }));
    }
    match collect(connection, body, MAX_BODY).await {
        Ok(bytes) => Ok(Answer {
            result: Ok(HookResult::Answer(bytes)),
            is_read: true,
        }),
        Err(Unread::TooLong) => Ok(refuse(Error::TooLarge { limit: MAX_BODY })),
        Err(Unread::Broken(error)) => Err(error),
    }
}

/// The beginning of a bad answer's body as text, and whether the body was read to its end.
async fn shown(
    connection: &mut Connection,
    headers: &HeaderMap,
    mut body: Incoming,
) -> (String, bool) {
    let mut begin = Vec::new();
    let mut n_read = 0;
    let reading = async {
        while let Some(piece) = connection.read(&mut body).await {
            let Ok(piece) = piece else { return false };
            n_read += piece.len();
            let room = MAX_SHOWN - begin.len();
            begin.extend_from_slice(piece.get(..room).unwrap_or(&piece));
            if n_read > MAX_DRAINED {
                return false;
            }
        }
        true
    };
    let is_read = timeout(DRAIN_LIMIT, reading).await.unwrap_or(false);
    if encoding_of(headers).is_some() {
        return (String::new(), is_read);
    }
    // A character that was cut in two at the end is left out.
    let text = match std::str::from_utf8(&begin) {
        Err(error) if error.error_len().is_none() => begin.get(..error.valid_up_to()),
        _ => None,
    };
    let text = String::from_utf8_lossy(text.unwrap_or(&begin)).into_owned();
    (text, is_read)
}

/// The whole body if it is no longer than `limit`, which is checked before reading where the length is told.
async fn collect(
    connection: &mut Connection,
    mut body: Incoming,
    limit: usize,
) -> Result<Bytes, Unread> {
    let told = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if told > limit {
        return Err(Unread::TooLong);
    }
    // The usual answer comes in one piece, which is then handed on as it is.
    let Some(first) = next(connection, &mut body).await? else {
        return Ok(Bytes::new());
    };
    let Some(second) = next(connection, &mut body).await? else {
        return if first.len() > limit {
            Err(Unread::TooLong)
        } else {
            Ok(first)
        };
    };
    let mut whole = Vec::with_capacity(told.max(first.len() + second.len()));
    whole.extend_from_slice(&first);
    let mut piece = Some(second);
    while let Some(bytes) = piece {
        if whole.len() + bytes.len() > limit {
            return Err(Unread::TooLong);
        }
        whole.extend_from_slice(&bytes);
        piece = next(connection, &mut body).await?;
    }
    Ok(whole.into())
}

async fn next(connection: &mut Connection, body: &mut Incoming) -> Result<Option<Bytes>, Unread> {
    if body.is_end_stream() {
        return Ok(None);
    }
    connection
        .read(body)
        .await
        .transpose()
        .map_err(Unread::Broken)
}

fn encoding_of(headers: &HeaderMap) -> Option<String> {
    let is_identity =
        |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    let encoding = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .find(|value| !is_identity(value) && !value.is_empty())?;
    Some(String::from_utf8_lossy(encoding.as_bytes()).into_owned())
}

/// The first header counts.
fn retry_after_of(headers: &HeaderMap, wall: SystemTime) -> Option<Duration> {
    let header = headers.get(RETRY_AFTER)?.to_str().ok()?;
    retry_after::parse(header, wall)
}
