//! `/api/v1/syncs`: what the last syncs of this replica did and why, for `metashardctl why`.
//!
//! The header [`HEADER`] must be there, which neither a browser nor a redirected hook call sends. From the same host, which
//! is where a port-forward ends, any value of it will do: who may do that to the Pod is the cluster's decision. From elsewhere,
//! as through the API server's proxy, it must be the word that the replica has told the cluster only.

use std::{fmt, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::Value;

/// Where it is.
const PATH: &str = "/api/v1/syncs";

/// The header that a request must have; its value matters to callers from elsewhere.
pub const HEADER: &str = "x-metashard-status";

/// Answers a query: pairs of names and values, decoded.
#[derive(Clone)]
pub struct Answers {
    answer: Arc<Answer>,
    admits: Arc<Admits>,
}

type Answer = dyn Fn(&[(String, String)]) -> Value + Send + Sync;

type Admits = dyn Fn(&str) -> bool + Send + Sync;

impl Answers {
    /// Answers by `answer`, which must not block, to callers on the same host.
    pub fn new(answer: impl Fn(&[(String, String)]) -> Value + Send + Sync + 'static) -> Self {
        Self {
            answer: Arc::new(answer),
            admits: Arc::new(|_| false),
        }
    }

    /// Also to callers from elsewhere whose value of [`HEADER`] it `admits`.
    #[must_use]
    pub fn admitting(mut self, admits: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.admits = Arc::new(admits);
        self
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answers")
    }
}

pub(crate) fn router(answers: Answers) -> Router {
    Router::new().route(PATH, get(syncs)).with_state(answers)
}

async fn syncs(
    State(answers): State<Answers>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let Some(word) = headers.get(HEADER) else {
        let text = format!("the header {HEADER} is missing\n");
        return (StatusCode::FORBIDDEN, text).into_response();
    };
    let is_near = from.ip().to_canonical().is_loopback();
    if !is_near && !word.to_str().is_ok_and(|word| (answers.admits)(word)) {
        let text = format!("the header {HEADER} does not hold this replica's incarnation\n");
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    let answer = (answers.answer)(&query(uri.query().unwrap_or_default()));
    ([(CONTENT_TYPE, "application/json")], answer.to_string()).into_response()
}

fn query(text: &str) -> Vec<(String, String)> {
    text.split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

/// Text without its percent signs.
fn decoded(text: &str) -> String {
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.as_bytes().get(at) {
        let digits = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let value = digits.and_then(|it| u8::from_str_radix(it, 16).ok());
        bytes.push(value.unwrap_or(*byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded() {
        let query = query("kind=Foo&name=a%3Ab%&odd&empty=");

        let expected = [("kind", "Foo"), ("name", "a:b%"), ("empty", "")];
        assert_eq!(
            query,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }
}
