//! The ShardMap: reading, watching and writing it.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Method;
use metashard_api::{
    resource::Resource,
    shard_map::{self, FORMAT, ShardMapSpec},
};
use metashard_fleet::{
    map::{Map, Seen, Write},
    record::Written,
};
use metashard_reconcile::object::Object;
use metashard_runtime::log::chain;
use serde_json::json;
use tracing::warn;

use crate::{
    client::{Answer, Call, Clients, encode_query, object},
    error::{Cause, Error},
    events::About,
    identity::Identity,
    informer::{Informers, View, ViewKey},
    latest::Latest,
    lease::written_not,
};

/// A map of 4,096 shards is up to 512 KiB long, so it gets more time than a Lease.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The API server holds a create up for 2 s while the CRD is younger than that.
const CREATE_TIMEOUT: Duration = Duration::from_secs(5);

/// The ShardMap of one namespace. Cheap to clone.
#[derive(Clone)]
pub struct ShardMaps {
    clients: Clients,
    namespace: Arc<str>,
    resource: Arc<Resource>,
}

/// The changes of the ShardMap, the newest state only.
#[derive(Debug)]
pub struct MapWatch {
    latest: Arc<Latest>,
    view: View,
}

impl ShardMaps {
    /// The ShardMap [`shard_map::NAME`] of `namespace`.
    pub fn new(clients: &Clients, namespace: &str) -> Self {
        Self {
            clients: clients.clone(),
            namespace: namespace.into(),
            resource: Arc::new(Resource::of_shard_maps()),
        }
    }

    /// Reads the map from the database (a quorum read), past all caches. A missing CRD reads as absent too.
    ///
    /// # Errors
    ///
    /// When there is no answer in time, or another refusal.
    pub async fn read(&self) -> Result<Seen, Error> {
        match self.call(Method::GET, Bytes::new()).await {
            Ok(answer) => Ok(to_map(&*object(&answer)?).map_or(Seen::Unreadable, present)),
            Err(error) if error.is_not_found() => Ok(Seen::Absent),
            Err(error) => Err(error),
        }
    }

    /// Creates the map, or replaces the state that `write` is based on.
    pub async fn write(&self, write: &Write) -> Written<Arc<Map>> {
        let mut metadata = json!({ "namespace": &*self.namespace, "name": shard_map::NAME });
        let method = match &write.base {
            Some(base) => {
                // With the uid a map that was deleted is not made anew.
                metadata["uid"] = base.uid.as_str().into();
                metadata["resourceVersion"] = base.resource_version.as_str().into();
                Method::PUT
            }
            None => Method::POST,
        };
        let body = json!({
            "apiVersion": self.resource.api_version(),
            "kind": self.resource.kind,
            "metadata": metadata,
            "spec": write.spec,
        });
        match self.put(method, Bytes::from(body.to_string())).await {
            Ok(map) => Written::Accepted(Arc::new(map)),
            Err(error) => {
                warn!(error = chain(&error), "ShardMap not written");
                written_not(&error)
            }
        }
    }

    /// What an Event about the map with this uid is about.
    pub fn about(&self, uid: &str) -> About {
        About::named(&self.resource, Some(&*self.namespace), shard_map::NAME, uid)
    }

    /// Watches the map; begins with the present one, if there is one.
    pub fn watch(&self, informers: &Informers) -> MapWatch {
        let latest = Arc::new(Latest::default());
        let key = ViewKey::new(Identity::process(), Arc::clone(&self.resource))
            .in_namespace(&*self.namespace);
        let view = informers.open(key, Some(Arc::clone(&latest) as _));
        MapWatch { latest, view }
    }

    async fn put(&self, method: Method, body: Bytes) -> Result<Map, Error> {
        let answer = self.call(method, body).await?;
        to_map(&*object(&answer)?).map_err(|error| Error {
            method: answer.method,
            path: answer.path,
            cause: Cause::Answer(chain(&error)),
        })
    }

    async fn call(&self, method: Method, body: Bytes) -> Result<Answer, Error> {
        let timeout = if method == Method::POST {
            CREATE_TIMEOUT
        } else {
            TIMEOUT
        };
        let mut target = match method {
            Method::POST => self.resource.collection_path(Some(&self.namespace)),
            _ => self
                .resource
                .object_path(Some(&self.namespace), shard_map::NAME),
        };
        encode_query(
            &mut target,
            "timeout",
            &format!("{}ms", timeout.as_millis()),
        );
        let identity = Identity::process();
        self.clients
            .leases()
            .call(
                Call::new(&identity, method, target)
                    .body(body)
                    .within(timeout),
            )
            .await
    }
}

impl fmt::Debug for ShardMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShardMaps({})", self.namespace)
    }
}

impl MapWatch {
    /// The next state of the map. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Seen {
        loop {
            let (name, state) = self.latest.next().await;
            if *name != *shard_map::NAME {
                continue;
            }
            let Some(object) = state else {
                return Seen::Absent;
            };
            return to_map(&object).map_or_else(
                |error| {
                    warn!(error = chain(&error), "ShardMap not understood");
                    Seen::Unreadable
                },
                present,
            );
        }
    }

    /// The view that the changes come from.
    pub fn view(&self) -> &View {
        &self.view
    }
}

/// Why a map cannot be read.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(
        "read the ShardMap: it has format {0} and this version knows up to {FORMAT}; replace this replica by one of the version that wrote it"
    )]
    Newer(u16),
    #[error("read the ShardMap: a newer version wrote it, or somebody edited it")]
    Content(#[source] serde_json::Error),
}

fn present(map: Map) -> Seen {
    Seen::Present(Arc::new(map))
}

fn to_map(object: &Object) -> Result<Map, Unreadable> {
    // A map as installed has no spec: it is empty.
    let spec = object
        .spec()
        .map(serde_json::from_slice::<ShardMapSpec>)
        .transpose()
        .map_err(Unreadable::Content)?
        .unwrap_or_default();
    if spec.format > FORMAT {
        return Err(Unreadable::Newer(spec.format));
    }
    Ok(Map {
        uid: object.uid().to_owned(),
        resource_version: object.resource_version().to_owned(),
        spec,
    })
}
