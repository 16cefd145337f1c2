//! Replicas that serve the controllers of one stage alone, and may be planted with faults.

use metashard_testkit::{Replica, replica};
use serde_json::json;

use super::{ControllerBuilder, OWN_REPLICA, Stage, WITHIN};

/// Longer than by default: machines that run tests are busy.
pub(crate) const LONG_LEASE: &str = "--lease-duration=8s";

impl Stage {
    /// A replica for this stage alone, whose system namespace is the stage's namespace. Once it is ready.
    pub(crate) async fn replica(&self, name: &str, faults: &str) -> anyhow::Result<Replica> {
        let mut replica = self.unready_replica(name, faults)?;
        replica.ready(WITHIN).await?;
        Ok(replica)
    }

    /// The same, at once.
    pub(crate) fn unready_replica(&self, name: &str, faults: &str) -> anyhow::Result<Replica> {
        let cluster = &self.shared.cluster;
        let selector = format!("--target-label-selector={OWN_REPLICA}={}", self.namespace);
        let options = replica::Options::new(cluster, name, &self.namespace)?
            .flags([selector.as_str(), LONG_LEASE, "--zap-log-level=debug"])
            .faults(faults);
        Replica::start(cluster.group(), &options)
    }
}

impl ControllerBuilder<'_> {
    /// Served by the stage's own replicas.
    pub(crate) fn own(self) -> Self {
        let label = json!({ OWN_REPLICA: self.namespace() });
        self.edit(|it| it["metadata"]["labels"] = label)
    }
}
