//! An HTTP server for one sync hook.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{SyncRequest, SyncResponse};

/// Calls so far, by the name of the controller that asked.
type Counts = Mutex<BTreeMap<String, u64>>;

/// Serves `sync` on the address that is the program's first argument (`127.0.0.1:8080` without one):
/// `POST /sync` calls it, `GET /calls` tells how often each controller did, `GET /healthz` says `ok`.
///
/// # Errors
/// If it cannot listen on the address; else it never ends.
pub async fn serve<Spec, Status>(
    sync: fn(&SyncRequest<Spec>) -> SyncResponse<Status>,
) -> anyhow::Result<()>
where
    Spec: DeserializeOwned + 'static,
    Status: Serialize + 'static,
{
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:8080");
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("listen on {address}"))?;
    let counts = Arc::new(Counts::default());
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.context("accept a connection")?;
        let counts = Arc::clone(&counts);
        connections.spawn(async move {
            let service = service_fn(|request| answer(request, sync, &counts));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // Err: the caller went away; it will call again.
            drop(connection.await);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer<Spec, Status>(
    request: Request<Incoming>,
    sync: fn(&SyncRequest<Spec>) -> SyncResponse<Status>,
    counts: &Counts,
) -> hyper::Result<Response<Full<Bytes>>>
where
    Spec: DeserializeOwned,
    Status: Serialize,
{
    let route = (request.method().clone(), request.uri().path().to_owned());
    let body = request.into_body().collect().await?.to_bytes();
    Ok(match (route.0, route.1.as_str()) {
        (Method::POST, "/sync") => match serde_json::from_slice::<SyncRequest<Spec>>(&body) {
            Ok(request) => {
                let controller = &request.controller.metadata.name;
                *counts.lock().entry(controller.clone()).or_default() += 1;
                reply(StatusCode::OK, &sync(&request))
            }
            // An answer other than 200 changes nothing in the cluster; metashard reports it and asks again later.
            Err(error) => reply(
                StatusCode::BAD_REQUEST,
                &json!({ "error": format!("read the request: {error}") }),
            ),
        },
        (Method::GET, "/calls") => reply(StatusCode::OK, &*counts.lock()),
        (Method::GET, "/healthz") => reply(StatusCode::OK, &"ok"),
        _ => reply(StatusCode::NOT_FOUND, &json!({ "error": "no such path" })),
    })
}

fn reply(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    let mut response = match serde_json::to_vec(body) {
        Ok(bytes) => Response::new(Full::from(bytes)),
        Err(error) => Response::new(Full::from(error.to_string())),
    };
    *response.status_mut() = status;
    response
}
