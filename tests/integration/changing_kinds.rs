//! Kinds of parents and children that change under way: scope, version, status subresource.

use anyhow::ensure;
use metashard_api::names::{condition, reason};
use metashard_testkit::crds;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    CONFIG_MAP, CONTROLLER, Kind, NAMESPACE, STAGE, Stage, THING, config_map, eventually,
    healed_in_time,
};

const CRD: Kind = Kind {
    api_version: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    namespaced: false,
};

const fn kind(kind: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind {
        api_version: crds::API_VERSION,
        kind,
        plural,
        namespaced,
    }
}

const SWITCHED: Kind = kind("Switched", "switcheds", true);
const VERSIONED: Kind = kind("Versioned", "versioneds", true);
const SCOPED: Kind = kind("Scoped", "scopeds", true);
const SCOPED_WIDE: Kind = kind("Scoped", "scopeds", false);

fn name_of_crd(kind: Kind) -> String {
    format!("{}.{}", kind.plural, crds::GROUP)
}

/// The CRD of a kind that is as `Thing` otherwise.
fn crd_of(kind: Kind) -> Value {
    let mut crd = crds::like_thing(kind.kind, kind.plural);
    if !kind.namespaced {
        crd["spec"]["scope"] = "Cluster".into();
    }
    crd
}

/// The same with v1 served or not, and a v2 that is served and stored.
fn in_two_versions(kind: Kind, v1_served: bool) -> Value {
    let mut crd = crd_of(kind);
    let versions = &mut crd["spec"]["versions"];
    let mut second = versions[0].clone();
    second["name"] = "v2".into();
    versions[0]["served"] = v1_served.into();
    versions[0]["storage"] = false.into();
    if let Value::Array(versions) = versions {
        versions.push(second);
    }
    crd
}

/// Changes the first version of a kind's CRD.
async fn change(stage: &Stage, kind: Kind, edit: impl Fn(&mut Value)) -> anyhow::Result<()> {
    let crds_of = stage.objects(CRD);
    eventually("the CRD to be changed", async || {
        let mut crd = crds_of.get(&name_of_crd(kind)).await?;
        edit(&mut crd["spec"]["versions"][0]);
        crds_of.replace(&crd).await
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_status_subresource_that_is_taken_away_and_given_back_needs_no_restart()
-> anyhow::Result<()> {
    let stage = Stage::new("switched").await?;
    crds::install_one(&stage.client, &crd_of(SWITCHED)).await?;
    stage
        .controller()
        .parent(SWITCHED)
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("a", json!({}))] });
    stage.parent(SWITCHED, "p", spec).await?;
    stage.objects(CONFIG_MAP).appears("a").await?;

    change(&stage, SWITCHED, |version| {
        version["subresources"] = Value::Null;
    })
    .await?;
    let (why, text) = (reason::NO_STATUS_SUBRESOURCE, "no status subresource");
    stage.says(condition::ACCEPTED, "False", why, text).await?;
    stage.is_unserved(SWITCHED, "p").await?;

    let since = Instant::now();
    crds::install_one(&stage.client, &crd_of(SWITCHED)).await?;
    stage.condition(condition::READY, "True").await?;
    healed_in_time(since)?;
    stage.poke(SWITCHED, "p").await?;
    Ok(())
}

#[tokio::test]
async fn a_version_that_is_served_no_longer_is_told_of_and_its_parents_are_synced_when_it_is_back()
-> anyhow::Result<()> {
    let stage = Stage::new("versioned").await?;
    crds::install_one(&stage.client, &in_two_versions(VERSIONED, true)).await?;
    stage
        .controller()
        .parent(VERSIONED)
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("a", json!({}))] });
    stage.parent(VERSIONED, "p", spec).await?;
    stage.objects(CONFIG_MAP).appears("a").await?;
    stage.settle(VERSIONED, "p").await?;

    change(&stage, VERSIONED, |version| {
        version["served"] = false.into();
    })
    .await?;
    stage.condition(condition::READY, "False").await?;
    // Through the other version it is changed meanwhile.
    let newer = Kind {
        api_version: "test.metashard.io/v2",
        ..VERSIONED
    };
    let edit = json!({ "spec": { "children": [config_map("b", json!({}))] } });
    stage.objects(newer).patch("p", edit).await?;

    let since = Instant::now();
    change(&stage, VERSIONED, |version| {
        version["served"] = true.into();
    })
    .await?;
    stage.objects(CONFIG_MAP).appears("b").await?;
    healed_in_time(since)?;
    stage.condition(condition::READY, "True").await?;
    Ok(())
}

#[tokio::test]
async fn a_kind_of_parents_that_comes_back_with_another_scope_is_served() -> anyhow::Result<()> {
    let stage = Stage::new("scoped").await?;
    crds::install_one(&stage.client, &crd_of(SCOPED)).await?;
    stage
        .controller()
        .parent(SCOPED)
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let child = |namespace: Option<&str>| {
        let mut child = config_map("a", json!({}));
        if let Some(namespace) = namespace {
            child["metadata"]["namespace"] = namespace.into();
        }
        json!({ "children": [child] })
    };
    stage.parent(SCOPED, "p", child(None)).await?;
    stage.objects(CONFIG_MAP).appears("a").await?;
    stage.settle(SCOPED, "p").await?;

    stage.objects(CRD).delete(&name_of_crd(SCOPED)).await?;
    stage.objects(CRD).goes(&name_of_crd(SCOPED)).await?;
    stage.objects(CONFIG_MAP).delete("a").await?;
    stage.condition(condition::READY, "False").await?;

    let since = Instant::now();
    crds::install_one(&stage.client, &crd_of(SCOPED_WIDE)).await?;
    stage
        .parent(SCOPED_WIDE, "p", child(Some(&stage.namespace)))
        .await?;
    stage.objects(CONFIG_MAP).appears("a").await?;
    healed_in_time(since)?;
    stage.condition(condition::READY, "True").await?;
    Ok(())
}

#[tokio::test]
async fn namespaces_can_be_parents() -> anyhow::Result<()> {
    let stage = Stage::answering("namespaces", |request| {
        let name = request["parent"]["metadata"]["name"].clone();
        let mut child = config_map("a", json!({}));
        child["metadata"]["namespace"] = name;
        json!({ "children": [child], "status": { "phase": "Active" } })
    })
    .await?;
    stage
        .controller()
        .parent(NAMESPACE)
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;

    let label = json!({ "metadata": { "labels": { STAGE: stage.namespace } } });
    stage
        .objects(NAMESPACE)
        .patch(&stage.namespace, label)
        .await?;

    let child = stage.objects(CONFIG_MAP).appears("a").await?;
    let owner = &child["metadata"]["ownerReferences"][0];
    ensure!(owner["kind"] == "Namespace", "{child:#}");
    stage.condition(condition::READY, "True").await?;
    Ok(())
}

#[tokio::test]
async fn a_hundred_controllers_with_missing_kinds_hold_up_nobody() -> anyhow::Result<()> {
    const CONTROLLERS: usize = 100;
    let stage = Stage::new("many-missing").await?;
    for number in 0..CONTROLLERS {
        let name = format!("{}-{number}", stage.namespace);
        stage
            .controller()
            .edit(|it| {
                it["metadata"]["name"] = name.into();
                it["spec"]["parentResource"]["resource"] = format!("absents{number}").into();
            })
            .apply()
            .await?;
    }

    stage.controller().apply().await?;
    stage.parent(THING, "p", json!({})).await?;

    stage.settle(THING, "p").await?;
    for number in 0..CONTROLLERS {
        let name = format!("{}-{number}", stage.namespace);
        stage.objects(CONTROLLER).delete(&name).await?;
    }
    Ok(())
}
