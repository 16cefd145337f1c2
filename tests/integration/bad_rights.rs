//! A replica that may not do all that its controllers ask for.

use anyhow::ensure;
use metashard_api::names::{condition, event, reason};
use metashard_testkit::{FakeHook, hook::Answer};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    fault::PARENT,
    poor::{Poor, rule, served_by},
    support::{CONFIG_MAP, SECRET, Stage, THING, config_map, healed_in_time},
};

#[tokio::test]
async fn each_missing_right_is_told_by_verb_and_resource_and_holds_up_one_controller_only()
-> anyhow::Result<()> {
    let poor = Poor::start("rights").await?;
    let watch = poor.canary.watch();
    let stage = Stage::new("rights").await?;
    let controller = stage.controller().child(SECRET, "InPlace");
    let controller = served_by(controller, &poor.name).apply().await?;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "made" } });
    let parent = json!({ "children": [secret] });
    let parent = stage.parent(THING, PARENT, parent).await?;
    let cannot = |verb: &str| format!("User \"{}\" cannot {verb} resource \"secrets\"", poor.name);

    stage
        .event(&controller, event::SYNC_ERROR, &cannot("watch"))
        .await?;
    let (watches, why) = (condition::WATCHES_READY, reason::FORBIDDEN);
    stage.says(watches, "False", why, &cannot("watch")).await?;
    poor.grant(&["watch", "list"]).await?;
    stage.condition(condition::WATCHES_READY, "True").await?;
    stage
        .event(&parent, event::SYNC_ERROR, &cannot("create"))
        .await?;
    let authorized = condition::AUTHORIZED;
    stage
        .says(authorized, "False", why, &cannot("create"))
        .await?;

    poor.grant(&["create", "update", "delete"]).await?;
    stage.objects(SECRET).appears("made").await?;
    stage.condition(condition::AUTHORIZED, "True").await?;
    watch.is_unharmed().await
}

#[tokio::test]
async fn a_controller_that_may_read_one_secret_needs_no_right_to_others() -> anyhow::Result<()> {
    let poor = Poor::start("one-secret").await?;
    let stage = Stage::new("one-secret").await?;
    let secret = json!({ "metadata": { "name": "hook" }, "stringData": { "token": "t" } });
    stage.objects(SECRET).create(secret).await?;
    let token = json!({ "name": "hook", "namespace": stage.namespace, "key": "token" });
    let controller = stage.controller().child(CONFIG_MAP, "InPlace").edit(|it| {
        it["spec"]["hooks"]["sync"]["webhook"]["authorization"] = json!({ "secretRef": token });
    });
    let controller = served_by(controller, &poor.name).apply().await?;

    let text = format!("Secret {}/hook cannot be read: ", stage.namespace);
    stage.event(&controller, event::CREATE_ERROR, &text).await?;
    stage.condition(condition::ACCEPTED, "False").await?;

    let mut right = rule("", "secrets", &["list", "watch"]);
    right["resourceNames"] = json!(["hook"]);
    poor.grant_in(&stage, "read", json!([right])).await?;
    stage.condition(condition::ACCEPTED, "True").await?;
    let spec = json!({ "children": [config_map("made", json!({}))] });
    stage.parent(THING, PARENT, spec).await?;
    stage.objects(CONFIG_MAP).appears("made").await?;
    Ok(())
}

#[tokio::test]
async fn related_objects_that_may_not_be_read_hold_up_their_controller_until_they_may()
-> anyhow::Result<()> {
    let poor = Poor::start("rights-related").await?;
    let watch = poor.canary.watch();
    let hook = FakeHook::start(|call| {
        Answer::json(&if call.path == "/customize" {
            json!({ "relatedResources": [{ "apiVersion": "v1", "resource": "secrets" }] })
        } else {
            json!({ "children": [] })
        })
    })?;
    let stage = Stage::with_hook("rights-related", hook).await?;
    let url = stage.hook.url("/customize");
    let controller = stage
        .controller()
        .edit(|it| it["spec"]["hooks"]["customize"] = json!({ "webhook": { "url": url } }));
    let controller = served_by(controller, &poor.name).apply().await?;
    stage.parent(THING, PARENT, json!({})).await?;

    let cannot = format!("User \"{}\" cannot watch resource \"secrets\"", poor.name);
    stage.event(&controller, event::SYNC_ERROR, &cannot).await?;
    let (watches, why) = (condition::WATCHES_READY, reason::FORBIDDEN);
    stage.says(watches, "False", why, &cannot).await?;
    ensure!(
        stage.hook.calls_to("/sync").is_empty(),
        "the hook was called without its related objects"
    );

    let since = Instant::now();
    poor.grant(&["watch", "list"]).await?;
    let has_related = |it: &Value| it["related"]["Secret.v1"].is_object();
    stage
        .request("a request with the related objects", has_related)
        .await?;
    healed_in_time(since)?;
    stage.condition(condition::WATCHES_READY, "True").await?;
    watch.is_unharmed().await
}
