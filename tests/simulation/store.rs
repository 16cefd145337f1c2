//! An API server in memory: objects, resourceVersions, and what happened to them.
//!
//! It is simulated and stands beside the real one, on which the rules here were measured. Reads are of the newest state.
//! A `PUT` names the state that it replaces by resourceVersion and uid; one that names a uid is refused where the object
//! is gone or another, and one that changes nothing keeps the resourceVersion. A Lease that is gone is made anew by a
//! `PUT` without a uid, whatever resourceVersion it names; another object is not.

pub(crate) mod http;
mod request;
mod watch;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch as channel;

use crate::{
    facts::{Facts, Writer},
    plan::Weather,
};

/// The namespace of Leases, map and the objects that workers write.
pub(crate) const NAMESPACE: &str = "metashard-system";

/// Names an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Lower-case plural.
    pub(crate) resource: String,
    /// Empty for one without a namespace.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotFound,
    AlreadyExists,
    Conflict,
    Invalid,
}

/// What happened to an object.
#[derive(Debug, Clone)]
struct Change {
    version: u64,
    kind: &'static str,
    key: Key,
    object: Bytes,
}

/// The database, and how the server in front of it is. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store(Arc<Inner>);

struct Inner {
    data: Mutex<Data>,
    weather: Mutex<Vec<Weather>>,
    /// The newest version, for watches.
    version: channel::Sender<u64>,
    /// Raised when all watches have to end.
    ended: channel::Sender<u64>,
    facts: Arc<Mutex<Facts>>,
}

#[derive(Default)]
struct Data {
    version: u64,
    objects: BTreeMap<Key, Value>,
    changes: Vec<Change>,
    /// Changes up to here are forgotten.
    forgotten: u64,
    n_made: u64,
}

impl Key {
    pub(crate) fn new(resource: &str, name: &str) -> Self {
        Self {
            resource: resource.to_owned(),
            namespace: NAMESPACE.to_owned(),
            name: name.to_owned(),
        }
    }

    fn is_in(&self, collection: &Self) -> bool {
        self.resource == collection.resource
            && (collection.namespace.is_empty() || self.namespace == collection.namespace)
            && (collection.name.is_empty() || self.name == collection.name)
    }
}

impl Store {
    pub(crate) fn new(facts: Arc<Mutex<Facts>>) -> Self {
        Self(Arc::new(Inner {
            data: Mutex::default(),
            weather: Mutex::default(),
            version: channel::Sender::default(),
            ended: channel::Sender::default(),
            facts,
        }))
    }

    /// From now on the server behaves like this too.
    pub(crate) fn begin_weather(&self, weather: Weather) {
        self.0.weather.lock().push(weather);
        match weather {
            Weather::EndedWatches => self.end_watches(),
            Weather::Forgetful => {
                let mut data = self.0.data.lock();
                data.forgotten = data.version;
                data.changes.clear();
                drop(data);
                self.end_watches();
            }
            Weather::Blackout => {
                self.0.facts.lock().outage(true);
                self.end_watches();
            }
            _ => {}
        }
    }

    pub(crate) fn end_weather(&self, weather: Weather) {
        let mut all = self.0.weather.lock();
        if let Some(at) = all.iter().position(|it| *it == weather) {
            all.remove(at);
        }
        if weather == Weather::Blackout && !all.contains(&weather) {
            self.0.facts.lock().outage(false);
        }
    }

    fn is(&self, weather: Weather) -> bool {
        self.0.weather.lock().contains(&weather)
    }

    fn end_watches(&self) {
        self.0.ended.send_modify(|count| *count += 1);
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Value> {
        self.0.data.lock().objects.get(key).cloned()
    }

    /// What a collection holds, and as of which version.
    fn list(&self, collection: &Key) -> (u64, Vec<Value>) {
        let data = self.0.data.lock();
        let objects = data.objects.iter();
        let in_it = objects.filter(|(key, _)| key.is_in(collection));
        (
            data.version,
            in_it.map(|(_, object)| object.clone()).collect(),
        )
    }

    /// Makes an object.
    pub(crate) fn create(
        &self,
        key: &Key,
        object: &Value,
        writer: &Writer,
    ) -> Result<Value, Refusal> {
        let mut data = self.0.data.lock();
        if data.objects.contains_key(key) {
            return Err(Refusal::AlreadyExists);
        }
        data.n_made += 1;
        let uid = format!("uid-{}", data.n_made);
        Ok(self.put(&mut data, key, object, &uid, writer))
    }

    /// Replaces an object.
    pub(crate) fn update(
        &self,
        key: &Key,
        object: &Value,
        writer: &Writer,
    ) -> Result<Value, Refusal> {
        let mut data = self.0.data.lock();
        let named = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let (uid, version) = (named("uid").to_owned(), named("resourceVersion").to_owned());
        let Some(old) = data.objects.get(key).cloned() else {
            if !uid.is_empty() {
                return Err(Refusal::Conflict);
            }
            if key.resource != "leases" {
                return Err(Refusal::NotFound);
            }
            drop(data);
            return self.create(key, object, writer);
        };
        let meta = &old["metadata"];
        let is_other = |field: &str, named: &str| !named.is_empty() && meta[field] != *named;
        if is_other("uid", &uid) || is_other("resourceVersion", &version) {
            return Err(Refusal::Conflict);
        }
        let uid = meta["uid"].as_str().unwrap_or_default().to_owned();
        if content(&old) == content(object) {
            return Ok(old);
        }
        Ok(self.put(&mut data, key, object, &uid, writer))
    }

    /// Deletes an object, if it is still as `preconditions` say.
    pub(crate) fn delete(&self, key: &Key, preconditions: &Value) -> Result<(), Refusal> {
        let mut data = self.0.data.lock();
        let Some(old) = data.objects.get(key) else {
            return Err(Refusal::NotFound);
        };
        for field in ["uid", "resourceVersion"] {
            let named = &preconditions[field];
            if !named.is_null() && old["metadata"][field] != *named {
                return Err(Refusal::Conflict);
            }
        }
        let mut old = old.clone();
        data.objects.remove(key);
        data.version += 1;
        old["metadata"]["resourceVersion"] = data.version.to_string().into();
        self.0.facts.lock().deleted(key, &old);
        self.changed(&mut data, "DELETED", key, &old);
        Ok(())
    }

    /// Changes an object as an administrator does who asks for nothing; one that is not there stays so.
    pub(crate) fn by_hand(&self, key: &Key, change: impl FnOnce(&mut Value)) {
        let Some(mut object) = self.get(key) else {
            return;
        };
        change(&mut object);
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
        }
        let changed = self.update(key, &object, &Writer::default());
        assert!(changed.is_ok(), "{changed:?}");
    }

    fn put(&self, data: &mut Data, key: &Key, object: &Value, uid: &str, writer: &Writer) -> Value {
        data.version += 1;
        let mut object = object.clone();
        object["metadata"]["uid"] = uid.into();
        object["metadata"]["resourceVersion"] = data.version.to_string().into();
        let old = data.objects.insert(key.clone(), object.clone());
        self.0
            .facts
            .lock()
            .written(key, old.as_ref(), &object, writer);
        let kind = if old.is_some() { "MODIFIED" } else { "ADDED" };
        self.changed(data, kind, key, &object);
        object
    }

    fn changed(&self, data: &mut Data, kind: &'static str, key: &Key, object: &Value) {
        data.changes.push(Change {
            version: data.version,
            kind,
            key: key.clone(),
            object: Bytes::from(object.to_string()),
        });
        self.0.version.send_replace(data.version);
    }

    /// What happened in a collection after `version`; `None` if that is forgotten.
    fn changes(&self, collection: &Key, version: u64) -> Option<(u64, Vec<Change>)> {
        let data = self.0.data.lock();
        if version < data.forgotten {
            return None;
        }
        let first = data.changes.partition_point(|it| it.version <= version);
        let changes = data.changes[first..].iter();
        let changes = changes.filter(|it| it.key.is_in(collection)).cloned();
        Some((data.version, changes.collect()))
    }
}

/// An object without what the server sets.
fn content(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("uid");
        meta.remove("resourceVersion");
    }
    object
}

/// How long a request may take at the server: what its query asks for.
const LONGEST: Duration = Duration::from_secs(34);

/// A `Status` with a code.
fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message,
    })
}
