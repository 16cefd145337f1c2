//! The API server, as far as the objects of the fleet are concerned: what it answers, and how it orders writes.

use std::{collections::BTreeMap, sync::Arc};

use metashard_api::id::{Epoch, Incarnation};

use crate::{
    lease,
    map::{self, Map},
    record::{Record, Seen, Written},
};

/// Which Lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Name {
    /// The leader's.
    Leader,
    /// A worker's.
    Worker(Incarnation),
}

/// The objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Server {
    leases: BTreeMap<Name, Object>,
    map: Option<Arc<Map>>,
    n_maps_written: u64,
    /// The object that workers write.
    pub(super) child: Child,
}

/// One name and what is under it. Versions count for each name alone: they are compared for equality only, and unrelated
/// writes then lead to the same state in any order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Object {
    record: Option<Record>,
    n_made: u64,
    n_written: u64,
}

/// An object that whoever owns the shard writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Child {
    pub(super) version: u64,
    /// The newest epoch that wrote it.
    pub(super) epoch: Epoch,
}

impl Server {
    /// What a read or the watch shows.
    pub(super) fn lease(&self, name: &Name) -> Seen {
        let record = self
            .leases
            .get(name)
            .and_then(|object| object.record.clone());
        record.map_or(Seen::Absent, Seen::Present)
    }

    /// The names under which there is, or was, a Lease, each with what tells its states apart.
    pub(super) fn leases(&self) -> impl Iterator<Item = (&Name, (u64, bool))> {
        let leases = self.leases.iter();
        leases.map(|(name, object)| (name, (object.n_written, object.record.is_some())))
    }

    /// Carries out a request for a Lease and says what is answered.
    pub(super) fn serve(&mut self, name: &Name, request: &lease::Request) -> lease::Input {
        let object = self.leases.entry(name.clone()).or_default();
        match request {
            lease::Request::Read => {
                let record = object.record.clone();
                lease::Input::Read(Some(record.map_or(Seen::Absent, Seen::Present)))
            }
            lease::Request::Create(content) => lease::Input::Written(object.create(content)),
            lease::Request::Put(content) => lease::Input::Written(object.put(content)),
        }
    }

    /// Whether it makes no difference any more whether `request` is carried out, as long as nobody waits for the answer.
    pub(super) fn is_moot(&self, name: &Name, request: &lease::Request) -> bool {
        match request {
            lease::Request::Read => true,
            lease::Request::Create(_) => false,
            lease::Request::Put(content) => {
                let object = self.leases.get(name);
                // Versions never come back.
                !content.resource_version.is_empty()
                    && !content.uid.is_empty()
                    && object.is_none_or(|object| !object.is_still(content))
            }
        }
    }

    /// Somebody deletes a Lease.
    pub(super) fn delete(&mut self, name: &Name) {
        if let Some(object) = self.leases.get_mut(name) {
            object.record = None;
        }
    }

    /// The map, as a read or the watch shows it.
    pub(super) fn map(&self) -> map::Seen {
        self.map
            .clone()
            .map_or(map::Seen::Absent, map::Seen::Present)
    }

    /// Carries out a write of the map; an empty resourceVersion in its base is no precondition.
    pub(super) fn write_map(&mut self, write: &map::Write) -> Written<Arc<Map>> {
        let may_write = match (&write.base, &self.map) {
            (None, None) => true,
            (Some(base), Some(map)) => {
                base.resource_version.is_empty() || base.resource_version == map.resource_version
            }
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !may_write {
            return Written::Conflict;
        }
        self.n_maps_written += 1;
        let map = Arc::new(Map {
            uid: "map".to_owned(),
            resource_version: self.n_maps_written.to_string(),
            spec: write.spec.clone(),
        });
        self.map = Some(Arc::clone(&map));
        Written::Accepted(map)
    }

    /// Whether `write` of the map must fail, now and later.
    pub(super) fn is_map_write_moot(&self, write: &map::Write) -> bool {
        let version = self.map.as_ref().map(|map| map.resource_version.as_str());
        let base = write.base.as_ref().map(|map| map.resource_version.as_str());
        base.is_some_and(|base| !base.is_empty()) && base != version
    }

    /// Puts the map of a new installation there.
    pub(super) fn ship_map(&mut self) {
        self.map = Some(Arc::new(Map {
            uid: "map".to_owned(),
            resource_version: "0".to_owned(),
            spec: metashard_api::shard_map::ShardMapSpec::default(),
        }));
    }
}

impl Object {
    fn create(&mut self, content: &Record) -> Written<Record> {
        if self.record.is_some() {
            return Written::Conflict;
        }
        self.n_made += 1;
        self.store(content)
    }

    /// An empty uid or resourceVersion in the content is no precondition.
    fn put(&mut self, content: &Record) -> Written<Record> {
        let Some(record) = &self.record else {
            // An API server makes a deleted Lease anew by a PUT that names no uid, whatever version it names.
            return if content.uid.is_empty() {
                self.create(content)
            } else {
                Written::Conflict
            };
        };
        let is_uid_right = content.uid.is_empty() || content.uid == record.uid;
        let is_version_right = content.resource_version.is_empty()
            || content.resource_version == record.resource_version;
        if is_uid_right && is_version_right {
            self.store(content)
        } else {
            Written::Conflict
        }
    }

    fn is_still(&self, content: &Record) -> bool {
        let (made, written) = (self.n_made.to_string(), self.n_written.to_string());
        self.record.is_some() && content.uid == made && content.resource_version == written
    }

    fn store(&mut self, content: &Record) -> Written<Record> {
        self.n_written += 1;
        let record = Record {
            uid: self.n_made.to_string(),
            resource_version: self.n_written.to_string(),
            ..content.clone()
        };
        self.record = Some(record.clone());
        Written::Accepted(record)
    }
}
