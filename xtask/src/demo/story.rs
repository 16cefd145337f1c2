//! What has changed between two snapshots, told in sentences.

use super::snapshot::{Controller, Snapshot, Standing};

/// One sentence for each change that a viewer would ask about.
pub(super) fn changes(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut told = Vec::new();
    match (&before.leader, &after.leader) {
        (old, Some(new)) if old.as_ref() != Some(new) => {
            told.push(format!("{new} leads (term {})", after.term));
        }
        (Some(old), None) => told.push(format!(
            "{old} no longer leads; nobody does, and all workers go on"
        )),
        _ => {}
    }
    for (name, worker) in &after.workers {
        let old = before.workers.get(name).map(|it| it.standing);
        if old != Some(worker.standing) {
            told.push(standing(name, worker.standing));
        }
    }
    for new in &after.controllers {
        let old = before.controllers.iter().find(|it| it.name == new.name);
        told.extend(moved(old, new));
    }
    let all = |it: &Snapshot| it.controllers.iter().all(settled) && it.parents() > 0;
    if all(after) && !all(before) {
        told.push(format!(
            "all {} parents are as their specs ask",
            after.parents()
        ));
    }
    told
}

fn standing(name: &str, standing: Standing) -> String {
    match standing {
        Standing::Holds => format!("{name} works: it has a Lease and may be given shards"),
        Standing::Fenced => {
            format!("{name} is fenced: its Lease had run out, and it can never act on it again")
        }
        Standing::Evicted => {
            format!("{name} is evicted: it lives, but did not let go of what it held")
        }
        Standing::Released => format!("{name} has left, and released its Lease"),
    }
}

/// Whether all parents of a controller, and there are some, have been served.
pub(super) fn settled(controller: &Controller) -> bool {
    controller.parents > 0 && controller.settled == controller.parents
}

fn moved(old: Option<&Controller>, new: &Controller) -> Option<String> {
    let to = new.worker.as_ref()?;
    let name = &new.name;
    match old.and_then(|it| it.worker.as_ref()) {
        None => Some(format!(
            "{name} is served by {to} (shard {}, epoch {})",
            new.shard, new.epoch
        )),
        Some(from) if from != to => Some(format!(
            "{name} moved from {from} to {to} (epoch {})",
            new.epoch
        )),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::snapshot::Worker;

    fn controller(worker: Option<&str>, settled: usize) -> Controller {
        Controller {
            name: "websites".to_owned(),
            worker: worker.map(str::to_owned),
            epoch: 2,
            parents: 3,
            settled,
            ..Controller::default()
        }
    }

    fn snapshot(leader: Option<&str>, controller: Controller) -> Snapshot {
        Snapshot {
            leader: leader.map(str::to_owned),
            term: 4,
            controllers: vec![controller],
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_new_leader_and_a_moved_controller_are_told() {
        let before = snapshot(Some("a"), controller(Some("a"), 3));
        let after = snapshot(Some("b"), controller(Some("b"), 3));

        assert_eq!(
            changes(&before, &after),
            ["b leads (term 4)", "websites moved from a to b (epoch 2)"]
        );
    }

    #[test]
    fn a_worker_that_is_fenced_is_told_apart_from_one_that_left() {
        let with = |standing| Snapshot {
            workers: [(
                "a".to_owned(),
                Worker {
                    standing,
                    ..Worker::default()
                },
            )]
            .into(),
            ..Snapshot::default()
        };

        let fenced = changes(&with(Standing::Holds), &with(Standing::Fenced));
        let left = changes(&with(Standing::Holds), &with(Standing::Released));

        assert!(fenced[0].starts_with("a is fenced"), "{fenced:?}");
        assert!(left[0].starts_with("a has left"), "{left:?}");
    }

    #[test]
    fn nothing_is_told_while_nothing_changes() {
        let same = snapshot(Some("a"), controller(Some("a"), 3));

        assert!(changes(&same, &same).is_empty());
    }

    #[test]
    fn the_moment_when_all_parents_are_settled_is_told_once() {
        let before = snapshot(Some("a"), controller(Some("a"), 2));
        let after = snapshot(Some("a"), controller(Some("a"), 3));

        assert_eq!(
            changes(&before, &after),
            ["all 3 parents are as their specs ask"]
        );
    }
}
