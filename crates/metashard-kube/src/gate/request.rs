//! The request that carries out one write.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use metashard_reconcile::write::{Op, Write};
use serde_json::json;

use crate::{
    client::{Call, encode_query},
    identity::Identity,
};

/// The request for `write`. The API server gives up on it after `timeout`, as its sender does.
///
/// It names no field manager: the API server takes the first word of the User-Agent.
pub(super) fn of<'a>(write: &Write, identity: &'a Identity, timeout: Duration) -> Call<'a> {
    let namespace = write.namespace.as_deref();
    let object = || write.resource.object_path(namespace, &write.name);
    let (method, mut target, body) = match &write.op {
        Op::Create { body } => (
            Method::POST,
            write.resource.collection_path(namespace),
            body.clone(),
        ),
        Op::Update { body } => (Method::PUT, object(), body.clone()),
        Op::UpdateStatus { body } => (Method::PUT, object() + "/status", body.clone()),
        Op::MergePatch { body } => (Method::PATCH, object(), body.clone()),
        Op::Delete {
            uid,
            resource_version,
            propagation,
        } => {
            let options = json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": { "uid": uid, "resourceVersion": resource_version },
                "propagationPolicy": propagation.as_str(),
            });
            (Method::DELETE, object(), Bytes::from(options.to_string()))
        }
    };
    // 0 would mean no limit.
    encode_query(
        &mut target,
        "timeout",
        &format!("{}ms", timeout.as_millis().max(1)),
    );
    let call = Call::new(identity, method, target)
        .body(body)
        .within(timeout);
    match &write.op {
        Op::MergePatch { .. } => call.content_type("application/merge-patch+json"),
        _ => call,
    }
}
