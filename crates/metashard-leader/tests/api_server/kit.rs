//! What the tests share: clients of the cluster, and a namespace of each test's own.

use std::time::Duration;

use metashard_fleet::record::{About, Holder, Record};
use metashard_kube::{
    client::{Clients, Options},
    metrics::Metrics,
};
use metashard_runtime::clock::Clock;
use metashard_testkit::{Cluster, cluster::ADMIN};
use prometheus::Registry;

/// Long against everything that a test waits for.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Clients, and a namespace to use them in.
pub(crate) async fn connect(registry: &Registry) -> anyhow::Result<(Clients, String)> {
    let cluster = Cluster::shared().await?;
    let options = Options {
        kubeconfig: Some(cluster.kubeconfig(ADMIN)?),
        ..Options::default()
    };
    let clients = Clients::connect(options, Clock::system(), Metrics::register(registry)?).await?;
    Ok((clients, cluster.namespace("leader").await?))
}

/// Content of a Lease.
pub(crate) fn record(holder: Holder, duration: Duration) -> Record {
    Record {
        uid: String::new(),
        resource_version: String::new(),
        holder,
        duration,
        attempt: 1,
        about: About::default(),
    }
}
