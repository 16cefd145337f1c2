//! Kinds that are missing, wrong, deleted under way, or installed later.

use anyhow::ensure;
use metashard_api::names::{condition, event, reason};
use metashard_testkit::crds;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    canary::Canary,
    support::{
        CONFIG_MAP, CONTROLLER, Kind, Stage, THING, config_map, data_of, healed_in_time,
        throughout, version_of,
    },
};

const CRD: Kind = Kind {
    api_version: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    namespaced: false,
};

const STATUSLESS: Kind = thing_like("Statusless", "statuslesses");
const LATE_PARENT: Kind = thing_like("LateParent", "lateparents");
const LATE_CHILD: Kind = thing_like("LateChild", "latechildren");
const LOST_PARENT: Kind = thing_like("LostParent", "lostparents");
const LOST_CHILD: Kind = thing_like("LostChild", "lostchildren");

const fn thing_like(kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        api_version: crds::API_VERSION,
        kind,
        plural,
        namespaced: true,
    }
}

/// The CRD of a kind that is as `Thing`.
fn crd_of(kind: Kind) -> Value {
    crds::like_thing(kind.kind, kind.plural)
}

fn name_of_crd(kind: Kind) -> String {
    format!("{}.{}", kind.plural, crds::GROUP)
}

/// A condition of the stage's controller does not hold for this reason, and says `text`; so does one of its events.
async fn is_told(
    stage: &Stage,
    type_: &str,
    why: &str,
    event: &str,
    text: &str,
) -> anyhow::Result<()> {
    is_warned(stage, event, text).await?;
    is_said(stage, type_, why, text).await
}

/// An event of the stage's controller says `text`.
async fn is_warned(stage: &Stage, event: &str, text: &str) -> anyhow::Result<()> {
    let controller = stage.objects(CONTROLLER).get(&stage.namespace).await?;
    let told = stage.event(&controller, event, text).await?;
    ensure!(told["type"] == "Warning", "{told:#}");
    Ok(())
}

/// A condition of the stage's controller does not hold for this reason, and says `text`.
async fn is_said(stage: &Stage, type_: &str, why: &str, text: &str) -> anyhow::Result<()> {
    stage.says(type_, "False", why, text).await?;
    stage.condition(condition::READY, "False").await?;
    Ok(())
}

#[tokio::test]
async fn parents_without_a_status_subresource_are_left_alone_until_they_have_one()
-> anyhow::Result<()> {
    let canary = Canary::shared().await?;
    let stage = Stage::new("statusless").await?;
    let mut crd = crd_of(STATUSLESS);
    crd["spec"]["versions"][0]["subresources"] = Value::Null;
    crds::install_one(&stage.client, &crd).await?;
    let watch = canary.watch();
    let spec = json!({ "children": [config_map("made", json!({}))] });
    let before = stage.parent(STATUSLESS, "parent", spec).await?;

    stage
        .controller()
        .parent(STATUSLESS)
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let text = format!(
        "[{}] Sync error - ignoring, CRD [test.metashard.io/v1, Kind=Statusless] does not have subresource 'Status' enabled",
        stage.namespace
    );
    is_warned(&stage, event::SYNC_ERROR, &text).await?;
    let text =
        "spec.parentResource: statuslesses in test.metashard.io/v1 have no status subresource";
    let why = reason::NO_STATUS_SUBRESOURCE;
    is_said(&stage, condition::ACCEPTED, why, text).await?;
    let log = stage.shared.replica.whole_log();
    let logger = format!("composite.{}", stage.namespace);
    let is_ignored =
        |line: &str| line.contains("Ignoring CompositeController") && line.contains(&logger);
    ensure!(log.lines().any(is_ignored), "it is not logged");
    throughout("no call and no write", async || {
        ensure!(stage.hook.count() == 0, "the hook was called");
        let after = stage.objects(STATUSLESS).get("parent").await?;
        ensure!(version_of(&before) == version_of(&after), "{after:#}");
        Ok(())
    })
    .await?;

    let since = Instant::now();
    crds::install_one(&stage.client, &crd_of(STATUSLESS)).await?;
    stage.objects(CONFIG_MAP).appears("made").await?;
    healed_in_time(since)?;
    stage.condition(condition::READY, "True").await?;
    watch.is_unharmed().await
}

#[tokio::test]
async fn a_controller_whose_parents_kind_is_installed_later_starts_by_itself() -> anyhow::Result<()>
{
    let canary = Canary::shared().await?;
    let stage = Stage::new("late-parent").await?;
    let watch = canary.watch();
    stage
        .controller()
        .parent(LATE_PARENT)
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let text = "spec.parentResource: discovery: can't find resource lateparents in apiVersion test.metashard.io/v1; \
                install its CustomResourceDefinition, or correct apiVersion and resource";
    is_told(
        &stage,
        condition::ACCEPTED,
        reason::RESOURCE_NOT_FOUND,
        event::CREATE_ERROR,
        text,
    )
    .await?;

    let since = Instant::now();
    crds::install_one(&stage.client, &crd_of(LATE_PARENT)).await?;
    let spec = json!({ "children": [config_map("made", json!({}))] });
    stage.parent(LATE_PARENT, "parent", spec).await?;
    stage.objects(CONFIG_MAP).appears("made").await?;
    healed_in_time(since)?;
    stage.condition(condition::READY, "True").await?;
    watch.is_unharmed().await
}

#[tokio::test]
async fn parents_that_wait_for_a_kind_of_children_get_them_once_it_is_installed()
-> anyhow::Result<()> {
    let canary = Canary::shared().await?;
    let stage = Stage::new("late-child").await?;
    let watch = canary.watch();
    stage
        .controller()
        .child(LATE_CHILD, "InPlace")
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let missing = json!({
        "apiVersion": LATE_CHILD.api_version, "kind": LATE_CHILD.kind, "metadata": { "name": "made" },
    });
    let spec = json!({ "children": [config_map("other", json!({})), missing] });
    let parents = [
        stage.parent(THING, "one", spec.clone()).await?,
        stage
            .parent(THING, "two", json!({ "children": [] }))
            .await?,
    ];

    // The other kind is served all the same, and people are told of the missing one: on the controller and on the parent.
    stage.objects(CONFIG_MAP).appears("other").await?;
    let text = "spec.childResources[0]: discovery: can't find resource latechildren in apiVersion test.metashard.io/v1";
    is_told(
        &stage,
        condition::WATCHES_READY,
        reason::RESOURCE_NOT_FOUND,
        event::SYNC_ERROR,
        text,
    )
    .await?;
    let text = "desired child LateChild made: the API server does not serve its kind now";
    stage.event(&parents[0], event::CHILD_REFUSED, text).await?;

    let since = Instant::now();
    crds::install_one(&stage.client, &crd_of(LATE_CHILD)).await?;
    stage.objects(LATE_CHILD).appears("made").await?;
    healed_in_time(since)?;
    stage.condition(condition::READY, "True").await?;
    watch.is_unharmed().await
}

#[tokio::test]
async fn a_controller_whose_parents_kind_is_deleted_under_way_goes_on_when_it_is_back()
-> anyhow::Result<()> {
    let canary = Canary::shared().await?;
    let stage = Stage::new("lost-parent").await?;
    crds::install_one(&stage.client, &crd_of(LOST_PARENT)).await?;
    stage
        .controller()
        .parent(LOST_PARENT)
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("made", json!({}))] });
    stage.parent(LOST_PARENT, "parent", spec).await?;
    let child = stage.objects(CONFIG_MAP).appears("made").await?;
    stage.settle(LOST_PARENT, "parent").await?;
    stage.condition(condition::READY, "True").await?;
    let watch = canary.watch();

    stage.objects(CRD).delete(&name_of_crd(LOST_PARENT)).await?;
    let text =
        "test.metashard.io/v1/lostparents: the API server does not serve it; is its CRD installed?";
    is_told(
        &stage,
        condition::WATCHES_READY,
        reason::RESOURCE_NOT_FOUND,
        event::SYNC_ERROR,
        text,
    )
    .await?;
    let left = stage.objects(CONFIG_MAP).get("made").await?;
    ensure!(version_of(&left) == version_of(&child), "{left:#}");

    let since = Instant::now();
    crds::install_one(&stage.client, &crd_of(LOST_PARENT)).await?;
    let spec = json!({ "children": [config_map("anew", json!({}))] });
    stage.parent(LOST_PARENT, "parent", spec).await?;
    stage.objects(CONFIG_MAP).appears("anew").await?;
    healed_in_time(since)?;
    stage.condition(condition::READY, "True").await?;
    watch.is_unharmed().await
}

#[tokio::test]
async fn other_children_are_served_while_the_kind_of_some_is_deleted() -> anyhow::Result<()> {
    let canary = Canary::shared().await?;
    let stage = Stage::new("lost-child").await?;
    crds::install_one(&stage.client, &crd_of(LOST_CHILD)).await?;
    stage
        .controller()
        .child(LOST_CHILD, "InPlace")
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let lost = json!({
        "apiVersion": LOST_CHILD.api_version, "kind": LOST_CHILD.kind, "metadata": { "name": "lost" },
    });
    let children = |text: &str| json!([lost, config_map("steady", json!({ "text": text }))]);
    let spec = json!({ "children": children("before") });
    stage.parent(THING, "parent", spec).await?;
    stage.objects(LOST_CHILD).appears("lost").await?;
    let steady = stage.objects(CONFIG_MAP).appears("steady").await?;
    stage.settle(THING, "parent").await?;
    let watch = canary.watch();

    stage.objects(CRD).delete(&name_of_crd(LOST_CHILD)).await?;
    let text = "lostchildren";
    is_told(
        &stage,
        condition::WATCHES_READY,
        reason::RESOURCE_NOT_FOUND,
        event::SYNC_ERROR,
        text,
    )
    .await?;
    let patch = json!({ "spec": { "children": children("after") } });
    stage.objects(THING).patch("parent", patch).await?;
    // A hook that looks into the group of the kind still finds it.
    let after =
        |request: &Value| request["parent"]["spec"]["children"][1]["data"]["text"] == "after";
    let request = stage.request("the edited parent", after).await?;
    let group = &request["children"]["LostChild.test.metashard.io/v1"];
    ensure!(*group == json!({}), "{:#}", request["children"]);
    let edited = stage
        .objects(CONFIG_MAP)
        .becomes("steady", "to be updated", |it| {
            data_of(it)["text"] == "after"
        })
        .await?;
    ensure!(
        edited["metadata"]["uid"] == steady["metadata"]["uid"],
        "{edited:#}"
    );

    let since = Instant::now();
    crds::install_one(&stage.client, &crd_of(LOST_CHILD)).await?;
    stage.objects(LOST_CHILD).appears("lost").await?;
    healed_in_time(since)?;
    stage.condition(condition::READY, "True").await?;
    watch.is_unharmed().await
}
