//! The board: what a viewer sees, as lines of text. Pure: a snapshot and the latest news in, lines out.

use std::time::Duration;

use super::{
    snapshot::{Controller, Snapshot, Standing},
    story::settled,
};
use crate::talk::Tone;

/// How many of the latest news are shown.
const NEWS: usize = 10;

/// Silence of a Lease that is renewed each second from which on it is worth showing.
const SILENT: Duration = Duration::from_millis(1500);

/// What the keys do.
const KEYS: &str =
    "k kill a worker   l take the lead away   e edit a parent   a add a replica   q quit";

/// One line of the board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) tone: Option<Tone>,
    pub(super) text: String,
}

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
    pub(super) fn lines(&self) -> Vec<Line> {
        let elapsed = seconds(self.elapsed);
        let news = self.news.iter().skip(self.news.len().saturating_sub(NEWS));
        let mut lines = vec![
            line(
                Tone::Strong,
                format!("metashard demo: {}   {elapsed}", self.place),
            ),
            line(
                Tone::Quiet,
                format!(
                    "kubectl --kubeconfig {} get websites,teams -A",
                    self.kubeconfig
                ),
            ),
            plain(String::new()),
            line(
                Tone::Strong,
                format!(
                    "{:<12} {:<34} {:>6}  CONTROLLERS",
                    "REPLICA", "STATE", "SHARDS"
                ),
            ),
        ];
        lines.extend(
            self.replicas
                .iter()
                .map(|(name, dead)| self.replica(name, *dead)),
        );
        lines.push(plain(String::new()));
        lines.push(line(
            Tone::Strong,
            format!(
                "{:<18} {:>5} {:>5}  {:<11} {:<14} {:>7} {:>8} {:>10}",
                "CONTROLLER",
                "SHARD",
                "EPOCH",
                "WORKER",
                "STATE",
                "PARENTS",
                "CHILDREN",
                "HOOK CALLS"
            ),
        ));
        lines.extend(
            self.snapshot
                .controllers
                .iter()
                .map(|it| self.controller(it)),
        );
        lines.push(plain(String::new()));
        lines.extend(news.map(|(time, text)| plain(format!("{:>8}  {text}", seconds(*time)))));
        lines.push(plain(String::new()));
        lines.push(line(Tone::Quiet, KEYS.to_owned()));
        lines
    }

    fn replica(&self, name: &str, dead: Option<Duration>) -> Line {
        let worker = self.snapshot.workers.get(name);
        let leads = self.snapshot.leader.as_deref() == Some(name);
        let lease = worker.map(|it| match it.standing {
            Standing::Holds => "its Lease runs out",
            Standing::Fenced => "fenced",
            Standing::Evicted => "evicted",
            Standing::Released => "left",
        });
        let (tone, state) = match (dead, worker) {
            (Some(dead), _) => {
                let lease = lease.unwrap_or("its Lease is gone");
                (
                    Some(Tone::Bad),
                    format!("killed {} ago; {lease}", seconds(dead)),
                )
            }
            (None, None) => (Some(Tone::Odd), "joining".to_owned()),
            (None, Some(it)) if it.standing != Standing::Holds => (
                Some(Tone::Odd),
                format!("{}; joining anew", lease.unwrap_or_default()),
            ),
            (None, Some(it)) if it.silent > SILENT => (
                Some(Tone::Odd),
                format!("silent for {}", seconds(it.silent)),
            ),
            (None, Some(_)) if leads => (Some(Tone::Good), "leads and works".to_owned()),
            (None, Some(_)) => (None, "works".to_owned()),
        };
        let shards = worker.map_or(0, |it| it.shards);
        let served = self.snapshot.served_by(name).join(" ");
        let text = format!("{name:<12} {state:<34} {shards:>6}  {served}");
        Line { tone, text }
    }

    fn controller(&self, it: &Controller) -> Line {
        let worker = it.worker.as_deref().unwrap_or("nobody");
        let parents = format!("{}/{}", it.settled, it.parents);
        let text = format!(
            "{:<18} {:>5} {:>5}  {worker:<11} {:<14} {parents:>7} {:>8} {:>10}",
            it.name, it.shard, it.epoch, it.state, it.children, it.calls
        );
        let dead = self
            .replicas
            .iter()
            .any(|(name, dead)| name == worker && dead.is_some());
        let tone = match it.state.as_str() {
            _ if dead || it.worker.is_none() => Some(Tone::Bad),
            "Ready" if settled(it) => None,
            _ => Some(Tone::Odd),
        };
        Line { tone, text }
    }
}

fn line(tone: Tone, text: String) -> Line {
    Line {
        tone: Some(tone),
        text,
    }
}

fn plain(text: String) -> Line {
    Line { tone: None, text }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::snapshot::Worker;

    fn lines(snapshot: &Snapshot, replicas: &[(String, Option<Duration>)]) -> Vec<Line> {
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

    fn words(lines: &[Line], start: &str) -> Vec<String> {
        let line = lines.iter().find(|it| it.text.starts_with(start)).unwrap();
        line.text.split_whitespace().map(str::to_owned).collect()
    }

    fn teams() -> Controller {
        Controller {
            name: "acme-teams".to_owned(),
            shard: 7,
            epoch: 3,
            worker: Some("replica-1".to_owned()),
            state: "Ready".to_owned(),
            parents: 5,
            settled: 5,
            children: 25,
            calls: 11,
            ..Controller::default()
        }
    }

    #[test]
    fn the_board_names_leader_worker_shards_controllers_parents_and_calls() {
        let worker = Worker {
            shards: 512,
            ..Worker::default()
        };
        let snapshot = Snapshot {
            leader: Some("replica-1".to_owned()),
            workers: [("replica-1".to_owned(), worker)].into(),
            controllers: vec![teams()],
            ..Snapshot::default()
        };

        let lines = lines(&snapshot, &[("replica-1".to_owned(), None)]);

        let replica = ["replica-1", "leads", "and", "works", "512", "acme-teams"];
        assert_eq!(words(&lines, "replica-1"), replica);
        let controller = [
            "acme-teams",
            "7",
            "3",
            "replica-1",
            "Ready",
            "5/5",
            "25",
            "11",
        ];
        assert_eq!(words(&lines, "acme-teams"), controller);
        assert!(
            lines.contains(&plain("   8.0 s  replica-2 was killed".to_owned())),
            "{lines:#?}"
        );
    }

    #[test]
    fn a_killed_replica_is_shown_with_what_becomes_of_its_lease() {
        let dead = [("replica-2".to_owned(), Some(Duration::from_secs(2)))];
        let with = |standing| Snapshot {
            workers: [(
                "replica-2".to_owned(),
                Worker {
                    standing,
                    ..Worker::default()
                },
            )]
            .into(),
            ..Snapshot::default()
        };

        let before = lines(&with(Standing::Holds), &dead)[4].text.clone();
        let after = lines(&with(Standing::Fenced), &dead)[4].text.clone();

        assert!(
            before.contains("killed 2.0 s ago; its Lease runs out"),
            "{before}"
        );
        assert!(after.contains("killed 2.0 s ago; fenced"), "{after}");
    }

    #[test]
    fn a_controller_of_a_dead_worker_stands_out() {
        let snapshot = Snapshot {
            controllers: vec![teams()],
            ..Snapshot::default()
        };
        let tone = |dead| {
            let lines = lines(&snapshot, &[("replica-1".to_owned(), dead)]);
            lines
                .into_iter()
                .find(|it| it.text.starts_with("acme"))
                .unwrap()
                .tone
        };

        assert_eq!(tone(None), None);
        assert_eq!(tone(Some(Duration::ZERO)), Some(Tone::Bad));
    }
}
