//! `shards move` and `shards unpin`: pins of a Placement.

use std::{collections::BTreeSet, sync::Arc};

use metashard_api::{
    id::{ControllerUid, ShardId},
    placement::{Pin, PlacementSpec},
    shard_map::ShardMapSpec,
};
use metashard_fleet::shard::Layout;
use metashard_reconcile::object::Object;

use crate::{
    Found,
    argv::shards::{Move, Unpin},
    cluster::Cluster,
    commands::{self, placement::Desk},
    fleet::Fleet,
    output::Output,
};

/// What a pin is about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Subject {
    /// As it stands in a pin.
    shard: Option<u16>,
    controller: Option<String>,
    /// The shards that it means.
    shards: BTreeSet<ShardId>,
}

pub(in crate::commands) async fn run(flags: &Move, output: &mut Output) -> anyhow::Result<Found> {
    let writing = &flags.asked.writing;
    let cluster = Cluster::connect(&writing.live).await?;
    let fleet = Fleet::one(&cluster, &writing.asking).await?;
    let desk = Desk::open(&cluster, &fleet)?;
    let replica = fleet.named(&flags.replica)?.name.clone();
    let controllers = cluster.controllers().await?;
    let subject = Subject::of(&flags.what, fleet.map(), &controllers)?;
    let pin = |spec: &mut PlacementSpec| subject.pin(spec, &replica, fleet.map(), &controllers);
    let what = format!("{} pinned to replica {replica}", subject.told());
    let outcome = desk.change(writing.dry_run, pin).await?;
    outcome.tell(&what, output)?;
    if !flags.asked.wait || writing.dry_run {
        return Ok(outcome.found());
    }
    desk.wait(flags.asked.timeout, output, async |_| {
        let map = fleet.map_now(&cluster).await?;
        Ok(subject.elsewhere(&map, &replica))
    })
    .await
}

pub(in crate::commands) async fn unpin(
    flags: &Unpin,
    output: &mut Output,
) -> anyhow::Result<Found> {
    let writing = &flags.writing;
    let cluster = Cluster::connect(&writing.live).await?;
    let fleet = Fleet::one(&cluster, &writing.asking).await?;
    let desk = Desk::open(&cluster, &fleet)?;
    let word = flags.what.as_str();
    let is_it = |pin: &Pin| match (pin.shard, &pin.controller) {
        (Some(shard), _) => shard.to_string() == word,
        (None, Some(controller)) => controller == word || controller == commands::bare(word),
        (None, None) => false,
    };
    let seen = desk.read().await?;
    if !seen.spec.pins.iter().any(is_it) {
        // A controller may have been pinned by its uid; and a word may be wrong.
        let controllers = cluster.controllers().await?;
        Subject::of(word, fleet.map(), &controllers)?;
    }
    let outcome = desk.change(writing.dry_run, |spec| {
        spec.pins.retain(|pin| !is_it(pin));
        Ok(())
    });
    let outcome = outcome.await?;
    outcome.tell(&format!("{word} unpinned"), output)?;
    Ok(outcome.found())
}

impl Subject {
    /// A number is a shard, anything else a controller.
    fn of(word: &str, map: &ShardMapSpec, controllers: &[Arc<Object>]) -> anyhow::Result<Self> {
        if word.bytes().all(|it| it.is_ascii_digit()) && !word.is_empty() {
            let count = map.shard_count;
            let shard = word.parse().ok().filter(|it| *it < count);
            let Some(shard) = shard else {
                anyhow::bail!("there is no shard {word}: the map has {count}, from 0 on");
            };
            return Ok(Self {
                shard: Some(shard),
                controller: None,
                shards: BTreeSet::from([ShardId(shard)]),
            });
        }
        let called = |it: &&Arc<Object>| commands::is_called(it, word);
        let its: Vec<&Arc<Object>> = controllers.iter().filter(called).collect();
        let Some(first) = its.first() else {
            return Err(commands::no_controller(word, controllers));
        };
        let namesakes = controllers.iter().filter(|it| it.name() == first.name());
        // Both kinds may have one of a name: which is meant only the uid says.
        let name = if its.len() < namesakes.count() {
            first.uid()
        } else {
            first.name()
        };
        let shards = its.iter().flat_map(|it| homes(map, it.uid()));
        Ok(Self {
            shard: None,
            controller: Some(name.to_owned()),
            shards: shards.collect(),
        })
    }

    /// Puts the pin in, in place of another one of the same subject.
    fn pin(
        &self,
        spec: &mut PlacementSpec,
        replica: &str,
        map: &ShardMapSpec,
        controllers: &[Arc<Object>],
    ) -> anyhow::Result<()> {
        anyhow::ensure!(
            !spec.cordoned.iter().any(|it| it == replica),
            "replica {replica} is cordoned: `metashardctl uncordon {replica}` first"
        );
        let is_same = |it: &Pin| it.shard == self.shard && it.controller == self.controller;
        for other in spec.pins.iter().filter(|it| !is_same(it)) {
            let shards = shards_pinned_by(other, map, controllers);
            let common = shards.intersection(&self.shards).next();
            if let Some(shard) = common
                && other.replica != replica
            {
                let named = other.controller.clone();
                let named = named.unwrap_or_else(|| shard.to_string());
                anyhow::bail!(
                    "shard {shard} is pinned to replica {} by the pin of {named}: `metashardctl shards unpin {named}` first",
                    other.replica
                );
            }
        }
        let pin = Pin {
            shard: self.shard,
            controller: self.controller.clone(),
            replica: replica.to_owned(),
        };
        match spec.pins.iter_mut().find(|it| is_same(it)) {
            Some(old) => *old = pin,
            None => spec.pins.push(pin),
        }
        Ok(())
    }

    fn told(&self) -> String {
        match (self.shard, &self.controller) {
            (Some(shard), _) => format!("shard {shard}"),
            (None, Some(controller)) => {
                let shards: Vec<_> = self.shards.iter().map(ToString::to_string).collect();
                format!("controller {controller} (shard {})", shards.join(", "))
            }
            (None, None) => String::new(),
        }
    }

    /// What is not with `replica` yet, in words.
    fn elsewhere(&self, map: &ShardMapSpec, replica: &str) -> Option<String> {
        let owner = |shard| map.owner(shard).map_or("nobody", |(it, _)| &it.replica);
        let mut others = self.shards.iter().map(|it| (*it, owner(*it)));
        let (shard, owner) = others.find(|(_, owner)| *owner != replica)?;
        Some(format!("shard {shard} is with {owner}"))
    }
}

fn homes(map: &ShardMapSpec, uid: &str) -> BTreeSet<ShardId> {
    Layout::of(map).shards(&ControllerUid::new(uid))
}

/// The shards that a pin is about.
fn shards_pinned_by(
    pin: &Pin,
    map: &ShardMapSpec,
    controllers: &[Arc<Object>],
) -> BTreeSet<ShardId> {
    match (pin.shard, &pin.controller) {
        (Some(shard), _) => BTreeSet::from([ShardId(shard)]),
        (None, Some(word)) => {
            let its = controllers.iter();
            let its = its.filter(|it| it.name() == word || it.uid() == word);
            its.flat_map(|it| homes(map, it.uid())).collect()
        }
        (None, None) => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map() -> ShardMapSpec {
        ShardMapSpec {
            shard_count: 1024,
            ..ShardMapSpec::default()
        }
    }

    fn controller(kind: &str, name: &str) -> Arc<Object> {
        let object = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": kind,
            "metadata": { "name": name, "uid": format!("uid-{kind}-{name}"), "resourceVersion": "1" },
        });
        Arc::new(Object::parse(object.to_string()).unwrap())
    }

    fn all() -> Vec<Arc<Object>> {
        vec![
            controller("CompositeController", "sites"),
            controller("CompositeController", "both"),
            controller("DecoratorController", "both"),
        ]
    }

    fn of(word: &str) -> anyhow::Result<Subject> {
        Subject::of(word, &map(), &all())
    }

    #[test]
    fn number_is_a_shard_and_a_word_a_controller() {
        assert_eq!(of("17").unwrap().shards, BTreeSet::from([ShardId(17)]));
        let sites = of("sites").unwrap();
        assert_eq!(sites.controller.as_deref(), Some("sites"));
        assert_eq!(sites.shards.len(), 1);

        let no_shard = of("1024").unwrap_err().to_string();
        assert!(no_shard.contains("the map has 1024"), "{no_shard}");
        let typo = of("sitse").unwrap_err().to_string();
        assert!(typo.contains("did you mean sites?"), "{typo}");
    }

    #[test]
    fn one_of_two_controllers_of_a_name_is_pinned_by_its_uid() {
        let one = of("decoratorcontroller/both").unwrap();
        assert_eq!(
            one.controller.as_deref(),
            Some("uid-DecoratorController-both")
        );
        assert_eq!(of("both").unwrap().controller.as_deref(), Some("both"));
    }

    #[test]
    fn new_pin_replaces_that_of_its_subject_and_contradicts_no_other() {
        let mut spec = PlacementSpec::default();
        let pin = |word: &str, replica: &str, spec: &mut PlacementSpec| {
            of(word).unwrap().pin(spec, replica, &map(), &all())
        };
        pin("17", "a", &mut spec).unwrap();
        pin("sites", "a", &mut spec).unwrap();
        pin("17", "b", &mut spec).unwrap();
        assert_eq!(spec.pins.len(), 2);
        assert_eq!(spec.pins[0].replica, "b");

        let home = of("sites").unwrap().shards.first().unwrap().to_string();
        let error = pin(&home, "b", &mut spec).unwrap_err().to_string();
        assert!(error.contains("shards unpin sites"), "{error}");
        pin(&home, "a", &mut spec).unwrap();
        spec.cordoned.push("c".to_owned());
        let error = pin("18", "c", &mut spec).unwrap_err().to_string();
        assert!(error.contains("uncordon c"), "{error}");
    }

    #[test]
    fn what_is_elsewhere_is_named() {
        let subject = of("17").unwrap();

        let told = subject.elsewhere(&map(), "a").unwrap();

        assert_eq!(told, "shard 17 is with nobody");
    }
}
