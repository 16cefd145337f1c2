//! What people ask of the fleet, and what they are told.

use metashard_api::id::ReplicaId;

use super::Fleet;
use crate::{
    leader::Input,
    wishes::{Finding, Pin, Pinned, Told, Wishes},
};

impl Fleet {
    /// People ask this now.
    pub(in super::super) fn wish(&mut self, edit: impl FnOnce(&mut Wishes)) {
        edit(&mut self.wishes);
        self.wishes.generation += 1;
        self.show_wishes();
    }

    fn show_wishes(&mut self) {
        for n in 0..self.replicas.len() {
            self.tell(n, Input::WishesSeen(self.wishes.clone()));
        }
    }

    /// A leader's status is written and shown to all.
    pub(super) fn take_told(&mut self, n: usize, told: Told) {
        assert!(
            self.replicas[n].leader.leads(self.now),
            "only who leads tells"
        );
        self.wishes
            .observed_rebalance
            .clone_from(&told.observed_rebalance);
        self.answers.push(told);
        self.tell(n, Input::WishesTold(true));
        self.show_wishes();
    }

    /// What was told last of one condition.
    pub(in super::super) fn finding(&self, condition: &str) -> &Finding {
        let told = self.answers.last().expect("something was told");
        let found = told.findings.iter().find(|it| it.condition == condition);
        found.expect("it is told of")
    }
}

pub(in super::super) fn pin(what: Pinned, replica: &str) -> Pin {
    Pin {
        what,
        replica: ReplicaId::new(replica),
    }
}
