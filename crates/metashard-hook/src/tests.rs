//! Calls over real sockets, against a server that does exactly what it is told.

mod answers;
mod connections;
mod encrypted;
mod redirects;
mod secure_hook;
mod secured;
mod server;
mod tags;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Uri;
use metashard_api::id::{ControllerKind, Epoch, ShardId};
use metashard_reconcile::sync::{HookKind, HookResult};
use metashard_runtime::clock::Clock;
use prometheus::Registry;

use self::server::{Reply, Server};
use crate::{Endpoint, Found, Invoker, Metrics, Request, Target};

/// Longer than any test takes: a call that ends by this limit fails its test by its result.
const AMPLE: Duration = Duration::from_secs(30);

/// An invoker with one endpoint, as a worker has them.
struct Caller {
    invoker: Invoker,
    endpoint: Endpoint,
    registry: Registry,
}

impl Caller {
    fn new(url: &str) -> Self {
        Self::with(target(url), Clock::system())
    }

    fn with(target: Target, clock: Clock) -> Self {
        let registry = Registry::new();
        let invoker = Invoker::new(clock, Metrics::register(&registry).unwrap());
        let endpoint = invoker.endpoint(target).unwrap();
        // Of those that need no object, at once.
        drop(endpoint.secure(&|_| Found::Missing));
        Self {
            invoker,
            endpoint,
            registry,
        }
    }

    fn with_timeout(url: &str, timeout: Duration) -> Self {
        let target = Target {
            timeout,
            ..target(url)
        };
        Self::with(target, Clock::system())
    }

    async fn call(&self) -> HookResult {
        self.call_with(vec![Bytes::from_static(b"{}")]).await
    }

    async fn call_with(&self, body: Vec<Bytes>) -> HookResult {
        self.call_about("uid", body).await
    }

    async fn call_about(&self, about: &str, body: Vec<Bytes>) -> HookResult {
        let request = Request {
            body,
            shard: ShardId(7),
            epoch: Epoch(42),
            about,
        };
        self.invoker.call(&self.endpoint, request).await
    }

    fn in_flight(&self) -> f64 {
        self.registry
            .gather()
            .iter()
            .filter(|family| family.name() == "metacontroller_sync_in_flight_requests")
            .flat_map(prometheus::proto::MetricFamily::get_metric)
            .map(|metric| metric.get_gauge().get_value())
            .sum()
    }
}

fn target(url: &str) -> Target {
    Target {
        controller_kind: ControllerKind::Composite,
        controller_name: "web".to_owned(),
        hook: HookKind::Sync,
        url: url.parse::<Uri>().unwrap(),
        timeout: AMPLE,
        security: None,
        etag: None,
    }
}

/// A server that answers every request with `reply`, and a caller for it.
async fn answered_with(reply: impl Into<Vec<u8>>) -> (Arc<Server>, Caller) {
    let reply = reply.into();
    let server = Server::start(move |_| Reply::Keep(reply.clone())).await;
    let caller = Caller::new(&server.url("/sync"));
    (server, caller)
}

fn ok(body: &str) -> Vec<u8> {
    answer("200 OK", "", body)
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}").into_bytes()
}

/// The text of a failure.
fn failure(result: HookResult) -> String {
    match result {
        HookResult::Failed(text) => text,
        other => panic!("not a failure: {other:?}"),
    }
}

fn good(body: &str) -> HookResult {
    HookResult::Answer(Bytes::copy_from_slice(body.as_bytes()))
}
