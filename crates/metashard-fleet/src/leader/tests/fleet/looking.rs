//! Looking at what became of the fleet.

use metashard_api::id::{Epoch, Incarnation, ShardId};

use super::{Fleet, N_SHARDS, lease_of};
use crate::{
    message::{Claim, Order},
    record::{Holder, Seen},
    testing::incarnation,
};

impl Fleet {
    pub(in super::super) fn owner(&self, shard: u16) -> Option<(Incarnation, Epoch)> {
        let (member, epoch) = self.server.spec().owner(ShardId(shard))?;
        Some((Incarnation::new(member.incarnation.as_str()), epoch))
    }

    pub(in super::super) fn owned_by(&self, name: &str) -> Vec<Claim> {
        let name = incarnation(name);
        (0..N_SHARDS)
            .filter_map(|shard| {
                let (owner, epoch) = self.owner(shard)?;
                let shard = ShardId(shard);
                (owner == name).then_some(Claim { shard, epoch })
            })
            .collect()
    }

    pub(in super::super) fn holder(&self, name: &str) -> Holder {
        match self.server.lease(name) {
            Seen::Present(record) => record.holder,
            Seen::Absent => panic!("{name} is absent"),
        }
    }

    pub(in super::super) fn worker_holder(&self, name: &str) -> Holder {
        self.holder(&lease_of(&incarnation(name)))
    }

    pub(in super::super) fn orders(&self, to: &str) -> Vec<&Order> {
        let to = incarnation(to);
        let told = self.told.iter();
        told.filter(|(it, _)| *it == to)
            .map(|(_, message)| &message.order)
            .collect()
    }
}
