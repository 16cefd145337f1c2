//! A plain HTTP request to a server on loopback.

use anyhow::Context;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

/// Status and body of `path` of the server on `port`, by a new connection.
///
/// # Errors
/// If there is no answer.
pub async fn get(port: u16, path: &str) -> anyhow::Result<(u16, String)> {
    let url = format!("http://127.0.0.1:{port}{path}");
    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let request = Request::get(&url).body(Empty::new())?;
    let response = client
        .request(request)
        .await
        .with_context(|| format!("get {url}"))?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
