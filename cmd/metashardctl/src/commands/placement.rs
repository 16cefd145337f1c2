//! The Placement of a fleet: read, changed by compare-and-swap, and waited for.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use metashard_api::{
    placement::{NAME, PlacementSpec, PlacementStatus},
    resource::Resource,
};
use metashard_kube::identity::Identity;
use metashard_reconcile::object::Object;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Found,
    cluster::Cluster,
    fleet::Fleet,
    output::{self, Output},
};

/// How often is looked whether it is done.
const PERIOD: Duration = Duration::from_millis(500);

/// Most attempts of one change while others change it too.
const ATTEMPTS: usize = 5;

/// Where a user reads and writes it.
#[derive(Debug)]
pub(super) struct Desk<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    resource: Arc<Resource>,
}

/// The Placement at one moment; empty if there is none.
#[derive(Debug, Default)]
pub(super) struct Seen {
    object: Option<Arc<Object>>,
    pub(super) spec: PlacementSpec,
    pub(super) status: PlacementStatus,
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It says so already.
    Already,
    /// It would be written.
    Would,
    /// It is written.
    Written,
}

#[derive(Debug, Default, Deserialize)]
struct Content {
    #[serde(default)]
    spec: PlacementSpec,
    #[serde(default)]
    status: PlacementStatus,
}

impl<'a> Desk<'a> {
    pub(super) fn open(cluster: &'a Cluster, fleet: &'a Fleet) -> anyhow::Result<Self> {
        let resource = cluster.resource("placements.metashard.io").context(
            "this cluster has no Placements: `kubectl apply --server-side -f deploy/crds/placements.yaml`, and restart the replicas",
        )?;
        Ok(Self {
            cluster,
            namespace: fleet.namespace(),
            resource,
        })
    }

    pub(super) async fn read(&self) -> anyhow::Result<Seen> {
        let found = self.cluster.find_in(&self.resource, self.namespace, NAME);
        let Some(object) = found.await? else {
            return Ok(Seen::default());
        };
        let content = serde_json::from_slice(object.bytes());
        let Content { spec, status } = content.context("read the Placement")?;
        Ok(Seen {
            object: Some(object),
            spec,
            status,
        })
    }

    /// Changes what is asked, unless it is asked already; makes the Placement if there is none. `change` may be called again
    /// where somebody else was faster.
    pub(super) async fn change(
        &self,
        is_dry: bool,
        change: impl Fn(&mut PlacementSpec) -> anyhow::Result<()>,
    ) -> anyhow::Result<Outcome> {
        for attempt in 1.. {
            let seen = self.read().await?;
            let mut spec = seen.spec.clone();
            change(&mut spec)?;
            if spec == seen.spec {
                return Ok(Outcome::Already);
            }
            if is_dry {
                return Ok(Outcome::Would);
            }
            match self.write(&seen, &spec).await {
                Ok(()) => break,
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Outcome::Written)
    }

    async fn write(
        &self,
        seen: &Seen,
        spec: &PlacementSpec,
    ) -> Result<(), metashard_kube::error::Error> {
        let (clients, identity) = (&self.cluster.clients, Identity::process());
        if let Some(object) = &seen.object {
            let patch = json!({ "spec": changed(&seen.spec, spec) });
            clients
                .patch(&identity, &self.resource, object, patch)
                .await?;
        } else {
            let body = json!({
                "apiVersion": self.resource.api_version(),
                "kind": self.resource.kind,
                "metadata": { "name": NAME },
                "spec": spec,
            });
            clients
                .create(&identity, &self.resource, Some(self.namespace), &body)
                .await?;
        }
        Ok(())
    }

    /// Waits until `missing` finds nothing any more; what is missing is told beside the output when it changes. 1: not in time.
    pub(super) async fn wait(
        &self,
        timeout: Duration,
        output: &mut Output,
        missing: impl AsyncFn(&Seen) -> anyhow::Result<Option<String>>,
    ) -> anyhow::Result<Found> {
        output.flush()?;
        let began = self.cluster.clock.now();
        let mut told = String::new();
        loop {
            let seen = self.read().await?;
            let Some(text) = missing(&seen).await? else {
                return Ok(Found::Same);
            };
            let text = match seen.objection() {
                Some(why) => format!("{text}; {why}"),
                None => text,
            };
            if text != told {
                output::complain(&text);
                told = text;
            }
            if self.cluster.clock.now().mono.since(began.mono) >= timeout {
                output::complain(&format!("not done within {timeout:?}"));
                return Ok(Found::Differs);
            }
            self.cluster.clock.sleep(PERIOD).await;
        }
    }
}

impl Seen {
    /// What the leader has against it, or that it has said nothing.
    fn objection(&self) -> Option<String> {
        let generation = self.object.as_ref()?.generation();
        if self.status.observed_generation != Some(generation) {
            return Some("no leader has answered it yet".to_owned());
        }
        let mut conditions = self.status.conditions.iter();
        let bad = conditions.find(|it| it.status == "False")?;
        Some(format!("{} {}: {}", bad.type_, bad.reason, bad.message))
    }
}

/// The fields that are to be written: what others ask by the rest stays as it is.
fn changed(old: &PlacementSpec, new: &PlacementSpec) -> Value {
    let mut fields = json!({});
    if old.cordoned != new.cordoned {
        fields["cordoned"] = json!(new.cordoned);
    }
    if old.pins != new.pins {
        fields["pins"] = json!(new.pins);
    }
    if old.rebalance != new.rebalance {
        fields["rebalance"] = json!(new.rebalance);
    }
    fields
}

impl Outcome {
    /// Says what became of it. `what`: what is so now, or would be.
    pub(super) fn tell(self, what: &str, output: &mut Output) -> anyhow::Result<()> {
        let text = match self {
            Self::Already => format!("{what} already"),
            Self::Would => format!("{what} (dry run)"),
            Self::Written => what.to_owned(),
        };
        Ok(output.line(&text)?)
    }

    /// 1 only for what a dry run would write.
    pub(super) fn found(self) -> Found {
        match self {
            Self::Already | Self::Written => Found::Same,
            Self::Would => Found::Differs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_change_are_written_and_an_empty_list_is_one() {
        let old = PlacementSpec {
            cordoned: vec!["a".to_owned()],
            rebalance: Some("monday".to_owned()),
            ..PlacementSpec::default()
        };
        let new = PlacementSpec {
            cordoned: Vec::new(),
            ..old.clone()
        };

        assert_eq!(changed(&old, &new), json!({ "cordoned": [] }));
        assert_eq!(changed(&new, &new), json!({}));
    }
}
