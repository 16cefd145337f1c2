//! `/api/v1/syncs`: what the last syncs of this replica did and why, for `metashardctl why`.
//!
//! It is answered to callers on the same host only, which is where a port-forward ends: who may do that to the Pod is
//! the cluster's decision. The header [`HEADER`] must be there, which neither a browser nor a redirected hook call sends.

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

/// The header that a request must have; its value does not matter.
pub const HEADER: &str = "x-metashard-status";

/// Answers a query: pairs of names and values, decoded.
#[derive(Clone)]
pub struct Answers(Arc<Answer>);

type Answer = dyn Fn(&[(String, String)]) -> Value + Send + Sync;

impl Answers {
    /// Answers by `answer`, which must not block.
    pub fn new(answer: impl Fn(&[(String, String)]) -> Value + Send + Sync + 'static) -> Self {
        Self(Arc::new(answer))
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
    State(Answers(answer)): State<Answers>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    if !from.ip().to_canonical().is_loopback() {
        let text = "answered to callers on this host only: use kubectl port-forward\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    if !headers.contains_key(HEADER) {
        let text = format!("the header {HEADER} is missing\n");
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    let answer = answer(&query(uri.query().unwrap_or_default()));
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
