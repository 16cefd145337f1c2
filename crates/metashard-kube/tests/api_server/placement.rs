//! The Placement: what its CRD refuses, what is seen of it, and how it is answered.

use std::sync::Arc;

use anyhow::{Context, bail};
use metashard_api::{crd::placements, resource::Resource};
use metashard_fleet::wishes::{Finding, Told};
use metashard_kube::{
    crd::{Installed, install},
    identity::Identity,
    placement::{Asked, PlacementWatch, Placements},
};
use metashard_reconcile::object::Object;
use metashard_testkit::{Cluster, cluster::Options};
use serde_json::{Value, json};

use crate::kit::{Kit, SOON};

async fn create(kit: &Kit, name: &str, spec: &Value) -> Result<Arc<Object>, String> {
    let body = json!({
        "apiVersion": "metashard.io/v1beta1",
        "kind": "Placement",
        "metadata": { "name": name },
        "spec": spec,
    });
    let (identity, resource) = (Identity::process(), Resource::of_placements());
    let created = kit
        .clients
        .create(&identity, &resource, Some(&kit.namespace), &body);
    created
        .await
        .map_err(|error| metashard_runtime::log::chain(&error))
}

async fn next(watch: &mut PlacementWatch) -> anyhow::Result<Asked> {
    let seen = tokio::time::timeout(SOON, watch.next()).await?;
    seen.context("it is there")
}

fn told(generation: i64, holds: bool) -> Told {
    Told {
        generation,
        observed_rebalance: "monday".to_owned(),
        findings: vec![Finding {
            condition: "Drained".into(),
            holds,
            reason: "Done".into(),
            message: "all of them".to_owned(),
        }],
    }
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_by_the_field_that_asks_it() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let kit = Kit::on(&cluster).await?;
    assert_eq!(
        install(&kit.clients, &placements()).await?,
        Installed::Created
    );

    let bad = [
        (
            json!({ "pins": [{ "replica": "a" }] }),
            "name one of shard and controller",
        ),
        (
            json!({ "pins": [{ "shard": 1, "controller": "c", "replica": "a" }] }),
            "name one of shard and controller",
        ),
        (
            json!({ "pins": [{ "shard": 1, "replica": "a" }, { "shard": 1, "replica": "b" }] }),
            "the same shard is pinned to two replicas",
        ),
        (
            json!({ "pins": [{ "controller": "c", "replica": "a" }, { "controller": "c", "replica": "b" }] }),
            "the same controller is pinned to two replicas",
        ),
        (
            json!({ "pins": [{ "shard": 4096, "replica": "a" }] }),
            "spec.pins[0].shard",
        ),
        (json!({ "pins": [{ "shard": 1 }] }), "spec.pins[0].replica"),
        (json!({ "cordoned": ["a", "a"] }), "spec.cordoned[1]"),
        (json!({ "cordoned": [""] }), "spec.cordoned[0]"),
    ];
    for (spec, why) in bad {
        let Err(refusal) = create(&kit, "metashard", &spec).await else {
            bail!("{spec} was taken");
        };
        assert!(refusal.contains(why), "{spec}: {refusal}");
    }
    let good = json!({ "cordoned": ["a"], "pins": [{ "shard": 1, "replica": "a" }, { "shard": 1, "replica": "a" }] });
    let created = create(&kit, "metashard", &good).await;
    assert!(created.is_ok(), "{created:?}");
    Ok(())
}

#[tokio::test]
async fn placement_is_seen_and_answered_and_not_once_it_is_another() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let kit = Kit::on(&cluster).await?;
    install(&kit.clients, &placements()).await?;
    let theirs = Placements::new(&kit.clients, &kit.namespace);
    let mut watch = theirs.watch(&kit.informers);
    // One of another name asks nothing.
    let other = create(&kit, "other", &json!({ "cordoned": ["z"] })).await;
    assert!(other.is_ok(), "{other:?}");
    let created = create(&kit, "metashard", &json!({ "cordoned": ["a"] })).await;
    assert!(created.is_ok(), "{created:?}");

    let first = next(&mut watch).await?;
    assert_eq!(first.spec.cordoned, ["a"]);
    assert!(theirs.tell(&first, &told(1, false)).await);

    let answered = next(&mut watch).await?;
    assert_eq!(answered.spec, first.spec);
    assert_eq!(
        answered.status.observed_rebalance.as_deref(),
        Some("monday")
    );
    assert_eq!(answered.status.conditions[0].status, "False");
    assert!(
        !theirs.tell(&first, &told(1, true)).await,
        "it is another by now"
    );

    // What it says already is not written again.
    assert!(theirs.tell(&answered, &told(1, false)).await);
    assert!(theirs.tell(&answered, &told(1, true)).await);
    let again = next(&mut watch).await?;
    assert_eq!(again.status.conditions[0].status, "True");
    assert_eq!(again.object.generation(), 1, "a status is no new wish");
    Ok(())
}
