//! A parent whose children are moved one at a time, and what happens to such children besides.

use std::sync::Arc;

use metashard_reconcile::{
    object::Object,
    sync::{Candidates, Outcome, Verdict},
    write::Purpose,
};
use serde_json::{Value, json};

use crate::world::{Bench, FOO, REVISION, World, parse, rule, spec};

pub(crate) const CHILD: &str = "deployments";

/// A bench of one parent `p`, whose `spec.size` and `spec.image` say what its children are: Deployments `c-00`, `c-01` and so on.
pub(crate) struct Stage {
    pub(crate) bench: Bench,
}

/// What a cache of ControllerRevisions hands to a sync of this parent.
pub(crate) fn revisions(world: &World, parent: &Object) -> Candidates {
    let is_concerned = |it: &Arc<Object>| {
        it.controller_owner()
            .is_none_or(|it| it.uid == parent.uid())
    };
    let all = world.all(REVISION).map(parse);
    Candidates::from(all.filter(is_concerned).collect::<Vec<_>>())
}

/// A child rule that moves Deployments one at a time, each waiting for the condition Available of the one before.
pub(crate) fn rolling(method: &str) -> Value {
    let mut rule = rule("apps/v1", CHILD, method);
    let check = json!({"conditions": [{"type": "Available", "status": "True"}]});
    rule["updateStrategy"]["statusChecks"] = check;
    rule
}

pub(crate) fn rolling_spec(method: &str) -> Value {
    let mut spec = spec();
    spec["childResources"] = json!([rolling(method)]);
    spec
}

pub(crate) fn name(index: usize) -> String {
    format!("c-{index:02}")
}

pub(crate) fn deployment(name: &str, image: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"image": image}})
}

/// What the hook answers: as many children as the parent's size.
pub(crate) fn sized(request: &Value) -> Value {
    let spec = &request["parent"]["spec"];
    let size = usize::try_from(spec["size"].as_u64().unwrap_or(0)).unwrap();
    let children: Vec<_> = (0..size)
        .map(|index| deployment(&name(index), &spec["image"]))
        .collect();
    json!({"children": children, "status": {"size": size}})
}

impl Stage {
    /// With this many children, all of them there and well.
    pub(crate) fn new(spec: &Value, size: usize) -> Self {
        let mut stage = Self::unsynced(spec, size);
        stage.settle();
        stage
    }

    /// The same, with children that are applied by the server.
    pub(crate) fn applying(spec: &Value, size: usize) -> Self {
        let mut stage = Self::on(Bench::applying(spec, &[]), size);
        stage.settle();
        stage
    }

    pub(crate) fn unsynced(spec: &Value, size: usize) -> Self {
        Self::on(Bench::new(spec), size)
    }

    fn on(mut bench: Bench, size: usize) -> Self {
        bench.answers = Some(Box::new(sized));
        let mut stage = Self { bench };
        stage.edit("size", &json!(size));
        stage.edit("image", &json!("v1"));
        stage
    }

    /// Changes a field of the parent's spec.
    pub(crate) fn edit(&mut self, field: &str, value: &Value) {
        self.bench
            .world
            .edit(FOO, "p", |parent| parent["spec"][field] = value.clone());
    }

    pub(crate) fn pass(&mut self) -> Outcome {
        self.bench.pass()
    }

    /// Heals and syncs until nothing changes.
    pub(crate) fn settle(&mut self) {
        for _ in 0..200 {
            self.heal_all();
            let outcome = self.pass();
            assert!(
                matches!(
                    outcome.verdict,
                    Verdict::Changed | Verdict::Unchanged | Verdict::Stale
                ),
                "{outcome:?}"
            );
            if outcome.verdict == Verdict::Unchanged {
                return;
            }
        }
        panic!("it comes to rest");
    }

    /// The names of the children that the last pass changed or took away to create anew.
    pub(crate) fn disturbed(&self) -> Vec<String> {
        let writes = self.bench.writes.iter();
        writes
            .filter(|it| matches!(it.purpose, Purpose::UpdateChild | Purpose::RecreateChild))
            .map(|it| it.name.to_string())
            .collect()
    }

    /// Makes a child well, if it is there.
    pub(crate) fn heal(&mut self, child: &str) {
        self.report(child, "True");
    }

    pub(crate) fn heal_all(&mut self) {
        for child in self.children() {
            self.heal(&child);
        }
    }

    /// Has the controller of a child report of it, as it is.
    pub(crate) fn report(&mut self, child: &str, available: &str) {
        if self.bench.world.get(CHILD, "ns1", child).is_none() || self.shows(child, available) {
            return;
        }
        self.bench.world.edit(CHILD, child, |child| {
            let generation = child["metadata"]["generation"].clone();
            let condition = json!({"type": "Available", "status": available, "reason": "R"});
            child["status"] = json!({"observedGeneration": generation, "conditions": [condition]});
        });
    }

    fn shows(&self, child: &str, available: &str) -> bool {
        let child = self.bench.world.get(CHILD, "ns1", child).unwrap();
        child["status"]["observedGeneration"] == child["metadata"]["generation"]
            && child["status"]["conditions"][0]["status"] == available
    }

    /// Whether a child is there and has reported that it is well, as it is now.
    pub(crate) fn is_well(&self, child: &str) -> bool {
        self.bench.world.get(CHILD, "ns1", child).is_some() && self.shows(child, "True")
    }

    pub(crate) fn children(&self) -> Vec<String> {
        let all = self.bench.world.all(CHILD);
        all.map(|it| it["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) fn image(&self, child: &str) -> Value {
        let child = self.bench.world.get(CHILD, "ns1", child);
        child.map_or(Value::Null, |it| it["spec"]["image"].clone())
    }

    /// How many children have this image.
    pub(crate) fn count(&self, image: &str) -> usize {
        let all = self.bench.world.all(CHILD);
        all.filter(|it| it["spec"]["image"] == image).count()
    }

    pub(crate) fn revisions(&self) -> Vec<Value> {
        self.bench.world.all(REVISION).cloned().collect()
    }

    /// Reason and message of the parent's condition `Updated`.
    pub(crate) fn updated(&self) -> (String, String) {
        let parent = self.bench.world.get(FOO, "ns1", "p").unwrap();
        let conditions = parent["status"]["conditions"].as_array().unwrap();
        let found = conditions
            .iter()
            .find(|it| it["type"] == "Updated")
            .unwrap();
        let text = |field: &str| found[field].as_str().unwrap().to_owned();
        let is_true = found["status"] == "True";
        assert_eq!(is_true, found["reason"] == "OnLatestRevision", "{found}");
        (text("reason"), text("message"))
    }
}
