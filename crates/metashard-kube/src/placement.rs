//! The Placement: watching what people ask, and writing the status that answers them.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Method;
use metashard_api::{
    placement::{self, PlacementSpec, PlacementStatus},
    resource::Resource,
};
use metashard_fleet::wishes::Told;
use metashard_reconcile::object::Object;
use metashard_runtime::log::chain;
use serde::Deserialize;
use serde_json::json;
use tracing::{debug, warn};

use crate::{
    client::{Call, Clients, encode_query},
    error::Error,
    identity::Identity,
    informer::{Informers, View, ViewKey},
    latest::Latest,
    status::set,
};

/// Longest time for a write of the status.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The Placement of one namespace. Cheap to clone.
#[derive(Clone)]
pub struct Placements {
    clients: Clients,
    namespace: Arc<str>,
    resource: Arc<Resource>,
}

/// The changes of the Placement, the newest state only.
#[derive(Debug)]
pub struct PlacementWatch {
    latest: Arc<Latest>,
    _view: View,
}

/// One state of the Placement.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The whole of it; what a write is based on.
    pub object: Arc<Object>,
    /// What is asked.
    pub spec: PlacementSpec,
    /// What was answered last.
    pub status: PlacementStatus,
}

#[derive(Deserialize)]
struct Content {
    spec: PlacementSpec,
    // One that cannot be read is replaced.
    #[serde(default)]
    status: serde_json::Value,
}

impl Placements {
    /// The Placement [`placement::NAME`] of `namespace`.
    pub fn new(clients: &Clients, namespace: &str) -> Self {
        Self {
            clients: clients.clone(),
            namespace: namespace.into(),
            resource: Arc::new(Resource::of_placements()),
        }
    }

    /// Watches it; begins with the present one, if there is one.
    pub fn watch(&self, informers: &Informers) -> PlacementWatch {
        let latest = Arc::new(Latest::default());
        let key = ViewKey::new(Identity::process(), Arc::clone(&self.resource))
            .in_namespace(&*self.namespace);
        let view = informers.open(key, Some(Arc::clone(&latest) as _));
        PlacementWatch {
            latest,
            _view: view,
        }
    }

    /// Writes what is `told` into the status of `asked`, if that is still so; true: the status says it now.
    ///
    /// Whoever leads alone may call this. Conditions of other types stay; one whose status stays keeps its time.
    pub async fn tell(&self, asked: &Asked, told: &Told) -> bool {
        let Some(body) = self.body(asked, told) else {
            return true;
        };
        match self.put(body).await {
            Ok(()) => true,
            Err(error) if error.is_conflict() || error.is_not_found() => false,
            // That was said at the start, and this comes again and again.
            Err(error) if error.is_forbidden() => {
                debug!(error = chain(&error), "status of the Placement not written");
                false
            }
            Err(error) => {
                warn!(error = chain(&error), "status of the Placement not written");
                false
            }
        }
    }

    /// `None` if the status says it already.
    fn body(&self, asked: &Asked, told: &Told) -> Option<Bytes> {
        let old = &asked.status;
        let observed = Some(told.observed_rebalance.clone()).filter(|it| !it.is_empty());
        let mut new = PlacementStatus {
            observed_generation: Some(told.generation),
            observed_rebalance: observed,
            conditions: old.conditions.clone(),
        };
        for found in &told.findings {
            let status = if found.holds { "True" } else { "False" };
            let words = (&*found.condition, status, &*found.reason, &*found.message);
            set(
                &mut new.conditions,
                words,
                told.generation,
                self.clients.clock().wall(),
            );
        }
        let object = &asked.object;
        let body = json!({
            "apiVersion": self.resource.api_version(),
            "kind": self.resource.kind,
            "metadata": {
                "namespace": &*self.namespace,
                "name": placement::NAME,
                "uid": object.uid(),
                "resourceVersion": object.resource_version(),
            },
            "spec": asked.spec,
            "status": new,
        });
        (new != *old).then(|| Bytes::from(body.to_string()))
    }

    async fn put(&self, body: Bytes) -> Result<(), Error> {
        let place = self
            .resource
            .object_path(Some(&self.namespace), placement::NAME);
        let mut target = format!("{place}/status");
        let timeout = format!("{}ms", TIMEOUT.as_millis());
        encode_query(&mut target, "timeout", &timeout);
        let identity = Identity::process();
        let call = Call::new(&identity, Method::PUT, target).body(body);
        self.clients.general().call(call.within(TIMEOUT)).await?;
        Ok(())
    }
}

impl fmt::Debug for Placements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Placements({})", self.namespace)
    }
}

impl PlacementWatch {
    /// The next state of it; `None`: it is gone. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Asked> {
        loop {
            let (name, state) = self.latest.next().await;
            if *name != *placement::NAME {
                continue;
            }
            match state.map(read).transpose() {
                Ok(asked) => return asked,
                // Whatever was asked before is still asked.
                Err(error) => warn!(%error, "Placement not understood"),
            }
        }
    }
}

fn read(object: Arc<Object>) -> Result<Asked, serde_json::Error> {
    let Content { spec, status } = serde_json::from_slice(object.bytes())?;
    Ok(Asked {
        object,
        spec,
        status: serde_json::from_value(status).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn asked(status: &Value) -> Asked {
        let object = json!({
            "apiVersion": "metashard.io/v1beta1",
            "kind": "Placement",
            "metadata": { "name": "metashard", "namespace": "n", "uid": "u", "resourceVersion": "5", "generation": 3 },
            "spec": { "cordoned": ["a"], "pins": [{ "shard": 7, "replica": "b" }] },
            "status": status,
        });
        read(Arc::new(Object::parse(object.to_string()).unwrap())).unwrap()
    }

    #[test]
    fn what_people_ask_is_read_from_the_object() {
        let asked = asked(&json!({ "observedRebalance": "monday" }));

        assert_eq!(asked.spec.cordoned, ["a"]);
        assert_eq!(asked.spec.pins[0].shard, Some(7));
        assert_eq!(asked.status.observed_rebalance.as_deref(), Some("monday"));
    }

    #[test]
    fn status_that_cannot_be_read_does_not_hide_what_is_asked() {
        let asked = asked(&json!({ "conditions": 7 }));

        assert_eq!(asked.spec.cordoned, ["a"]);
        assert_eq!(asked.status, PlacementStatus::default());
    }
}
