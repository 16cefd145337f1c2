//! What has changed between two snapshots, told in sentences.

use super::snapshot::{Controller, Snapshot};

/// One sentence for each change that a viewer would ask about.
pub(super) fn changes(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut told = Vec::new();
    match (&before.leader, &after.leader) {
        (old, Some(new)) if old.as_ref() != Some(new) => {
            told.push(format!("{new} leads (term {})", after.term));
        }
        (Some(old), None) => told.push(format!(
            "{old} leads no more; nobody does, and all workers go on"
        )),
        _ => {}
    }
    for name in after
        .workers
        .keys()
        .filter(|it| !before.workers.contains_key(*it))
    {
        told.push(format!(
            "{name} has joined: it has a Lease and may be given shards"
        ));
    }
    for name in before
        .workers
        .keys()
        .filter(|it| !after.workers.contains_key(*it))
    {
        told.push(format!(
            "{name} has no Lease any more: it released it, or was fenced"
        ));
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
