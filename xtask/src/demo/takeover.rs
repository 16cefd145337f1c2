//! Measures a take-over: how long until edits made at the moment of a worker's death are served.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::snapshot::Snapshot;

/// One worker's death, and what follows.
#[derive(Debug)]
pub(super) struct Takeover {
    /// Replica that was killed.
    pub(super) victim: String,
    /// Controllers that it served.
    pub(super) orphans: Vec<String>,
    start: Instant,
    /// By controller: the parent that was edited after the death, and its generation since.
    waiting: BTreeMap<String, (String, i64)>,
    /// By controller: when the edit was served.
    served: BTreeMap<String, Duration>,
}

impl Takeover {
    /// Begins to measure. `edits` are, by controller, a parent and the generation that its edit gave it.
    pub(super) fn new(
        victim: &str,
        orphans: Vec<String>,
        start: Instant,
        edits: BTreeMap<String, (String, i64)>,
    ) -> Self {
        Self {
            victim: victim.to_owned(),
            orphans,
            start,
            waiting: edits,
            served: BTreeMap::new(),
        }
    }

    /// Looks which edits have been served by now.
    pub(super) fn look(&mut self, snapshot: &Snapshot) {
        let now = self.start.elapsed();
        for controller in &snapshot.controllers {
            let Some((parent, generation)) = self.waiting.get(&controller.name) else {
                continue;
            };
            if controller
                .observed
                .get(parent)
                .is_some_and(|it| it >= generation)
            {
                self.waiting.remove(&controller.name);
                self.served.insert(controller.name.clone(), now);
            }
        }
    }

    /// Whether all edits have been served.
    pub(super) fn is_over(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Longest wait of the dead worker's controllers.
    pub(super) fn of_orphans(&self) -> Duration {
        self.longest(true)
    }

    /// Longest wait of the others, which should not notice.
    pub(super) fn of_others(&self) -> Duration {
        self.longest(false)
    }

    fn longest(&self, orphaned: bool) -> Duration {
        let chosen = self
            .served
            .iter()
            .filter(|(name, _)| self.orphans.contains(name) == orphaned);
        chosen.map(|(_, time)| *time).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::snapshot::Controller;

    fn snapshot(observed: [(&str, i64); 2]) -> Snapshot {
        let controllers = observed.map(|(name, generation)| Controller {
            name: name.to_owned(),
            observed: BTreeMap::from([("p".to_owned(), generation)]),
            ..Controller::default()
        });
        Snapshot {
            controllers: controllers.into(),
            ..Snapshot::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_edit_counts_from_the_death_until_it_is_first_seen_served() {
        let edits = ["mine", "other"].map(|it| (it.to_owned(), ("p".to_owned(), 2)));
        let mut takeover = Takeover::new(
            "replica-2",
            vec!["mine".to_owned()],
            Instant::now(),
            edits.into(),
        );

        tokio::time::advance(Duration::from_millis(100)).await;
        takeover.look(&snapshot([("mine", 1), ("other", 2)]));
        let half = takeover.is_over();
        tokio::time::advance(Duration::from_secs(3)).await;
        takeover.look(&snapshot([("mine", 2), ("other", 3)]));

        assert!(!half && takeover.is_over());
        assert_eq!(takeover.of_orphans(), Duration::from_millis(3100));
        assert_eq!(takeover.of_others(), Duration::from_millis(100));
    }
}
