//! What every test of leaders checks besides: decisions that can be made again, and no invariant broken.

use std::thread;

use super::Fleet;
use crate::{
    leader::{Input, Leader},
    monitor::LeaderMonitor,
    recording::{History, Machine, testing::check},
    rules::Rules,
};

impl Fleet {
    /// A replica knows nothing any more.
    pub(in crate::leader::tests) fn restart(&mut self, n: usize) {
        let leader = Leader::new(self.now, self.replicas[n].config.clone());
        self.replicas[n].history = History::new(&leader);
        self.replicas[n].monitor = LeaderMonitor::default();
        self.replicas[n].leader = leader;
    }

    /// One call of a leader machine.
    pub(super) fn call(&mut self, n: usize, inputs: Vec<Input>) {
        let replica = &mut self.replicas[n];
        if !replica.is_alive {
            return;
        }
        let mut actions = Vec::new();
        let own = replica.leader.election().incarnation().cloned();
        let led = own.filter(|_| replica.leader.leads(self.now));
        replica.leader.step(self.now, inputs.clone(), &mut actions);
        let look = replica
            .monitor
            .look(self.now, led.as_ref(), &inputs, &actions);
        replica.broken.extend(look);
        replica
            .history
            .note(&replica.leader, self.now, inputs, &actions);
        self.carry_out(n, actions);
    }
}

/// Whatever a test does with a fleet, its leaders' decisions can be made again.
impl Drop for Fleet {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        for replica in &self.replicas {
            check(&replica.history, &replica.leader);
            if replica.config.rules == Rules::default() {
                assert_eq!(replica.broken, self.broken_by_hand);
            }
        }
    }
}
