//! A parent with two children at rest, for tests that bring a fault upon them.

use std::sync::Arc;

use anyhow::ensure;
use metashard_api::names::condition;
use metashard_testkit::hook::Answer;
use serde_json::{Value, json};

use super::{
    canary::{Canary, Watch},
    support::{
        CONFIG_MAP, ControllerBuilder, Stage, THING, as_told, config_map, data_of, eventually,
        version_of,
    },
};

/// Name of the parent.
pub(crate) const PARENT: &str = "parent";

/// A parent with the ConfigMaps `edited` and `steady`, at rest.
///
/// A fault comes together with an edit of the parent, which would change the first of them and must not be lost.
pub(crate) struct Scene {
    pub(crate) stage: Stage,
    pub(crate) parent: Value,
    /// The children before the fault.
    before: Vec<Value>,
    /// What the first child should hold.
    text: String,
    canary: Watch,
}

impl Scene {
    /// `claim`: a word for its names.
    pub(crate) async fn new(claim: &str) -> anyhow::Result<Self> {
        Self::with(claim, |controller| controller).await
    }

    /// The same with a controller changed in whatever way.
    pub(crate) async fn with(
        claim: &str,
        change: impl FnOnce(ControllerBuilder<'_>) -> ControllerBuilder<'_>,
    ) -> anyhow::Result<Self> {
        Self::on(Stage::new(claim).await?, &Canary::shared().await?, change).await
    }

    /// The same on any stage.
    pub(crate) async fn on(
        stage: Stage,
        canary: &Arc<Canary>,
        change: impl FnOnce(ControllerBuilder<'_>) -> ControllerBuilder<'_>,
    ) -> anyhow::Result<Self> {
        let controller = stage.controller().child(CONFIG_MAP, "InPlace");
        change(controller).apply().await?;
        stage
            .parent(THING, PARENT, json!({ "children": children("before") }))
            .await?;
        let children = stage.objects(CONFIG_MAP);
        children.appears("edited").await?;
        children.appears("steady").await?;
        stage.settle(THING, PARENT).await?;
        Ok(Self {
            parent: stage.objects(THING).get(PARENT).await?,
            before: children.list().await?,
            text: "before".to_owned(),
            stage,
            canary: canary.watch(),
        })
    }

    /// From now on the hook gives this answer; and the parent is edited. Returns once the hook has been asked again by
    /// itself.
    pub(crate) async fn fail(&mut self, answer: Answer) -> anyhow::Result<()> {
        self.stage.hook.answer_with(move |_| answer.clone());
        self.edit().await?;
        self.is_retried().await
    }

    /// Edits the parent, so that the first child should hold something else.
    pub(crate) async fn edit(&mut self) -> anyhow::Result<()> {
        self.text.push_str(", edited");
        let patch = json!({ "spec": { "children": children(&self.text) } });
        self.stage.objects(THING).patch(PARENT, patch).await?;
        Ok(())
    }

    /// Returns once the hook has been called three times more.
    pub(crate) async fn is_retried(&self) -> anyhow::Result<()> {
        self.stage.hook.forget();
        eventually("the hook to be asked again", async || {
            let count = self.stage.hook.count();
            ensure!(count >= 3, "it was asked {count} times");
            Ok(())
        })
        .await
    }

    /// An event of the parent and the conditions of its controller tell of the fault, with `text`.
    pub(crate) async fn is_told(&self, reason: &str, text: &str) -> anyhow::Result<()> {
        let event = self.stage.event(&self.parent, reason, text).await?;
        ensure!(event["type"] == "Warning", "{event:#}");
        for type_ in [condition::HOOKS_READY, condition::READY] {
            self.is_said(type_, text).await?;
        }
        Ok(())
    }

    /// A condition of the controller does not hold, and says why: with `text` and the parent's name.
    async fn is_said(&self, type_: &str, text: &str) -> anyhow::Result<()> {
        let parent = format!("Thing {}/{PARENT}", self.stage.namespace);
        eventually(&format!("{type_} to tell of {text:?}"), async || {
            let told = self.stage.condition(type_, "False").await?;
            let message = told["message"].as_str().unwrap_or_default();
            ensure!(
                message.contains(text) && message.contains(&parent),
                "{told:#}"
            );
            Ok(())
        })
        .await
    }

    /// Nothing of the children was written, made or deleted.
    pub(crate) async fn is_untouched(&self) -> anyhow::Result<()> {
        let now = self.stage.objects(CONFIG_MAP).list().await?;
        let versions = |all: &[Value]| all.iter().map(version_of).collect::<Vec<_>>();
        ensure!(
            versions(&now) == versions(&self.before),
            "the children are {now:#?} and were {:#?}",
            self.before
        );
        Ok(())
    }

    /// The fault ends: what was edited meanwhile comes true, nothing else happens, and nobody else has noticed anything.
    pub(crate) async fn heals(&mut self) -> anyhow::Result<()> {
        self.stage
            .hook
            .answer_with(|call| Answer::json(&as_told(&call.json())));
        self.has_caught_up().await?;
        self.stage.condition(condition::HOOKS_READY, "True").await?;
        self.stage.condition(condition::READY, "True").await?;
        self.canary.is_unharmed().await
    }

    /// The first child has come to hold what it should, and is the same object; the second was not touched.
    pub(crate) async fn has_caught_up(&mut self) -> anyhow::Result<()> {
        let all = self.stage.objects(CONFIG_MAP);
        let data = json!({ "text": self.text });
        let edited = all
            .becomes("edited", "to catch up", |it| data_of(it) == data)
            .await?;
        let now = vec![edited, all.get("steady").await?];
        let [(edited, _), steady] = [version_of(&now[0]), version_of(&now[1])];
        ensure!(
            version_of(&self.before[0]).0 == edited && version_of(&self.before[1]) == steady,
            "the children are {now:#?} and were {:#?}",
            self.before
        );
        self.before = now;
        Ok(())
    }
}

/// The children that the parent asks for, the first of them with `text`.
pub(crate) fn children(text: &str) -> Vec<Value> {
    vec![
        config_map("edited", json!({ "text": text })),
        config_map("steady", json!({ "text": "always" })),
    ]
}
