//! Asking the API server which rights the process has, before it needs them.

use std::fmt;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::{
    client::{Call, Clients},
    identity::Identity,
};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Verbs on one resource: those that the process needs, or those of them that it lacks.
///
/// Prints as `get, list leases.coordination.k8s.io in namespace metashard-system`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// Such as `get`, `list`.
    pub verbs: Vec<&'static str>,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Lower-case plural.
    pub resource: &'static str,
    /// Where; `None`: in all namespaces, or the resource is cluster-scoped.
    pub namespace: Option<String>,
}

/// What of `needed` the process may not do. Where the API server does not answer the question, the right counts as given:
/// whatever needs it will tell.
pub async fn lacking(clients: &Clients, needed: Vec<Rights>) -> Vec<Rights> {
    let mut all = Vec::new();
    for rights in needed {
        let mut verbs = Vec::new();
        for verb in &rights.verbs {
            if !may(clients, &rights, verb).await {
                verbs.push(*verb);
            }
        }
        if !verbs.is_empty() {
            all.push(Rights { verbs, ..rights });
        }
    }
    all
}

async fn may(clients: &Clients, rights: &Rights, verb: &str) -> bool {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "verb": verb,
            "group": rights.group,
            "resource": rights.resource,
            "namespace": rights.namespace,
        }},
    });
    let identity = Identity::process();
    let call = Call::new(&identity, Method::POST, REVIEWS.to_owned());
    let call = call.body(Bytes::from(review.to_string()));
    let Ok(answer) = clients.general().call(call).await else {
        return true;
    };
    let answer: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    answer.pointer("/status/allowed") != Some(&Value::Bool(false))
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verbs.join(", "), self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}
