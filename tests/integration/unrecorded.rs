//! A replica that may not record whose finalizers are where.

use anyhow::{Context, ensure};
use metashard_api::names::{condition, event, reason};
use metashard_testkit::{Replica, proxy::Proxy, replica};
use serde_json::{Value, json};

use super::poor::{bind, may_list, rule};
use crate::support::{
    CONFIG_MAP, CONTROLLER, LEASE, LONG_LEASE, OWN_REPLICA, Stage, THING, WITHIN, condition_of,
    eventually,
};

/// A replica that acts as a user without rights to ConfigMaps, named as the stage's namespace.
async fn replica(stage: &Stage) -> anyhow::Result<(Replica, Proxy)> {
    let (cluster, name) = (&stage.shared.cluster, &stage.namespace);
    let rules = json!([
        rule("metacontroller.k8s.io", "*", &["*"]),
        rule("test.metashard.io", "*", &["*"]),
        rule("", "events", &["create", "patch"]),
    ]);
    bind(&stage.client, None, (name, "basic"), rules).await?;
    let here = json!([
        rule("coordination.k8s.io", "leases", &["*"]),
        rule("metashard.io", "shardmaps", &["*"]),
        rule("", "secrets", &["get", "create"]),
    ]);
    bind(&stage.client, Some(name), (name, "here"), here).await?;
    let mut options = replica::Options::new(cluster, name, name)?.flags([
        format!("--target-label-selector={OWN_REPLICA}={name}").as_str(),
        LONG_LEASE,
    ]);
    let proxy = Proxy::start_as(cluster, name)?;
    options.kubeconfig = proxy.kubeconfig();
    may_list(cluster, name, &[(CONTROLLER, ""), (LEASE, name)]).await?;
    let mut replica = Replica::start(cluster.group(), &options)?;
    replica.ready(WITHIN).await?;
    Ok((replica, proxy))
}

#[tokio::test]
async fn a_finalizer_that_cannot_be_recorded_is_told_at_the_start_and_on_its_controller()
-> anyhow::Result<()> {
    let stage = Stage::new("unrecorded").await?;
    let name = stage.namespace.clone();
    let (replica, _proxy) = replica(&stage).await?;
    let lacks = format!(
        "lacks rights: get, list, watch, create, update, delete configmaps in namespace {name};"
    );
    ensure!(
        replica.whole_log().contains(&lacks),
        "{}",
        replica.whole_log()
    );

    let controller = stage.controller().own().finalize().apply().await?;
    stage.parent(THING, "p", json!({})).await?;

    let uid = controller["metadata"]["uid"].as_str().context("no uid")?;
    let record = format!("metashard-finalizers-{uid}");
    let create = format!("write record ConfigMap {name}/{record}: ");
    let cannot = format!("User \"{name}\" cannot create resource \"configmaps\"");
    let (authorized, why) = (condition::AUTHORIZED, reason::FORBIDDEN);
    let told = stage.says(authorized, "False", why, &create).await?;
    let message = told["message"].as_str().unwrap_or_default();
    ensure!(
        message.starts_with(&create) && message.contains(&cannot),
        "{told:#}"
    );
    for text in [&create, &cannot] {
        let told = stage.event(&controller, event::SYNC_ERROR, text).await?;
        ensure!(told["type"] == "Warning", "{told:#}");
    }
    // It is served all the same.
    let is_held = |it: &Value| it["metadata"]["finalizers"].as_array().is_some();
    stage
        .objects(THING)
        .becomes("p", "to be held", is_held)
        .await?;

    let all = ["get", "list", "watch", "create", "update", "delete"];
    let rules = json!([rule("", "configmaps", &all)]);
    bind(&stage.client, None, (&name, "records"), rules).await?;

    stage.objects(CONFIG_MAP).appears(&record).await?;
    eventually("the condition to hold", async || {
        let controller = stage.objects(CONTROLLER).get(&name).await?;
        let told = condition_of(&controller, condition::AUTHORIZED);
        ensure!(
            told.is_some_and(|it| it["status"] == "True"),
            "{controller:#}"
        );
        Ok(())
    })
    .await
}
