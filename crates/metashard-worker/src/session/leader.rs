//! Who leads, and where it is reached: what the leader's Lease says.

use metashard_api::id::{Incarnation, ReplicaId};
use metashard_fleet::record::{Holder, Seen};
use metashard_kube::{
    informer::Informers,
    lease::{LeaseWatch, Leases},
};
use metashard_runtime::task::Tasks;
use tokio::sync::watch;

/// The replica that leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leader {
    /// Its name; its certificate has to show it.
    pub(crate) replica: ReplicaId,
    /// Its candidacy: another one is another leader.
    pub(crate) incarnation: Incarnation,
    /// Where it serves sessions, `host:port`.
    pub(crate) address: String,
}

/// Follows the Lease `name` for as long as the tasks live.
pub(crate) fn follow(
    leases: &Leases,
    informers: &Informers,
    name: &str,
) -> (watch::Receiver<Option<Leader>>, Tasks<()>) {
    let (sender, receiver) = watch::channel(None);
    let mut tasks = Tasks::new();
    let changes = leases.watch(informers);
    tasks.spawn("leader-watch", pass_on(changes, name.into(), sender));
    (receiver, tasks)
}

async fn pass_on(mut changes: LeaseWatch, name: Box<str>, leader: watch::Sender<Option<Leader>>) {
    loop {
        let (lease, seen) = changes.next().await;
        if lease == name {
            let now = leader_of(seen);
            leader.send_if_modified(|it| {
                let is_other = *it != now;
                *it = now;
                is_other
            });
        }
    }
}

/// The leader that a state of its Lease names; none if nobody of ours holds it, or it says no address.
fn leader_of(seen: Seen) -> Option<Leader> {
    let Seen::Present(record) = seen else {
        return None;
    };
    let Holder::Member(replica, incarnation) = record.holder else {
        return None;
    };
    let address = record.about.address;
    (!address.is_empty()).then_some(Leader {
        replica,
        incarnation,
        address,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metashard_fleet::record::{About, Record};

    use super::*;

    const UUID: &str = "11111111-1111-4111-8111-111111111111";

    fn lease(holder: &str, address: &str) -> Seen {
        Seen::Present(Record {
            uid: "1".to_owned(),
            resource_version: "1".to_owned(),
            holder: Holder::parse(Some(holder)),
            duration: Duration::from_secs(4),
            attempt: 1,
            about: About {
                address: address.to_owned(),
                ..About::default()
            },
        })
    }

    #[test]
    fn leader_is_who_holds_the_lease_and_says_where_it_is() {
        let holder = format!("replica-1_{UUID}");

        let leader = leader_of(lease(&holder, "10.0.0.1:9443")).unwrap();

        assert_eq!(leader.replica, ReplicaId::new("replica-1"));
        assert_eq!(leader.address, "10.0.0.1:9443");
    }

    #[test]
    fn nobody_leads_under_an_empty_foreign_or_silent_holder() {
        let silent = format!("replica-1_{UUID}");
        for (holder, address) in [
            ("", "10.0.0.1:9443"),
            ("somebody else", "10.0.0.1:9443"),
            ("fenced", "10.0.0.1:9443"),
            (silent.as_str(), ""),
        ] {
            assert_eq!(leader_of(lease(holder, address)), None, "{holder:?}");
        }
        assert_eq!(leader_of(Seen::Absent), None);
    }
}
