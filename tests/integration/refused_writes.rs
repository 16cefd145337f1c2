//! Writes that the API server refuses and that are not to children: of the parent's status and finalizer, of revisions, of
//! owners, and of Events. Each is told by condition and event, and heals by itself.

use std::time::Duration;

use anyhow::ensure;
use metashard_api::names::{condition, event, reason};
use metashard_testkit::{crds, wait};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{
    poor::{Poor, all, rule, served_by},
    rolling::REVISION,
    support::{
        CONFIG_MAP, ControllerBuilder, Kind, SECRET, Stage, THING, config_map, data_of, eventually,
    },
};

const STRICT: Kind = Kind {
    api_version: crds::API_VERSION,
    kind: "Strict",
    plural: "stricts",
    namespaced: true,
};

/// The replica of these tests: it may read everything, and write controllers and Events. The rest is granted by
/// namespace.
async fn poor() -> anyhow::Result<&'static Poor> {
    static POOR: OnceCell<Poor> = OnceCell::const_new();
    let start = async || {
        let read = ["get", "list", "watch"];
        let rules = json!([
            all("metacontroller.k8s.io", "compositecontrollers"),
            all("metacontroller.k8s.io", "compositecontrollers/status"),
            rule("metacontroller.k8s.io", "*", &read),
            rule("test.metashard.io", "*", &read),
            rule("", "configmaps", &read),
            rule("", "secrets", &read),
            rule("", "events", &["create", "patch"]),
        ]);
        Poor::with("refused-writes", rules).await
    };
    POOR.get_or_try_init(start).await
}

fn controller<'a>(poor: &Poor, stage: &'a Stage) -> ControllerBuilder<'a> {
    served_by(stage.controller().child(CONFIG_MAP, "InPlace"), &poor.name)
}

/// People are told of a write that there is no right to: by a condition of the controller and an event of the parent.
async fn is_told(
    poor: &Poor,
    stage: &Stage,
    parent: &Value,
    write: &str,
    cannot: &str,
) -> anyhow::Result<()> {
    let cannot = format!("User \"{}\" cannot {cannot}", poor.name);
    stage.event(parent, event::SYNC_ERROR, &cannot).await?;
    let what = format!("Authorized to tell of {write}");
    eventually(&what, async || {
        let told = stage.condition(condition::AUTHORIZED, "False").await?;
        let message = told["message"].as_str().unwrap_or_default();
        ensure!(message.starts_with(write), "{told:#}");
        ensure!(message.contains(&cannot), "{told:#}");
        Ok(())
    })
    .await?;
    stage.condition(condition::READY, "False").await?;
    Ok(())
}

async fn is_well(stage: &Stage) -> anyhow::Result<()> {
    stage.condition(condition::AUTHORIZED, "True").await?;
    stage.condition(condition::READY, "True").await?;
    Ok(())
}

#[tokio::test]
async fn a_status_that_may_not_be_written_is_told_until_it_may() -> anyhow::Result<()> {
    let (poor, stage) = (poor().await?, Stage::new("no-status-right").await?);
    let rules = json!([all("", "configmaps")]);
    poor.grant_in(&stage, "children", rules).await?;
    controller(poor, &stage).apply().await?;
    let spec = json!({ "children": [config_map("a", json!({}))], "status": { "x": 1 } });
    let parent = stage.parent(THING, "p", spec).await?;

    let write = format!("update status of Thing {}/p: ", stage.namespace);
    is_told(
        poor,
        &stage,
        &parent,
        &write,
        "update resource \"things/status\"",
    )
    .await?;
    stage.objects(CONFIG_MAP).appears("a").await?;

    let rules = json!([rule("test.metashard.io", "things/status", &["update"])]);
    poor.grant_in(&stage, "status", rules).await?;
    let is_written = |it: &Value| it["status"]["x"] == 1;
    let things = stage.objects(THING);
    things.becomes("p", "to have a status", is_written).await?;
    is_well(&stage).await
}

#[tokio::test]
async fn a_finalizer_that_may_not_be_written_is_told_until_it_may() -> anyhow::Result<()> {
    let (poor, stage) = (poor().await?, Stage::new("no-finalizer-right").await?);
    let rules = json!([
        all("", "configmaps"),
        rule("test.metashard.io", "things/status", &["update"]),
    ]);
    poor.grant_in(&stage, "rest", rules).await?;
    controller(poor, &stage).finalize().apply().await?;
    let spec = json!({ "children": [config_map("a", json!({}))], "finalized": true });
    let parent = stage.parent(THING, "p", spec).await?;
    let update = json!([rule("test.metashard.io", "things", &["update"])]);
    let cannot = "update resource \"things\"";

    let write = format!("add finalizer to Thing {}/p: ", stage.namespace);
    is_told(poor, &stage, &parent, &write, cannot).await?;
    ensure!(stage.hook.count() == 0, "the hook was called");
    poor.grant_in(&stage, "update", update.clone()).await?;
    stage.objects(CONFIG_MAP).appears("a").await?;
    is_well(&stage).await?;

    poor.revoke_in(&stage, "update").await?;
    // Rights are cached: until it is denied, nothing is told.
    stage.objects(THING).delete("p").await?;
    let write = format!("remove finalizer from Thing {}/p: ", stage.namespace);
    is_told(poor, &stage, &parent, &write, cannot).await?;
    poor.grant_in(&stage, "update", update).await?;
    stage.objects(THING).goes("p").await?;
    is_well(&stage).await
}

#[tokio::test]
async fn a_revision_that_may_not_be_written_is_told_until_it_may() -> anyhow::Result<()> {
    let (poor, stage) = (poor().await?, Stage::new("no-revision-right").await?);
    let rules = json!([
        all("", "configmaps"),
        rule("test.metashard.io", "things/status", &["update"]),
    ]);
    poor.grant_in(&stage, "rest", rules).await?;
    let controller = stage.controller().child(CONFIG_MAP, "RollingInPlace");
    served_by(controller, &poor.name).apply().await?;
    let spec = json!({ "children": [config_map("a", json!({ "k": "1" }))] });
    let parent = stage.parent(THING, "p", spec).await?;

    let write = format!("create ControllerRevision {}/", stage.namespace);
    is_told(
        poor,
        &stage,
        &parent,
        &write,
        "create resource \"controllerrevisions\"",
    )
    .await?;
    let found = stage.objects(CONFIG_MAP).find("a").await?;
    ensure!(
        found.is_none(),
        "a child comes after its revision: {found:#?}"
    );

    let rules = json!([all("metacontroller.k8s.io", "controllerrevisions")]);
    poor.grant_in(&stage, "revisions", rules).await?;
    let child = stage.objects(CONFIG_MAP).appears("a").await?;
    assert_eq!(data_of(&child), json!({ "k": "1" }));
    assert_eq!(stage.objects(REVISION).list().await?.len(), 1);
    is_well(&stage).await
}

#[tokio::test]
async fn an_object_that_may_not_be_adopted_is_told_until_it_may() -> anyhow::Result<()> {
    let (poor, stage) = (poor().await?, Stage::new("no-adoption-right").await?);
    let rules = json!([rule("test.metashard.io", "things/status", &["update"])]);
    poor.grant_in(&stage, "rest", rules).await?;
    let wanted = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" }, "data": { "k": "dg==" },
    });
    let spec = json!({ "children": [wanted] });
    let parent = stage.parent(THING, "p", spec).await?;
    let uid = &parent["metadata"]["uid"];
    let mut orphan = wanted.clone();
    orphan["metadata"]["labels"] = json!({ "controller-uid": uid });
    stage.objects(SECRET).create(orphan).await?;
    let controller = stage.controller().child(SECRET, "InPlace");
    served_by(controller, &poor.name).apply().await?;

    let write = format!("adopt Secret {}/a: ", stage.namespace);
    is_told(poor, &stage, &parent, &write, "update resource \"secrets\"").await?;

    let rules = json!([rule("", "secrets", &["update"])]);
    poor.grant_in(&stage, "adopt", rules).await?;
    let is_ours = |it: &Value| it["metadata"]["ownerReferences"][0]["uid"] == *uid;
    let secrets = stage.objects(SECRET);
    secrets.becomes("a", "to be adopted", is_ours).await?;
    is_well(&stage).await
}

#[tokio::test]
async fn events_that_may_not_be_written_are_logged_once_and_nothing_waits_for_them()
-> anyhow::Result<()> {
    let rules = json!([
        all("metacontroller.k8s.io", "*"),
        all("test.metashard.io", "*"),
        all("", "configmaps"),
    ]);
    let poor = Poor::with("no-event-right", rules).await?;
    let watch = poor.canary.watch();
    let stage = Stage::new("no-event-right").await?;
    controller(&poor, &stage).apply().await?;
    let mut wrong = config_map("a", json!({}));
    wrong["data"]["no key!"] = "x".into();
    let spec = json!({ "children": [wrong] });
    stage.parent(THING, "p", spec).await?;

    stage.condition(condition::STALLED, "True").await?;
    let refused = "cannot create resource \\\"events\\\"";
    eventually("events to be refused", async || {
        let log = poor.replica.whole_log();
        let lines = log
            .lines()
            .filter(|line| line.contains("Event not written"));
        ensure!(lines.clone().count() > 2, "{} were", lines.count());
        Ok(())
    })
    .await?;
    let log = poor.replica.whole_log();
    let warned: Vec<_> = log
        .lines()
        .filter(|line| line.contains("Event not written; further ones"))
        .collect();
    ensure!(warned.len() == 1, "{warned:#?}");
    ensure!(
        warned[0].contains(refused) || warned[0].contains("cannot create resource"),
        "{warned:#?}"
    );
    watch.is_unharmed().await
}

/// Metacontroller needs no right to them.
#[tokio::test]
async fn a_controller_whose_conditions_may_not_be_written_is_served_and_not_asked_about_again_and_again()
-> anyhow::Result<()> {
    let rules = json!([
        rule("metacontroller.k8s.io", "*", &["get", "list", "watch"]),
        all("test.metashard.io", "*"),
        all("", "configmaps"),
        rule("", "events", &["create", "patch"]),
    ]);
    let poor = Poor::with("no-condition-right", rules).await?;
    let stage = Stage::new("no-condition-right").await?;
    controller(&poor, &stage).apply().await?;
    let spec = json!({ "children": [config_map("a", json!({}))] });
    stage.parent(THING, "p", spec).await?;
    stage.objects(CONFIG_MAP).appears("a").await?;
    let tries = || -> anyhow::Result<usize> {
        let events = stage.shared.cluster.audit_events()?;
        let is_try = |event: &&Value| {
            let of = &event["objectRef"];
            of["name"] == stage.namespace.as_str() && of["subresource"] == "status"
        };
        Ok(events.iter().filter(is_try).count())
    };
    eventually("a status to be refused", async || {
        ensure!(tries()? > 0, "none yet");
        Ok(())
    })
    .await?;

    let before = tries()?;
    wait::throughout(Duration::from_secs(4), "it is let be", async || {
        let more = tries()? - before;
        ensure!(more <= 2, "{more} more tries");
        Ok(())
    })
    .await?;

    let right = rule("metacontroller.k8s.io", "*", &["update"]);
    poor.grant_everywhere("conditions", json!([right])).await?;
    stage.condition(condition::READY, "True").await?;
    Ok(())
}

/// The CRD of a kind whose status has a phase out of these.
fn strict(phases: &Value) -> Value {
    let mut crd = crds::like_thing(STRICT.kind, STRICT.plural);
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["status"] = json!({
        "type": "object",
        "properties": {
            "phase": { "type": "string", "enum": phases },
            "observedGeneration": { "type": "integer" },
        },
    });
    crd
}

#[tokio::test]
async fn a_status_that_the_schema_refuses_is_told_until_the_schema_allows_it() -> anyhow::Result<()>
{
    let stage = Stage::new("strict-status").await?;
    crds::install_one(&stage.client, &strict(&json!(["Good"]))).await?;
    let controller = stage.controller().parent(STRICT);
    controller.child(CONFIG_MAP, "InPlace").apply().await?;
    let spec = json!({
        "children": [config_map("a", json!({}))], "status": { "phase": "Odd" },
    });
    let parent = stage.parent(STRICT, "p", spec).await?;

    let write = format!("update status of Strict {}/p: ", stage.namespace);
    let why = reason::WRITE_REFUSED;
    let told = stage.says(condition::STALLED, "True", why, &write).await?;
    let message = told["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with(&write), "{told:#}");
    ensure!(message.contains("status.phase"), "{told:#}");
    ensure!(
        message.ends_with("or the schema of the parent's kind"),
        "{told:#}"
    );
    stage.condition(condition::READY, "False").await?;
    stage
        .event(&parent, event::SYNC_ERROR, "status.phase")
        .await?;
    stage.objects(CONFIG_MAP).appears("a").await?;

    let crd = strict(&json!(["Good", "Odd"]));
    crds::install_one(&stage.client, &crd).await?;
    let is_written = |it: &Value| it["status"]["phase"] == "Odd";
    let parents = stage.objects(STRICT);
    parents.becomes("p", "to have a status", is_written).await?;
    stage.condition(condition::STALLED, "False").await?;
    stage.condition(condition::READY, "True").await?;
    Ok(())
}
