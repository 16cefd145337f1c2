//! Controllers that are gone: what they leave behind is looked at until nothing of it is left.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use metashard_api::id::ControllerUid;
use metashard_fleet::time::MonoTime;

use super::{Ended, Host};
use crate::{
    catalog::ControllerName,
    departed::{Departed, Departure},
};

/// Wait after something stood in the way.
const RETRY: Duration = Duration::from_secs(5);

/// How often it is looked whether a controller that this process does not serve exists still: nothing tells of its end.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// When a departed controller may be looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// A task does that now.
    UnderWay,
    /// From this time on.
    At(MonoTime),
}

impl Host {
    /// Looks for controllers that left records and are not served any more.
    pub(super) fn see_off_all(&mut self) {
        if !self.catalog.is_synced() {
            return;
        }
        let present: BTreeSet<_> = self.slots.values().map(|slot| &slot.uid).collect();
        let mut departed = self.ledger.controllers();
        departed.retain(|uid| !present.contains(uid));
        for uid in departed {
            if let Some(record) = self.ledger.get(&uid) {
                self.see_off(&record.controller, &uid);
            }
        }
    }

    /// Does what is left to do for a controller that is gone, if its shard is served here.
    pub(super) fn see_off(&mut self, name: &ControllerName, uid: &ControllerUid) {
        let now = self.context.clock.now().mono;
        let is_due = match self.departing.get(uid) {
            None => true,
            Some(Again::UnderWay) => false,
            Some(Again::At(time)) => *time <= now,
        };
        self.layout.look(&self.context.standing.load());
        // One that is split is merged first: until then others may have something of it under way.
        let is_whole = self.layout.slices(uid) == 1;
        let home = self.layout.home(uid).filter(|_| is_whole);
        let claim = home.and_then(|shard| self.tenures.acting(shard));
        // Whatever a departed controller left is not ours while a Metacontroller may act.
        let is_held = *self.context.hold.borrow();
        let Some(claim) = claim.filter(|_| is_due && !is_held) else {
            return;
        };
        self.departing.insert(uid.clone(), Again::UnderWay);
        let departure = Departure {
            context: Arc::clone(&self.context),
            ledger: Arc::clone(&self.ledger),
            name: name.clone(),
            uid: uid.clone(),
            claim,
        };
        let uid = uid.clone();
        self.tasks.spawn("see-off", async move {
            Ended::SeenOff(uid, departure.see_off().await)
        });
    }

    /// Takes in what became of a departed controller.
    pub(super) fn seen_off(&mut self, uid: ControllerUid, departed: Departed) {
        let now = self.context.clock.now().mono;
        let wait = match departed {
            Departed::Gone => None,
            Departed::Stays => Some(LOOK_AGAIN),
            Departed::Unclear => Some(RETRY),
        };
        match wait.filter(|_| self.ledger.get(&uid).is_some()) {
            Some(wait) => {
                self.departing.insert(uid, Again::At(now + wait));
            }
            None => {
                self.departing.remove(&uid);
            }
        }
    }
}
