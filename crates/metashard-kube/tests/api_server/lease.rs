//! Leases.

use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use metashard_api::id::{Incarnation, ReplicaId};
use metashard_fleet::record::{About, Holder, Record, Seen, Written};
use metashard_kube::lease::Leases;
use metashard_testkit::Cluster;

use crate::{
    kit::{Kit, SOON},
    proxy::Proxy,
};

const NAME: &str = "metashard-worker-6f1c7a52-9a0e-4b5e-8f54-0d7c3b2a1e90";

fn record(attempt: u64) -> Record {
    Record {
        uid: String::new(),
        resource_version: String::new(),
        holder: Holder::Member(
            ReplicaId::new("replica-1"),
            Incarnation::new("6f1c7a52-9a0e-4b5e-8f54-0d7c3b2a1e90"),
        ),
        duration: Duration::from_secs(4),
        attempt,
        about: About {
            address: "127.0.0.1:9443".to_owned(),
            version: "0.1.0".to_owned(),
            ..About::default()
        },
    }
}

fn accepted<T: std::fmt::Debug>(written: Written<T>) -> anyhow::Result<T> {
    match written {
        Written::Accepted(state) => Ok(state),
        other => bail!("{other:?}"),
    }
}

#[tokio::test]
async fn a_lease_is_created_once_renewed_and_read_back() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let leases = Leases::new(&kit.clients, &kit.namespace, None);
    assert_eq!(leases.read(NAME).await?, Seen::Absent);

    let created = accepted(leases.create(NAME, &record(1)).await)?;
    assert_eq!(leases.create(NAME, &record(1)).await, Written::Conflict);
    let renewed = accepted(
        leases
            .put(
                NAME,
                &Record {
                    attempt: 2,
                    ..created.clone()
                },
            )
            .await,
    )?;

    assert_eq!(
        Record {
            uid: String::new(),
            resource_version: String::new(),
            ..renewed.clone()
        },
        record(2)
    );
    assert_eq!(leases.read(NAME).await?, Seen::Present(renewed));
    assert_eq!(
        leases
            .put(
                NAME,
                &Record {
                    attempt: 3,
                    ..created
                }
            )
            .await,
        Written::Conflict
    );
    Ok(())
}

#[tokio::test]
async fn a_deleted_lease_is_not_made_anew() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let leases = Leases::new(&kit.clients, &kit.namespace, None);
    let created = accepted(leases.create(NAME, &record(1)).await)?;
    accepted(leases.delete(NAME, &created).await)?;

    assert_eq!(
        leases
            .put(
                NAME,
                &Record {
                    attempt: 2,
                    ..created.clone()
                }
            )
            .await,
        Written::Conflict
    );

    assert_eq!(leases.read(NAME).await?, Seen::Absent);
    assert!(matches!(
        leases.delete(NAME, &created).await,
        Written::Refused(_)
    ));
    Ok(())
}

#[tokio::test]
async fn a_released_and_a_fenced_lease_say_so() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let leases = Leases::new(&kit.clients, &kit.namespace, None);
    let created = accepted(leases.create(NAME, &record(1)).await)?;

    let released = accepted(
        leases
            .put(
                NAME,
                &Record {
                    holder: Holder::Released,
                    ..created
                },
            )
            .await,
    )?;
    assert_eq!(released.holder, Holder::Released);
    let fenced = accepted(
        leases
            .put(
                NAME,
                &Record {
                    holder: Holder::Fenced,
                    ..released
                },
            )
            .await,
    )?;

    assert_eq!(fenced.holder, Holder::Fenced);
    assert_eq!(fenced.about, record(1).about);
    Ok(())
}

#[tokio::test]
async fn a_write_keeps_what_others_put_on_a_lease() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let cluster = Cluster::shared().await?;
    let leases = Leases::new(&kit.clients, &kit.namespace, None);
    accepted(leases.create(NAME, &record(1)).await)?;
    let api: Api<Lease> = Api::namespaced(cluster.admin().await?, &kit.namespace);
    let label = serde_json::json!({ "metadata": { "labels": { "team": "a" } } });
    api.patch(
        NAME,
        &kube::api::PatchParams::default(),
        &kube::api::Patch::Merge(label),
    )
    .await?;

    let Seen::Present(read) = leases.read(NAME).await? else {
        bail!("no Lease")
    };
    accepted(leases.put(NAME, &Record { attempt: 2, ..read }).await)?;

    let lease = api.get(NAME).await?;
    let labels = lease.metadata.labels.context("labels")?;
    assert_eq!(labels["team"], "a");
    assert_eq!(labels["metashard.io/replica"], "replica-1");
    let spec = lease.spec.context("a spec")?;
    assert!(spec.acquire_time.is_some() && spec.renew_time > spec.acquire_time);
    Ok(())
}

#[tokio::test]
async fn a_lease_watch_tells_each_change_and_the_end() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let leases = Leases::new(&kit.clients, &kit.namespace, None);
    let created = accepted(leases.create(NAME, &record(1)).await)?;
    let mut watch = leases.watch(&kit.informers);
    let mut next = async || anyhow::Ok(tokio::time::timeout(SOON, watch.next()).await?);

    assert_eq!(next().await?, (NAME.into(), Seen::Present(created.clone())));
    let renewed = accepted(
        leases
            .put(
                NAME,
                &Record {
                    attempt: 2,
                    ..created
                },
            )
            .await,
    )?;
    assert_eq!(next().await?, (NAME.into(), Seen::Present(renewed.clone())));
    accepted(leases.delete(NAME, &renewed).await)?;
    assert_eq!(next().await?, (NAME.into(), Seen::Absent));
    Ok(())
}

#[tokio::test]
async fn a_call_without_an_answer_ends_within_a_second_and_its_end_is_unknown() -> anyhow::Result<()>
{
    let cluster = Cluster::shared().await?;
    let proxy = Proxy::before(cluster).await?;
    let kit = Kit::with(cluster, proxy.kubeconfig.clone()).await?;
    let leases = Leases::new(&kit.clients, &kit.namespace, None);
    let created = accepted(leases.create(NAME, &record(1)).await)?;

    proxy.hold();
    // A second, and what a busy machine takes besides; other calls may take far longer.
    let limit = Duration::from_secs(3);
    let put = tokio::time::timeout(
        limit,
        leases.put(
            NAME,
            &Record {
                attempt: 2,
                ..created.clone()
            },
        ),
    )
    .await?;
    assert_eq!(put, Written::Unknown);
    assert!(
        tokio::time::timeout(limit, leases.read(NAME))
            .await?
            .is_err()
    );
    proxy.open();

    // The next call does not wait behind the one that hung.
    assert!(matches!(leases.read(NAME).await?, Seen::Present(_)));
    Ok(())
}
