//! The CRDs that the process needs: which are missing, and the one that it installs itself.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::APIResourceList,
};

use crate::{
    client::{Call, Clients},
    discovery::crd_resource,
    error::{Cause, Error},
    identity::Identity,
};

/// How long the API server may take to serve a CRD that was just created; usually a fraction of a second.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(10);
const ESTABLISH_POLL: Duration = Duration::from_millis(100);

/// CRDs are missing. Prints as one line that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CRDs are not installed: {}; install them with `kubectl apply --server-side -f deploy/crds/`", .0.join(", "))]
pub struct Missing(pub Vec<String>);

/// How an installation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Installed {
    /// It was there.
    Already,
    /// It was created, and is served.
    Created,
    /// It is not there, and the process has no right to create it.
    NotAllowed,
}

/// Which of `crds` do not exist, by name.
///
/// # Errors
///
/// When the API server cannot be reached or refuses. One that may not be read is looked for among the served resources; if
/// these may not be read either, it counts as present: its watch will tell.
pub async fn missing(
    clients: &Clients,
    crds: &[CustomResourceDefinition],
) -> Result<Vec<String>, Error> {
    let mut missing = Vec::new();
    for crd in crds {
        match read(clients, name(crd)).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => missing.push(name(crd).to_owned()),
            Err(error) if error.is_forbidden() => {
                if is_served(clients, crd).await == Some(false) {
                    missing.push(name(crd).to_owned());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(missing)
}

/// Installs `crd` if it is absent and the process may; returns once it is served.
///
/// # Errors
///
/// When the API server cannot be reached, refuses for another reason than a missing right, or does not serve it in time.
pub async fn install(
    clients: &Clients,
    crd: &CustomResourceDefinition,
) -> Result<Installed, Error> {
    match read(clients, name(crd)).await {
        Ok(()) => return Ok(Installed::Already),
        Err(error) if error.is_not_found() || error.is_forbidden() => {}
        Err(error) => return Err(error),
    }
    let identity = Identity::process();
    let path = crd_resource().collection_path(None);
    let body = serde_json::to_vec(crd).map_err(|error| Error {
        method: Method::POST,
        path: path.clone(),
        cause: Cause::Answer(error.to_string()),
    })?;
    let created = clients
        .general()
        .call(Call::new(&identity, Method::POST, path).body(Bytes::from(body)))
        .await;
    match created {
        Ok(_) => {}
        // Another replica was faster.
        Err(error) if error.is_conflict() => {}
        Err(error) if error.is_forbidden() => {
            return match is_served(clients, crd).await {
                Some(true) => Ok(Installed::Already),
                Some(false) | None => Ok(Installed::NotAllowed),
            };
        }
        Err(error) => return Err(error),
    }
    served(clients, crd).await?;
    Ok(Installed::Created)
}

/// Waits until the API server takes objects of `crd`, which it does some time after it lists them.
async fn served(clients: &Clients, crd: &CustomResourceDefinition) -> Result<(), Error> {
    let identity = Identity::process();
    let target = crd_resource().object_path(None, name(crd));
    let deadline = clients.clock().now().mono + ESTABLISH_TIMEOUT;
    loop {
        let error = match clients
            .general()
            .call(Call::get(&identity, target.clone()))
            .await
        {
            Ok(answer) if is_established(&answer.body) => return Ok(()),
            // Not allowed to look: whoever writes the first object will see.
            Err(error) if error.is_forbidden() => return Ok(()),
            Ok(answer) => Error {
                method: answer.method,
                path: answer.path,
                cause: Cause::Answer("the CRD is not established".to_owned()),
            },
            Err(error) => error,
        };
        if clients.clock().now().mono >= deadline {
            return Err(error);
        }
        clients.clock().sleep(ESTABLISH_POLL).await;
    }
}

fn is_established(body: &[u8]) -> bool {
    let crd = serde_json::from_slice::<CustomResourceDefinition>(body).ok();
    let conditions = crd
        .and_then(|crd| crd.status?.conditions)
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// Whether objects of `crd` are served, by the API server's own account, which every user may read; `None` if it gives none.
async fn is_served(clients: &Clients, crd: &CustomResourceDefinition) -> Option<bool> {
    let spec = &crd.spec;
    let version = spec.versions.first().map_or("", |version| &version.name);
    let target = format!("/apis/{}/{version}", spec.group);
    let identity = Identity::process();
    match clients.general().call(Call::get(&identity, target)).await {
        Ok(answer) => {
            let list: APIResourceList = serde_json::from_slice(&answer.body).ok()?;
            let mut served = list.resources.iter();
            Some(served.any(|resource| resource.name == spec.names.plural))
        }
        Err(error) if error.is_not_found() => Some(false),
        Err(_) => None,
    }
}

async fn read(clients: &Clients, name: &str) -> Result<(), Error> {
    let identity = Identity::process();
    let call = Call::get(&identity, crd_resource().object_path(None, name));
    // Its name says all; the schema may be large.
    let call = call.accept("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    clients.general().call(call).await.map(drop)
}

fn name(crd: &CustomResourceDefinition) -> &str {
    crd.metadata.name.as_deref().unwrap_or_default()
}
