//! The order of all maps: I3 and I4.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    invariants::Invariant,
    map::{self, Map},
};

/// The newest map that was seen.
#[derive(Debug, Default)]
pub(super) struct Maps {
    newest: Option<Arc<Map>>,
}

impl Maps {
    pub(super) fn newest(&self) -> Option<&Map> {
        self.newest.as_deref()
    }

    /// Takes a map that was read or written. An older one is no news: watches lag behind reads. One that was made anew
    /// begins another order.
    pub(super) fn see(&mut self, map: &Arc<Map>) -> BTreeSet<Invariant> {
        let Some(newest) = &self.newest else {
            self.newest = Some(Arc::clone(map));
            return BTreeSet::new();
        };
        if newest.resource_version == map.resource_version && newest.uid == map.uid {
            return BTreeSet::new();
        }
        if newest.uid == map.uid && map.version() < newest.version() {
            return BTreeSet::new();
        }
        let broken = if newest.uid == map.uid {
            map::table(&newest.spec).broken_by(&map::table(&map.spec), true)
        } else {
            BTreeSet::new()
        };
        self.newest = Some(Arc::clone(map));
        broken
    }
}
