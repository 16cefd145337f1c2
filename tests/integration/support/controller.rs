//! Controllers of a stage.

use serde_json::{Value, json};

use super::{CONTROLLER, Kind, STAGE, Stage, THING};

/// A CompositeController in the making.
pub(crate) struct ControllerBuilder<'a> {
    stage: &'a Stage,
    object: Value,
}

impl<'a> ControllerBuilder<'a> {
    pub(super) fn new(stage: &'a Stage) -> Self {
        let object = json!({
            "metadata": { "name": stage.namespace },
            "spec": {
                "generateSelector": true,
                "parentResource": { "labelSelector": { "matchLabels": { STAGE: stage.namespace } } },
                "childResources": [],
                "hooks": { "sync": { "webhook": { "url": stage.hook.url("/sync") } } },
            },
        });
        Self { stage, object }.parent(THING)
    }

    /// Of parents of this kind.
    pub(crate) fn parent(self, kind: Kind) -> Self {
        self.edit(|object| {
            let parent = &mut object["spec"]["parentResource"];
            parent["apiVersion"] = kind.api_version.into();
            parent["resource"] = kind.plural.into();
        })
    }

    /// Further with children of this kind, updated by this method.
    pub(crate) fn child(self, kind: Kind, method: &str) -> Self {
        self.edit(|object| {
            let rule = json!({
                "apiVersion": kind.api_version,
                "resource": kind.plural,
                "updateStrategy": { "method": method },
            });
            if let Value::Array(rules) = &mut object["spec"]["childResources"] {
                rules.push(rule);
            }
        })
    }

    /// Further with a finalize hook, `/finalize` of the stage's hook.
    pub(crate) fn finalize(self) -> Self {
        let url = self.stage.hook.url("/finalize");
        self.edit(|object| {
            object["spec"]["hooks"]["finalize"] = json!({ "webhook": { "url": url } });
        })
    }

    /// Whose children are those that the parent's own selector selects.
    pub(crate) fn with_selectors_of_parents(self) -> Self {
        self.edit(|object| object["spec"]["generateSelector"] = false.into())
    }

    /// Of the stage that it is made on.
    pub(super) fn namespace(&self) -> String {
        self.stage.namespace.clone()
    }

    /// Changed in whatever way.
    pub(crate) fn edit(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.object);
        self
    }

    /// Creates it, and returns it as created.
    pub(crate) async fn apply(self) -> anyhow::Result<Value> {
        self.stage.objects(CONTROLLER).create(self.object).await
    }
}
