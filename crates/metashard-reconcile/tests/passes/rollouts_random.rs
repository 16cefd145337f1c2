//! What holds of roll-outs whatever happens meanwhile.

use std::collections::BTreeSet;

use metashard_reconcile::{memory::Memory, write::Purpose};
use proptest::prelude::*;
use serde_json::json;

use crate::{
    rolling::{CHILD, Stage, name, rolling_spec},
    world::REVISION,
};

const MOST: usize = 6;

/// What may happen between two syncs.
#[derive(Debug, Clone)]
enum Happening {
    Sync,
    /// The parent asks for another image, maybe one from before.
    Image(usize),
    Size(usize),
    /// A child becomes well.
    Heal(usize),
    HealAll,
    /// Somebody deletes a child.
    Delete(usize),
    /// The worker is killed.
    Forget,
    /// Somebody deletes all revisions.
    LoseRevisions,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        12 => Just(Happening::Sync),
        3 => (0..3usize).prop_map(Happening::Image),
        2 => (1..=MOST).prop_map(Happening::Size),
        5 => (0..MOST).prop_map(Happening::Heal),
        5 => Just(Happening::HealAll),
        2 => (0..MOST).prop_map(Happening::Delete),
        2 => Just(Happening::Forget),
        1 => Just(Happening::LoseRevisions),
    ]
}

/// Children that we took out of service, and that are not back and well.
#[derive(Debug, Default)]
struct Harm(BTreeSet<String>);

impl Harm {
    /// Takes in what the last pass did. `well`: the children that were well before; the others lost nothing by it.
    fn synced(&mut self, stage: &Stage, well: &[String]) {
        for write in &stage.bench.writes {
            if write.purpose == Purpose::DeleteChild {
                self.0.remove(&*write.name);
            }
        }
        let disturbed = stage.disturbed().into_iter();
        self.0.extend(disturbed.filter(|it| well.contains(it)));
    }

    fn healed(&mut self, stage: &Stage) {
        self.0.retain(|child| !stage.is_well(child));
    }
}

fn happen(stage: &mut Stage, harm: &mut Harm, what: &Happening) {
    let world = &mut stage.bench.world;
    match what {
        Happening::Sync => {
            let mut well = stage.children();
            well.retain(|child| stage.is_well(child));
            stage.pass();
            harm.synced(stage, &well);
        }
        Happening::Image(image) => stage.edit("image", &json!(format!("v{image}"))),
        Happening::Size(size) => {
            stage.edit("size", &json!(size));
            // Nobody misses a child that should not exist.
            harm.0
                .retain(|child| (0..*size).any(|it| name(it) == *child));
        }
        Happening::Heal(index) => stage.heal(&name(*index)),
        Happening::HealAll => stage.heal_all(),
        Happening::Delete(index) if world.get(CHILD, "ns1", &name(*index)).is_some() => {
            world.delete(CHILD, &name(*index));
            harm.0.remove(&name(*index));
        }
        Happening::Delete(_) => {}
        Happening::Forget => stage.bench.memory = Memory::default(),
        Happening::LoseRevisions => {
            for revision in stage.revisions() {
                let name = revision["metadata"]["name"].as_str().unwrap();
                stage.bench.world.delete(REVISION, name);
            }
        }
    }
    harm.healed(stage);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn at_most_one_child_is_out_of_service_because_of_us_and_every_roll_out_ends(
        recreate in any::<bool>(),
        size in 1..=MOST,
        happenings in prop::collection::vec(happening(), 0..60),
    ) {
        let method = if recreate { "RollingRecreate" } else { "RollingInPlace" };
        let mut stage = Stage::new(&rolling_spec(method), size);
        let mut harm = Harm::default();
        for what in &happenings {
            happen(&mut stage, &mut harm, what);
            prop_assert!(harm.0.len() <= 1, "{harm:?} after {what:?}");
        }

        stage.settle();

        prop_assert_eq!(stage.updated().0, "OnLatestRevision");
        prop_assert_eq!(stage.revisions().len(), 1);
        let parent = stage.bench.world.get("foos", "ns1", "p").unwrap();
        let image = parent["spec"]["image"].as_str().unwrap();
        prop_assert_eq!(stage.count(image), stage.children().len());
        prop_assert_eq!(json!(stage.children().len()), parent["spec"]["size"].clone());
    }
}
