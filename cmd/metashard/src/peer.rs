//! Keeps out of a running Metacontroller's way: while its leader Lease is live, or the record of a move says that it may
//! act, nothing is acted on.

use std::time::Duration;

use metashard_api::names::{MIGRATION_RECORD, PEER_LEADER_LEASE};
use metashard_fleet::{
    record::{Holder, Record, Seen},
    time::MonoTime,
};
use metashard_kube::{
    client::Clients,
    lease::Leases,
    migration::{self, Says},
};
use metashard_runtime::{clock::Clock, log::chain};
use tokio::sync::watch;
use tracing::{error, info, warn};

/// How often its Lease is looked at. It renews every 2 s.
const POLL: Duration = Duration::from_secs(2);

/// Watches the Lease of a Metacontroller in the same namespace, and the record of a move from it.
pub(crate) struct Guard {
    leases: Leases,
    clients: Clients,
    /// The system namespace.
    system: String,
    clock: Clock,
}

/// For how long a Lease has looked as it does.
#[derive(Debug, Default)]
struct Unchanged(Option<(Record, MonoTime)>);

impl Guard {
    /// Watches the Lease named as Metacontroller names it, and the record in the namespace `system`.
    pub(crate) fn new(leases: Leases, clients: &Clients, clock: Clock, system: &str) -> Self {
        Self {
            leases,
            clients: clients.clone(),
            system: system.to_owned(),
            clock,
        }
    }

    /// Returns once no Metacontroller is live: its Lease is absent or released, or was not renewed for as long as it says.
    /// True: before that, as a move holds back what would be written, and nothing has to be waited for.
    pub(crate) async fn wait_until_gone(&self) -> bool {
        let mut unchanged = Unchanged::default();
        loop {
            // Unless it is known that nothing holds it back, nobody begins.
            let says = self.says().await;
            if says == Some(Says::Hold) {
                info!(
                    "a move from Metacontroller is under way ({MIGRATION_RECORD}): nothing is written until it says so"
                );
                return true;
            }
            match self.leases.read(PEER_LEADER_LEASE).await {
                Ok(seen) => {
                    let is_new = unchanged.0.is_none();
                    let is_over = unchanged.is_over(seen, self.clock.now().mono);
                    if is_over && says == Some(Says::Act) {
                        if !is_new {
                            info!("no Metacontroller is live");
                        }
                        return false;
                    }
                    if let (true, Some((record, _))) = (is_new, &unchanged.0) {
                        let holder = record.holder.to_text();
                        info!(
                            holder,
                            "a Metacontroller may be live: nothing is done until its Lease {PEER_LEADER_LEASE} has ended"
                        );
                    }
                }
                Err(error) => warn!(
                    error = chain(&error),
                    "the Lease of Metacontroller is not read"
                ),
            }
            self.clock.sleep(POLL).await;
        }
    }

    /// What the record of a move says; `None` if that is not known. Who may not read it was never waited for.
    async fn says(&self) -> Option<Says> {
        match migration::read(&self.clients, &self.system).await {
            Ok(says) => Some(says),
            Err(error) if error.is_forbidden() => Some(Says::Act),
            Err(error) => {
                warn!(
                    error = chain(&error),
                    "the record of a move from Metacontroller is not read"
                );
                None
            }
        }
    }

    /// Keeps `hold`. Returns once a Metacontroller has taken or renewed its Lease while nothing is held back.
    pub(crate) async fn follow(&self, hold: watch::Sender<bool>) {
        let mut last: Option<Seen> = None;
        let mut unchanged = Unchanged::default();
        loop {
            let says = self.says().await;
            if says == Some(Says::Hold) && !hold.send_replace(true) {
                info!("a move from Metacontroller holds: nothing is written any more");
                unchanged = Unchanged::default();
            }
            if let Ok(seen) = self.leases.read(PEER_LEADER_LEASE).await {
                if *hold.borrow() {
                    let is_over = unchanged.is_over(seen.clone(), self.clock.now().mono);
                    if is_over && says == Some(Says::Act) {
                        info!("a move from Metacontroller goes on: what hooks ask for is written");
                        hold.send_replace(false);
                    }
                } else if last.as_ref().is_some_and(|last| *last != seen) && is_held(&seen) {
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

impl Unchanged {
    /// Takes in what is seen, and says whether nobody else's claim can be in it any more.
    fn is_over(&mut self, seen: Seen, now: MonoTime) -> bool {
        let record = match seen {
            Seen::Present(record) if is_metacontrollers(&record) => record,
            Seen::Present(_) | Seen::Absent => {
                return true;
            }
        };
        let since = match &self.0 {
            Some((known, since)) if *known == record => *since,
            _ => now,
        };
        let is_over = now.since(since) >= record.duration;
        self.0 = Some((record, since));
        is_over
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
