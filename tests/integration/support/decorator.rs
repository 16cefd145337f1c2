//! Decorators of a stage.

use serde_json::{Value, json};

use super::{DECORATOR, Kind, Objects, STAGE, Stage};

/// A DecoratorController in the making.
pub(crate) struct DecoratorBuilder<'a> {
    stage: &'a Stage,
    path: &'a str,
    object: Value,
}

impl<'a> DecoratorBuilder<'a> {
    /// One that calls `path` of the stage's hook, and is named after the stage and the path.
    pub(crate) fn new(stage: &'a Stage, path: &'a str) -> Self {
        let object = json!({
            "metadata": { "name": format!("{}-{path}", stage.namespace) },
            "spec": {
                "resources": [],
                "attachments": [],
                "hooks": { "sync": { "webhook": { "url": stage.hook.url(&format!("/{path}")) } } },
            },
        });
        Self {
            stage,
            path,
            object,
        }
    }

    /// Further of objects of this kind that are labelled for the stage.
    pub(crate) fn target(self, kind: Kind) -> Self {
        let rule = json!({
            "apiVersion": kind.api_version,
            "resource": kind.plural,
            "labelSelector": { "matchLabels": { STAGE: self.stage.namespace } },
        });
        self.push("resources", rule)
    }

    /// Further with attachments of this kind, updated by this method.
    pub(crate) fn attaching(self, kind: Kind, method: &str) -> Self {
        let rule = json!({
            "apiVersion": kind.api_version,
            "resource": kind.plural,
            "updateStrategy": { "method": method },
        });
        self.push("attachments", rule)
    }

    /// Further with a finalize hook on the same path.
    pub(crate) fn finalize(self) -> Self {
        let url = self.stage.hook.url(&format!("/{}", self.path));
        self.edit(|object| {
            object["spec"]["hooks"]["finalize"] = json!({ "webhook": { "url": url } });
        })
    }

    /// Changed in whatever way.
    pub(crate) fn edit(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.object);
        self
    }

    /// Creates it, and returns it as created.
    pub(crate) async fn apply(self) -> anyhow::Result<Value> {
        self.stage.objects(DECORATOR).create(self.object).await
    }

    fn push(self, list: &str, rule: Value) -> Self {
        self.edit(|object| {
            if let Value::Array(rules) = &mut object["spec"][list] {
                rules.push(rule);
            }
        })
    }
}

/// Tells a target what its decorator is to be answered, by an annotation.
pub(crate) async fn want(
    objects: &Objects,
    name: &str,
    annotation: &str,
    answer: &Value,
) -> anyhow::Result<Value> {
    let patch = json!({ "metadata": { "annotations": { annotation: answer.to_string() } } });
    objects.patch(name, patch).await
}
