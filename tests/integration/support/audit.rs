//! What replicas asked the API server about the objects of one stage, by its audit log.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Stage;

const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

impl Stage {
    /// What replicas asked the API server in this stage's namespace, as `verb resource` or `verb resource/subresource`,
    /// in order, with the names of verbs that are in `verbs`; events left out.
    pub(crate) fn requests_of_replicas(&self, verbs: &[&str]) -> anyhow::Result<Vec<String>> {
        self.requests_about(verbs, |of| of["namespace"] == self.namespace.as_str())
    }

    /// What replicas wrote in this stage's namespace, as [`Self::requests_of_replicas`].
    pub(crate) fn writes(&self) -> anyhow::Result<Vec<String>> {
        self.requests_of_replicas(&WRITES)
    }

    /// What replicas wrote to cluster-scoped objects that have this stage's name, or one that begins with it; each sort
    /// of write once.
    pub(crate) fn cluster_writes(&self) -> anyhow::Result<BTreeSet<String>> {
        let is_ours = |of: &Value| {
            let name = of["name"].as_str().unwrap_or_default();
            let rest = name.strip_prefix(self.namespace.as_str());
            of["namespace"].is_null() && rest.is_some_and(|it| it.is_empty() || it.starts_with('-'))
        };
        Ok(self.requests_about(&WRITES, is_ours)?.into_iter().collect())
    }

    fn requests_about(
        &self,
        verbs: &[&str],
        is_ours: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Vec<String>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let events = self.shared.cluster.audit_events()?;
        let ours = events.iter().filter(|event| {
            is_ours(&event["objectRef"])
                && event["objectRef"]["resource"] != "events"
                && text(&event["userAgent"]).starts_with("metashard")
                && verbs.contains(&text(&event["verb"]).as_str())
        });
        Ok(ours
            .map(|event| {
                let resource = text(&event["objectRef"]["resource"]);
                match text(&event["objectRef"]["subresource"]) {
                    sub if sub.is_empty() => format!("{} {resource}", text(&event["verb"])),
                    sub => format!("{} {resource}/{sub}", text(&event["verb"])),
                }
            })
            .collect())
    }
}
