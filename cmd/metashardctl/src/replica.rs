//! What a replica is asked for and answers: the syncs that it remembers, what its machines were told.

use std::{fmt::Write as _, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

/// Longest time for an answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Longest answer: far more than a replica keeps.
const MAX_ANSWER: usize = 64 << 20;

/// The header that the status API asks for.
pub(crate) const HEADER: &str = "x-metashard-status";

/// The syncs that a replica remembers and that match. `server`: its URL.
pub(crate) async fn syncs(server: &str, query: &[(&str, &str)]) -> anyhow::Result<Vec<Value>> {
    read(&ask(server, &target(query)).await?, server)
}

/// What a replica answers at a path. `server`: its URL.
pub(crate) async fn ask(server: &str, target: &str) -> anyhow::Result<Bytes> {
    let uri: Uri = format!("{}{target}", server.trim_end_matches('/'))
        .parse()
        .with_context(|| format!("read {server} as a URL"))?;
    anyhow::ensure!(
        uri.scheme_str() == Some("http"),
        "{server} does not begin with http://"
    );
    let request = Request::get(uri)
        .header(HEADER, "1")
        .body(Empty::<Bytes>::new())?;
    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let exchange = async {
        let response = client.request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER)
            .collect()
            .await;
        let body = body.map_err(|error| anyhow::anyhow!("read the answer: {error}"))?;
        anyhow::Ok((status, body.to_bytes()))
    };
    let (status, body) = tokio::time::timeout(LIMIT, exchange)
        .await
        .with_context(|| format!("no answer within {LIMIT:?}"))??;
    if !status.is_success() {
        anyhow::bail!("{status}: {}", String::from_utf8_lossy(&body).trim());
    }
    Ok(body)
}

/// Path and query of the syncs that match.
pub(crate) fn target(query: &[(&str, &str)]) -> String {
    format!("/api/v1/syncs?{}", encoded(query))
}

/// The syncs of an answer; each says who remembers it.
pub(crate) fn read(body: &[u8], replica: &str) -> anyhow::Result<Vec<Value>> {
    let mut answer: Value = serde_json::from_slice(body).context("read the answer")?;
    let Value::Array(mut syncs) = answer["syncs"].take() else {
        anyhow::bail!("the answer holds no syncs");
    };
    for sync in syncs.iter_mut().filter(|it| it.is_object()) {
        sync["replica"] = replica.into();
    }
    Ok(syncs)
}

fn encoded(query: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in query.iter().filter(|(_, value)| !value.is_empty()) {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(name);
        text.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                text.push(char::from(byte));
            } else {
                // Writing to a String cannot fail.
                let _ok = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_holds_what_is_asked_for_and_no_more() {
        let query = [("kind", "Foo"), ("namespace", ""), ("name", "a:b")];

        assert_eq!(encoded(&query), "kind=Foo&name=a%3Ab");
    }
}
