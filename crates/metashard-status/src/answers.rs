//! `/api/v1/...`: what this replica remembers, for `metashardctl`.
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
use metashard_runtime::task;

/// The header that a request must have; its value matters to callers from elsewhere.
pub const HEADER: &str = "x-metashard-status";

/// What is answered where.
#[derive(Clone)]
pub struct Answers {
    paths: Vec<(&'static str, Arc<Answer>)>,
    admits: Arc<Admits>,
}

type Answer = dyn Fn(&[(String, String)]) -> Option<String> + Send + Sync;

type Admits = dyn Fn(&str) -> bool + Send + Sync;

/// One path.
#[derive(Clone)]
struct Path {
    answer: Arc<Answer>,
    admits: Arc<Admits>,
}

impl Answers {
    /// No paths yet; they are for callers on the same host, and for those from elsewhere whose value of [`HEADER`] it
    /// `admits`.
    pub fn new(admits: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self {
            paths: Vec::new(),
            admits: Arc::new(admits),
        }
    }

    /// Also answers at `path`: to a query, which is pairs of names and values, decoded, with a text of JSON, or with
    /// nothing where this replica has no such thing. `answer` may take its time.
    #[must_use]
    pub fn at(
        mut self,
        path: &'static str,
        answer: impl Fn(&[(String, String)]) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.paths.push((path, Arc::new(answer)));
        self
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.paths.iter().map(|(path, _)| path))
            .finish()
    }
}

pub(crate) fn router(answers: Answers) -> Router {
    let Answers { paths, admits } = answers;
    paths
        .into_iter()
        .fold(Router::new(), |router, (path, answer)| {
            let admits = Arc::clone(&admits);
            router.route(path, get(asked).with_state(Path { answer, admits }))
        })
}

async fn asked(
    State(path): State<Path>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let Some(word) = headers.get(HEADER) else {
        let text = format!("the header {HEADER} is missing\n");
        return (StatusCode::FORBIDDEN, text).into_response();
    };
    let is_near = from.ip().to_canonical().is_loopback();
    if !is_near && !word.to_str().is_ok_and(|word| (path.admits)(word)) {
        let text = format!("the header {HEADER} does not hold this replica's incarnation\n");
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    let query = query(uri.query().unwrap_or_default());
    match task::blocking("status answer", move || (path.answer)(&query)).await {
        Ok(Some(answer)) => ([(CONTENT_TYPE, "application/json")], answer).into_response(),
        Ok(None) => (StatusCode::NOT_FOUND, "this replica has none\n").into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
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
