//! The board: what a viewer sees, as lines of text. Pure: a snapshot and the latest news in, lines out.

use std::time::Duration;

use super::snapshot::{Controller, Snapshot};

/// How many of the latest news are shown.
const NEWS: usize = 10;

/// Silence of a Lease that is renewed each second from which on it is worth showing.
const SILENT: Duration = Duration::from_millis(1500);

/// What the keys do.
const KEYS: &str =
    "k kill a worker   l take the lead away   e edit a parent   a add a replica   q quit";

/// What is on the board.
#[derive(Debug)]
pub(super) struct Board<'a> {
    /// Where the demo plays.
    pub(super) place: &'a str,
    /// How to look at it with kubectl.
    pub(super) kubeconfig: &'a str,
    /// Time since the start.
    pub(super) elapsed: Duration,
    /// All replicas that there ever were, and for how long each has been dead.
    pub(super) replicas: &'a [(String, Option<Duration>)],
    pub(super) snapshot: &'a Snapshot,
    /// What has happened, oldest first, each with its time.
    pub(super) news: &'a [(Duration, String)],
}

impl Board<'_> {
    /// All lines, from the top.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("metashard demo: {}   {}", self.place, seconds(self.elapsed)),
            format!(
                "kubectl --kubeconfig {} get websites,teams -A",
                self.kubeconfig
            ),
            String::new(),
            format!(
                "{:<12} {:<34} {:>6}  CONTROLLERS",
                "REPLICA", "STATE", "SHARDS"
            ),
        ];
        lines.extend(
            self.replicas
                .iter()
                .map(|(name, dead)| self.replica(name, *dead)),
        );
        lines.push(String::new());
        lines.push(format!(
            "{:<18} {:>5} {:>5}  {:<11} {:<14} {:>7} {:>8} {:>10}",
            "CONTROLLER", "SHARD", "EPOCH", "WORKER", "STATE", "PARENTS", "CHILDREN", "HOOK CALLS"
        ));
        lines.extend(self.snapshot.controllers.iter().map(controller));
        lines.push(String::new());
        let first = self.news.len().saturating_sub(NEWS);
        let latest = self.news.iter().skip(first);
        lines.extend(latest.map(|(time, text)| format!("{:>8}  {text}", seconds(*time))));
        lines.push(String::new());
        lines.push(KEYS.to_owned());
        lines
    }

    fn replica(&self, name: &str, dead: Option<Duration>) -> String {
        let worker = self.snapshot.workers.get(name);
        let leads = self.snapshot.leader.as_deref() == Some(name);
        let state = match (dead, worker) {
            (Some(dead), Some(_)) => format!("killed {} ago; its Lease runs out", seconds(dead)),
            (Some(dead), None) => format!("killed {} ago; fenced", seconds(dead)),
            (None, None) => "joining".to_owned(),
            (None, Some(it)) if it.silent > SILENT => format!("silent for {}", seconds(it.silent)),
            (None, Some(_)) if leads => "leads and works".to_owned(),
            (None, Some(_)) => "works".to_owned(),
        };
        let shards = worker.map_or(0, |it| it.shards);
        let served = self.snapshot.served_by(name).join(" ");
        format!("{name:<12} {state:<34} {shards:>6}  {served}")
            .trim_end()
            .to_owned()
    }
}

fn controller(it: &Controller) -> String {
    let worker = it.worker.as_deref().unwrap_or("nobody");
    let parents = format!("{}/{}", it.settled, it.parents);
    format!(
        "{:<18} {:>5} {:>5}  {worker:<11} {:<14} {parents:>7} {:>8} {:>10}",
        it.name, it.shard, it.epoch, it.state, it.children, it.calls
    )
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::snapshot::Worker;

    fn lines(snapshot: &Snapshot, replicas: &[(String, Option<Duration>)]) -> Vec<String> {
        let board = Board {
            place: "Kubernetes v1.36.3",
            kubeconfig: "file",
            elapsed: Duration::from_secs(9),
            replicas,
            snapshot,
            news: &[(Duration::from_secs(8), "replica-2 was killed".to_owned())],
        };
        board.lines()
    }

    #[test]
    fn the_board_names_leader_worker_shards_controllers_parents_and_calls() {
        let worker = Worker {
            silent: Duration::ZERO,
            shards: 512,
        };
        let snapshot = Snapshot {
            leader: Some("replica-1".to_owned()),
            workers: [("replica-1".to_owned(), worker)].into(),
            controllers: vec![Controller {
                name: "acme-teams".to_owned(),
                shard: 7,
                epoch: 3,
                worker: Some("replica-1".to_owned()),
                state: "Ready".to_owned(),
                parents: 5,
                settled: 4,
                children: 25,
                calls: 11,
                ..Controller::default()
            }],
            ..Snapshot::default()
        };

        let lines = lines(&snapshot, &[("replica-1".to_owned(), None)]);

        let words = |start: &str| -> Vec<String> {
            let line = lines.iter().find(|it| it.starts_with(start)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(
            words("replica-1"),
            ["replica-1", "leads", "and", "works", "512", "acme-teams"]
        );
        assert_eq!(
            words("acme-teams"),
            [
                "acme-teams",
                "7",
                "3",
                "replica-1",
                "Ready",
                "4/5",
                "25",
                "11"
            ]
        );
        assert!(
            lines.contains(&"   8.0 s  replica-2 was killed".to_owned()),
            "{lines:#?}"
        );
    }

    #[test]
    fn a_killed_replica_is_shown_with_what_becomes_of_its_lease() {
        let dead = [("replica-2".to_owned(), Some(Duration::from_secs(2)))];
        let held = Snapshot {
            workers: [("replica-2".to_owned(), Worker::default())].into(),
            ..Snapshot::default()
        };

        let before = lines(&held, &dead);
        let after = lines(&Snapshot::default(), &dead);

        assert!(
            before[4].contains("killed 2.0 s ago; its Lease runs out"),
            "{}",
            before[4]
        );
        assert!(
            after[4].contains("killed 2.0 s ago; fenced"),
            "{}",
            after[4]
        );
    }
}
