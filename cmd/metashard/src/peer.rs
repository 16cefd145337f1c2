//! Keeps out of a running Metacontroller's way: while its leader Lease is live, nothing is acted on.

use std::time::Duration;

use metashard_api::names::PEER_LEADER_LEASE;
use metashard_fleet::{
    record::{Holder, Record, Seen},
    time::MonoTime,
};
use metashard_kube::lease::Leases;
use metashard_runtime::{clock::Clock, log::chain};
use tracing::{error, info, warn};

/// How often its Lease is looked at. It renews every 2 s.
const POLL: Duration = Duration::from_secs(2);

/// Watches the Lease of a Metacontroller in the same namespace.
#[derive(Debug)]
pub(crate) struct Guard {
    leases: Leases,
    clock: Clock,
}

impl Guard {
    /// Watches the Lease named as Metacontroller names it.
    pub(crate) fn new(leases: Leases, clock: Clock) -> Self {
        Self { leases, clock }
    }

    /// Returns once no Metacontroller is live: its Lease is absent or released, or was not renewed for as long as it says.
    pub(crate) async fn wait_until_gone(&self) {
        let mut last: Option<(Record, MonoTime)> = None;
        loop {
            let now = self.clock.now().mono;
            match self.leases.read(PEER_LEADER_LEASE).await {
                Ok(Seen::Absent) => return,
                Ok(Seen::Present(record)) if !is_metacontrollers(&record) => return,
                Ok(Seen::Present(record)) => {
                    let since = match &last {
                        Some((known, since)) if *known == record => *since,
                        Some(_) => now,
                        None => {
                            let holder = record.holder.to_text();
                            info!(
                                holder,
                                "a Metacontroller may be live: nothing is done until its Lease {PEER_LEADER_LEASE} has ended"
                            );
                            now
                        }
                    };
                    if now.since(since) >= record.duration {
                        info!("no Metacontroller is live");
                        return;
                    }
                    last = Some((record, since));
                }
                Err(error) => warn!(
                    error = chain(&error),
                    "the Lease of Metacontroller is not read"
                ),
            }
            self.clock.sleep(POLL).await;
        }
    }

    /// Returns once a Metacontroller has taken or renewed its Lease.
    pub(crate) async fn wait_until_live(&self) {
        let mut last: Option<Seen> = None;
        loop {
            if let Ok(seen) = self.leases.read(PEER_LEADER_LEASE).await {
                if last.as_ref().is_some_and(|last| *last != seen) && is_held(&seen) {
                    error!(
                        "a Metacontroller has started: this replica ends, so that the two do not act at once"
                    );
                    return;
                }
                last = Some(seen);
            }
            self.clock.sleep(POLL).await;
        }
    }
}

fn is_held(seen: &Seen) -> bool {
    matches!(seen, Seen::Present(record) if is_metacontrollers(record))
}

/// Whether somebody else holds it: with `--leader-election-id=metacontroller` it is our own leader's Lease, and our
/// writes are numbered.
fn is_metacontrollers(record: &Record) -> bool {
    record.holder != Holder::Released && record.attempt == 0
}
