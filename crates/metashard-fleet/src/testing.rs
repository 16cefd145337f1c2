//! An API server of Leases and one map, in memory, for the tests of this crate.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metashard_api::{
    id::{ControllerUid, Incarnation, ReplicaId, ShardId, Slice},
    shard_map::ShardMapSpec,
};

use crate::{
    lease,
    map::{self, Map},
    record::{About, Holder, Record, Seen, Written},
    shard::shard_of,
};

/// Every write gets a new resourceVersion. A `PUT` needs the uid and resourceVersion of what is there, but for one
/// without a resourceVersion, as some mutants send it.
#[derive(Debug, Default)]
pub(crate) struct Server {
    leases: BTreeMap<String, Record>,
    map: Option<Arc<Map>>,
    /// Its CRD does not know of splits.
    pub(crate) drops_splits: bool,
    /// The map is one that cannot be read.
    pub(crate) is_unreadable: bool,
    written: u64,
}

impl Server {
    pub(crate) fn lease(&self, name: &str) -> Seen {
        let record = self.leases.get(name).cloned();
        record.map_or(Seen::Absent, Seen::Present)
    }

    pub(crate) fn answer(&mut self, name: &str, request: lease::Request) -> lease::Input {
        match request {
            lease::Request::Read => lease::Input::Read(Some(self.lease(name))),
            lease::Request::Create(_) if self.leases.contains_key(name) => {
                lease::Input::Written(Written::Conflict)
            }
            lease::Request::Put(record) if !self.is_current(name, &record) => {
                lease::Input::Written(Written::Conflict)
            }
            lease::Request::Create(record) | lease::Request::Put(record) => {
                lease::Input::Written(Written::Accepted(self.put(name, record)))
            }
        }
    }

    /// Writes as somebody does who asks for nothing.
    pub(crate) fn put(&mut self, name: &str, mut record: Record) -> Record {
        record.resource_version = self.next();
        if let Some(old) = self.leases.get(name) {
            record.uid.clone_from(&old.uid);
        } else {
            record.uid = format!("uid-{}", record.resource_version);
        }
        self.leases.insert(name.to_owned(), record.clone());
        record
    }

    /// Writes another holder into a Lease, by hand.
    pub(crate) fn take(&mut self, name: &str, holder: Holder, duration: Duration) {
        let record = record(holder, duration, 0);
        self.put(name, record);
    }

    pub(crate) fn delete(&mut self, name: &str) {
        self.leases.remove(name);
    }

    pub(crate) fn map(&self) -> map::Seen {
        if self.is_unreadable {
            return map::Seen::Unreadable;
        }
        let map = self.map.clone();
        map.map_or(map::Seen::Absent, map::Seen::Present)
    }

    pub(crate) fn spec(&self) -> &ShardMapSpec {
        &self.map.as_ref().expect("there is a map").spec
    }

    pub(crate) fn write_map(&mut self, mut write: map::Write) -> Written<Arc<Map>> {
        if self.drops_splits {
            write.spec.splits.clear();
        }
        let is_current = match (&write.base, &self.map) {
            (None, None) => true,
            (Some(base), Some(map)) => {
                let is_unconditional = base.resource_version.is_empty();
                let is_same = base.resource_version == map.resource_version;
                base.uid == map.uid && (is_same || is_unconditional)
            }
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !is_current {
            return Written::Conflict;
        }
        let uid = write.base.map(|base| base.uid.clone());
        Written::Accepted(self.put_map(uid, write.spec))
    }

    /// Puts a map there by hand; without a uid it is a new object.
    pub(crate) fn put_map(&mut self, uid: Option<String>, spec: ShardMapSpec) -> Arc<Map> {
        let resource_version = self.next();
        let uid = uid.unwrap_or_else(|| format!("map-{resource_version}"));
        let map = Arc::new(Map {
            uid,
            resource_version,
            spec,
        });
        self.map = Some(Arc::clone(&map));
        map
    }

    pub(crate) fn delete_map(&mut self) {
        self.map = None;
    }

    fn is_current(&self, name: &str, record: &Record) -> bool {
        self.leases.get(name).is_some_and(|it| {
            let is_same = it.uid == record.uid && it.resource_version == record.resource_version;
            is_same || record.resource_version.is_empty()
        })
    }

    fn next(&mut self) -> String {
        self.written += 1;
        self.written.to_string()
    }
}

pub(crate) fn record(holder: Holder, duration: Duration, attempt: u64) -> Record {
    Record {
        uid: String::new(),
        resource_version: String::new(),
        holder,
        duration,
        attempt,
        about: About::default(),
    }
}

pub(crate) fn member(replica: &str, incarnation: &Incarnation) -> Holder {
    Holder::Member(ReplicaId::new(replica), incarnation.clone())
}

/// A readable stand-in for a UUID.
pub(crate) fn incarnation(name: &str) -> Incarnation {
    Incarnation::new(format!("{name:0>36}"))
}

/// Controllers of which each shard holds so many; shards that are not named hold none. None asks to be split.
pub(crate) fn controllers(
    counts: &BTreeMap<ShardId, u32>,
    shard_count: u16,
) -> Arc<BTreeMap<ControllerUid, Option<u16>>> {
    let mut missing = counts.clone();
    missing.retain(|_, n| *n > 0);
    let mut all = BTreeMap::new();
    for uid in (0_u32..).map(|n| ControllerUid::new(format!("controller-{n}"))) {
        if missing.is_empty() {
            break;
        }
        let shard = shard_of(&uid, Slice::default(), shard_count);
        let Some(n) = missing.get_mut(&shard) else {
            continue;
        };
        *n -= 1;
        if *n == 0 {
            missing.remove(&shard);
        }
        all.insert(uid, None);
    }
    Arc::new(all)
}
