//! The request that carries out one write.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use metashard_reconcile::write::{Aim, Op, Write};
use serde_json::json;

use crate::{
    client::{Call, encode_query},
    identity::Identity,
};

/// What is sent for a write, but for its time-out and its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wire {
    /// The method.
    pub method: Method,
    /// The path, without a query.
    pub path: String,
    /// The query but for the time-out, with its `?`; empty if there is none.
    pub query: String,
    /// Type of the body.
    pub content_type: &'static str,
    /// The body, byte for byte.
    pub body: Bytes,
}

/// What is sent for `write`.
pub fn wire(write: &Write) -> Wire {
    let namespace = write.namespace.as_deref();
    let object = || write.resource.object_path(namespace, &write.name);
    let (method, path, body) = match &write.op {
        Op::Create { body } | Op::TryCreate { body } => (
            Method::POST,
            write.resource.collection_path(namespace),
            body.clone(),
        ),
        Op::Update { body } => (Method::PUT, object(), body.clone()),
        Op::UpdateStatus { body } => (Method::PUT, object() + "/status", body.clone()),
        Op::Apply { body, .. } => (Method::PATCH, object(), body.clone()),
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
    let mut query = String::new();
    // But for server-side apply no field manager is named: the API server takes the first word of the User-Agent.
    if let Op::Apply { manager, .. } = &write.op {
        encode_query(&mut query, "fieldManager", manager);
        encode_query(&mut query, "force", "true");
    }
    if let Op::TryCreate { .. } | Op::Apply { aim: Aim::Try, .. } = &write.op {
        encode_query(&mut query, "dryRun", "All");
    }
    Wire {
        method,
        path,
        query,
        content_type: match &write.op {
            // JSON is YAML.
            Op::Apply { .. } => "application/apply-patch+yaml",
            _ => "application/json",
        },
        body,
    }
}

/// The request for `write`. The API server gives up on it after `timeout`, as its sender does.
pub(super) fn of<'a>(write: &Write, identity: &'a Identity, timeout: Duration) -> Call<'a> {
    let Wire {
        method,
        path,
        query,
        content_type,
        body,
    } = wire(write);
    let mut target = path + &query;
    // 0 would mean no limit.
    encode_query(
        &mut target,
        "timeout",
        &format!("{}ms", timeout.as_millis().max(1)),
    );
    Call::new(identity, method, target)
        .body(body)
        .within(timeout)
        .content_type(content_type)
}
