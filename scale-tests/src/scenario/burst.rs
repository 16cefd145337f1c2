//! All parents edited at once, and as many created at once, again and again: latency, and time until all is settled.

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use metashard_testkit::wait::eventually;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{finish, start};
use crate::{
    bed::{Bed, WITHIN},
    edits::Edits,
    flags::Settings,
    objects,
    outcome::{Kind, Outcome},
    talk,
};

const EDITED: &str = "all edited at once";
const CREATED: &str = "as many created at once";

/// Label of a parent that was created later: in which round.
const ROUND: &str = "round";

/// Bursts under way.
struct Bursts {
    bed: Bed,
    edits: Edits,
    /// How many there were of each kind.
    round: usize,
    /// By kind and what it is of.
    times: BTreeMap<(&'static str, &'static str), Vec<Duration>>,
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<Outcome> {
    let weights = vec![settings.parents; settings.controllers];
    let bed = start(settings, &weights).await?;
    let length = bed.settings.length;
    let mut bursts = Bursts {
        bed,
        edits: Edits::none(),
        round: 0,
        times: BTreeMap::new(),
    };
    let begin = Instant::now();
    let bar = talk::bar(usize::try_from(length.as_secs())?, "bursts");
    while begin.elapsed() < length {
        bursts.round += 1;
        bursts.edit_all().await?;
        bursts.create_as_many().await?;
        bar.set_position(begin.elapsed().as_secs());
    }
    bar.finish_and_clear();
    let mut outcome = Outcome::default();
    for ((name, what), times) in bursts.times {
        outcome.kinds.push(Kind {
            name: name.to_owned(),
            what,
            times,
            bound: None,
        });
    }
    let Bursts { bed, edits, .. } = bursts;
    finish(bed, edits, &mut outcome, begin.elapsed()).await?;
    Ok(outcome)
}

impl Bursts {
    /// Edits every parent that was there at the start.
    async fn edit_all(&mut self) -> anyhow::Result<()> {
        let names: Vec<String> = self
            .numbers(0)
            .map(|(c, p)| objects::parent_name(c, p))
            .collect();
        let at = Instant::now();
        self.edits.at_once(&self.bed.things(), &names).await;
        self.settle(EDITED, at, &names, &format!("!{ROUND}")).await
    }

    /// Creates as many parents as there were at the start.
    async fn create_as_many(&mut self) -> anyhow::Result<()> {
        let numbers: Vec<(usize, usize)> = self.numbers(self.round).collect();
        let names: Vec<String> = numbers
            .iter()
            .map(|(c, p)| objects::parent_name(*c, *p))
            .collect();
        let round = self.round.to_string();
        let parents: Vec<Value> = numbers
            .iter()
            .map(|(controller, number)| {
                let mut parent = objects::parent(*controller, *number);
                parent["spec"]["value"] = "1".into();
                parent["metadata"]["labels"][ROUND] = round.as_str().into();
                parent
            })
            .collect();
        let at = Instant::now();
        self.edits.create(&names);
        self.bed.create_all(&parents).await?;
        self.settle(CREATED, at, &names, &format!("{ROUND}={round}"))
            .await
    }

    /// Controller and number of each parent of a round.
    fn numbers(&self, round: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (controllers, parents) = (self.bed.settings.controllers, self.bed.settings.parents);
        let begin = round * parents;
        (0..controllers)
            .flat_map(move |it| (begin..begin + parents).map(move |number| (it, number)))
    }

    /// Waits until hooks have seen all, and until every status shows it.
    async fn settle(
        &mut self,
        kind: &'static str,
        at: Instant,
        names: &[String],
        selector: &str,
    ) -> anyhow::Result<()> {
        self.add(kind, "all sent", at);
        let wanted = self.edits.last();
        eventually(WITHIN, "every hook to be called", async || {
            sleep(Duration::from_millis(20)).await;
            self.bed.take_calls()?;
            let seen = &self.bed.record.values;
            let is_seen = |name: &&String| {
                let last = seen.get(*name).and_then(|values| values.last());
                last.map(|(_, value)| *value) >= wanted.get(*name).copied()
            };
            let n_seen = names.iter().filter(is_seen).count();
            ensure!(
                n_seen == names.len(),
                "{n_seen} of {} were seen",
                names.len()
            );
            Ok(())
        })
        .await?;
        self.add(kind, "all hooks called", at);
        self.bed.are_settled(&self.edits, selector).await?;
        self.add(kind, "all settled", at);
        Ok(())
    }

    fn add(&mut self, kind: &'static str, what: &'static str, since: Instant) {
        let times = self.times.entry((kind, what)).or_default();
        times.push(since.elapsed());
    }
}
