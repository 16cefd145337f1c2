//! Leases: reading, watching, and the three writes of them, on connections of their own.

mod convert;

use std::{collections::BTreeMap, fmt, sync::Arc};

use bytes::Bytes;
use http::Method;
use k8s_openapi::{
    api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use metashard_api::resource::Resource;
use metashard_fleet::{
    lease::{Input, REQUEST_TIMEOUT, Request},
    record::{Record, Seen, Written},
};
use metashard_runtime::log::chain;
use parking_lot::Mutex;
use serde_json::json;
use tracing::warn;

use crate::{
    client::{Answer, Call, Clients, encode_query},
    error::{Cause, Error},
    identity::Identity,
    informer::{Informers, View, ViewKey},
    latest::Latest,
};

/// The Leases of one namespace. Cheap to clone.
///
/// Each call ends within [`REQUEST_TIMEOUT`] and goes over connections that only Leases and the ShardMap use.
#[derive(Clone)]
pub struct Leases(Arc<Inner>);

struct Inner {
    clients: Clients,
    namespace: Box<str>,
    resource: Arc<Resource>,
    owner: Option<OwnerReference>,
    /// Each Lease as it was last read or written: what a write keeps of it.
    last: Mutex<BTreeMap<Box<str>, Lease>>,
}

/// The changes of the Leases of one namespace, in order for each, the newest state only.
#[derive(Debug)]
pub struct LeaseWatch {
    latest: Arc<Latest>,
    view: View,
}

impl Leases {
    /// The Leases of `namespace`. What is created here belongs to `owner`, usually the Pod, and goes with it.
    pub fn new(clients: &Clients, namespace: &str, owner: Option<OwnerReference>) -> Self {
        Self(Arc::new(Inner {
            clients: clients.clone(),
            namespace: namespace.into(),
            resource: Arc::new(resource()),
            owner,
            last: Mutex::default(),
        }))
    }

    /// Reads a Lease from the database (a quorum read), past all caches.
    ///
    /// # Errors
    ///
    /// When there is no answer in time, or a refusal other than "not found".
    pub async fn read(&self, name: &str) -> Result<Seen, Error> {
        match self.call(Method::GET, Some(name), Bytes::new()).await {
            Ok(answer) => Ok(Seen::Present(self.take(name, &answer)?)),
            Err(error) if error.is_not_found() => {
                self.0.last.lock().remove(name);
                Ok(Seen::Absent)
            }
            Err(error) => Err(error),
        }
    }

    /// Creates the Lease `name` with the content of `record`, whose uid and resourceVersion do not count.
    pub async fn create(&self, name: &str, record: &Record) -> Written<Record> {
        let fresh = convert::fresh(name, &self.0.namespace, self.0.owner.as_ref());
        self.write(Method::POST, name, &fresh, record).await
    }

    /// Replaces the Lease `name`, if it still has the uid and resourceVersion of `record`, by the content of `record`.
    ///
    /// What is not part of a record (other labels and annotations, owner references, acquire time) stays, if this
    /// object has read or written that very state; a Lease that is deleted is not made anew.
    pub async fn put(&self, name: &str, record: &Record) -> Written<Record> {
        let base = self
            .0
            .last
            .lock()
            .get(name)
            .filter(|last| convert::is_state(last, record))
            .cloned();
        let base = base.unwrap_or_else(|| convert::fresh(name, &self.0.namespace, None));
        self.write(Method::PUT, name, &base, record).await
    }

    /// Deletes the Lease `name`, if it still has the uid and resourceVersion of `record`.
    pub async fn delete(&self, name: &str, record: &Record) -> Written<()> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": record.uid, "resourceVersion": record.resource_version },
        });
        match self
            .call(Method::DELETE, Some(name), Bytes::from(options.to_string()))
            .await
        {
            Ok(_) => {
                self.0.last.lock().remove(name);
                Written::Accepted(())
            }
            Err(error) => written_not(&error),
        }
    }

    /// Carries out what a machine that holds the Lease `name` asks for.
    pub async fn carry_out(&self, name: &str, request: &Request) -> Input {
        match request {
            Request::Create(record) => Input::Written(self.create(name, record).await),
            Request::Put(record) => Input::Written(self.put(name, record).await),
            Request::Read => match self.read(name).await {
                Ok(seen) => Input::Read(Some(seen)),
                Err(error) => {
                    warn!(lease = name, error = chain(&error), "Lease not read");
                    Input::Read(None)
                }
            },
        }
    }

    /// The view that [`Self::watch`] takes its changes from, for who wants to have it listed anew.
    pub fn view(&self, informers: &Informers) -> View {
        informers.open(self.key(), None)
    }

    fn key(&self) -> ViewKey {
        ViewKey::new(Identity::process(), Arc::clone(&self.0.resource))
            .in_namespace(&*self.0.namespace)
    }

    /// Watches all Leases of the namespace; begins with those that exist.
    pub fn watch(&self, informers: &Informers) -> LeaseWatch {
        let latest = Arc::new(Latest::default());
        let view = informers.open(self.key(), Some(Arc::clone(&latest) as _));
        LeaseWatch { latest, view }
    }

    async fn write(
        &self,
        method: Method,
        name: &str,
        base: &Lease,
        record: &Record,
    ) -> Written<Record> {
        let lease = convert::to_lease(base, record, self.0.clients.clock().wall());
        let body = match serde_json::to_vec(&lease) {
            Ok(body) => Bytes::from(body),
            Err(error) => return Written::Refused(error.to_string()),
        };
        let named = (method != Method::POST).then_some(name);
        match self
            .call(method, named, body)
            .await
            .and_then(|answer| self.take(name, &answer))
        {
            Ok(record) => Written::Accepted(record),
            Err(error) => {
                warn!(lease = name, error = chain(&error), "Lease not written");
                written_not(&error)
            }
        }
    }

    async fn call(&self, method: Method, name: Option<&str>, body: Bytes) -> Result<Answer, Error> {
        let Inner {
            clients,
            namespace,
            resource,
            ..
        } = &*self.0;
        let mut target = match name {
            Some(name) => resource.object_path(Some(namespace), name),
            None => resource.collection_path(Some(namespace)),
        };
        encode_query(
            &mut target,
            "timeout",
            &format!("{}ms", REQUEST_TIMEOUT.as_millis()),
        );
        let identity = Identity::process();
        clients
            .leases()
            .call(
                Call::new(&identity, method, target)
                    .body(body)
                    .within(REQUEST_TIMEOUT),
            )
            .await
    }

    /// Reads the Lease that an answer carries, and remembers it.
    fn take(&self, name: &str, answer: &Answer) -> Result<Record, Error> {
        let lease: Lease = serde_json::from_slice(&answer.body).map_err(|error| Error {
            method: answer.method.clone(),
            path: answer.path.clone(),
            cause: Cause::Answer(error.to_string()),
        })?;
        let record = convert::to_record(&lease);
        self.0.last.lock().insert(name.into(), lease);
        Ok(record)
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leases({})", self.0.namespace)
    }
}

impl LeaseWatch {
    /// The next change: a Lease's name and newest state. Dropping the future loses nothing.
    pub async fn next(&mut self) -> (Box<str>, Seen) {
        loop {
            let (name, state) = self.latest.next().await;
            let Some(object) = state else {
                return (name, Seen::Absent);
            };
            match serde_json::from_slice::<Lease>(object.bytes()) {
                Ok(lease) => return (name, Seen::Present(convert::to_record(&lease))),
                Err(error) => warn!(lease = %name, %error, "Lease not understood"),
            }
        }
    }

    /// The view that the changes come from.
    pub fn view(&self) -> &View {
        &self.view
    }
}

/// How a write that brought no result ended.
pub(crate) fn written_not<T>(error: &Error) -> Written<T> {
    if error.is_conflict() {
        Written::Conflict
    } else if error.is_transient() || error.refusal().is_none() {
        Written::Unknown
    } else {
        Written::Refused(chain(error))
    }
}

fn resource() -> Resource {
    Resource {
        group: "coordination.k8s.io".to_owned(),
        version: "v1".to_owned(),
        plural: "leases".to_owned(),
        kind: "Lease".to_owned(),
        namespaced: true,
        has_status: false,
    }
}
