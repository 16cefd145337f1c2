//! What Metacontroller made and left, and that nobody else wrote while it was there.

use anyhow::ensure;
use metashard_api::names::{ANNOTATION_DECORATOR, ANNOTATION_LAST_APPLIED};
use serde_json::{Value, json};

use super::scene::Scene;
use crate::support::{
    CONFIG_MAP, CONTROLLER, DECORATOR, DecoratorBuilder, Kind, STAGE, THING, config_map,
};

impl Scene {
    /// A parent and its child, as Metacontroller made it for the controller `of` of this kind.
    pub(super) async fn left_by_metacontroller(
        &self,
        kind: Kind,
        of: &str,
        name: &str,
    ) -> anyhow::Result<()> {
        let parent = self.parent(of, name);
        let parent = self.stage.objects(THING).create(parent).await?;
        let uid = &parent["metadata"]["uid"];
        let mut child = config_map(name, json!({ "k": "v" }));
        child["metadata"]["namespace"] = self.ops().into();
        if kind.kind == DECORATOR.kind {
            let mark = json!({ ANNOTATION_DECORATOR: self.full_name(of) });
            child["metadata"]["annotations"] = mark;
        } else {
            let status = json!({ "observedGeneration": 1 });
            self.stage.objects(THING).patch_status(name, status).await?;
            child["metadata"]["labels"] = json!({ "controller-uid": uid });
        }
        let record = child.to_string();
        child["metadata"]["annotations"][ANNOTATION_LAST_APPLIED] = record.into();
        child["metadata"]["ownerReferences"] = json!([{
            "apiVersion": THING.api_version, "kind": "Thing", "name": name,
            "uid": uid, "controller": true, "blockOwnerDeletion": true,
        }]);
        self.stage.objects(CONFIG_MAP).create(child).await?;
        Ok(())
    }

    fn parent(&self, of: &str, name: &str) -> Value {
        let labels = json!({ STAGE: self.ops(), "of": of });
        json!({ "metadata": { "name": name, "labels": labels } })
    }

    fn full_name(&self, name: &str) -> String {
        format!("{}-{name}", self.ops())
    }

    /// A controller of the parents that are `of` its name, and a parent of it.
    pub(super) async fn controller(&self, name: &str, path: &str) -> anyhow::Result<String> {
        let full = self.controller_of(CONTROLLER, name, path).await?;
        let parent = self.parent(name, name);
        self.stage.objects(THING).create(parent).await?;
        Ok(full)
    }

    /// A controller of this kind of the parents that are `of` its name.
    pub(super) async fn controller_of(
        &self,
        kind: Kind,
        name: &str,
        path: &str,
    ) -> anyhow::Result<String> {
        let full = self.full_name(name);
        let url = self.stage.hook.url(path);
        let made = |it: &mut Value, parents: &str| {
            it["metadata"]["name"] = full.as_str().into();
            it["spec"]["hooks"]["sync"]["webhook"]["url"] = url.into();
            if let Some(parents) = it.pointer_mut(parents) {
                parents["labelSelector"]["matchLabels"]["of"] = name.into();
            }
        };
        if kind.kind == DECORATOR.kind {
            DecoratorBuilder::new(&self.stage, name)
                .target(THING)
                .attaching(CONFIG_MAP, "RollingInPlace")
                .edit(|it| made(it, "/spec/resources/0"))
                .apply()
                .await?;
        } else {
            let builder = self.stage.controller().child(CONFIG_MAP, "InPlace");
            let builder = builder.edit(|it| made(it, "/spec/parentResource"));
            builder.apply().await?;
        }
        Ok(full)
    }

    /// By the API server's own log no child was written by metashard while Metacontroller had a Pod. Returns how many were.
    pub(super) fn never_were_both_at_work(&self) -> anyhow::Result<usize> {
        let events = self.stage.shared.cluster.audit_events()?;
        let mut pods = 0;
        let mut written = 0;
        for event in &events[self.audited..] {
            let object = &event["objectRef"];
            let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
            if object["namespace"] != self.ops() || !(200..300).contains(&code) {
                continue;
            }
            let agent = event["userAgent"].as_str().unwrap_or_default();
            let verb = event["verb"].as_str().unwrap_or_default();
            let is_write = ["create", "update", "patch", "delete"].contains(&verb);
            match object["resource"].as_str() {
                Some("pods") => match verb {
                    "create" => pods += 1,
                    "delete" => pods -= 1,
                    _ => {}
                },
                Some("configmaps" | "things") if is_write && agent.contains("epoch") => {
                    ensure!(pods == 0, "both at work: {event:#}");
                    written += 1;
                }
                _ => {}
            }
        }
        Ok(written)
    }
}
