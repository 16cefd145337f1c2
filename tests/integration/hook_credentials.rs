//! Every hook of every kind of controller is called with its own credentials.

use metashard_api::names::event;
use metashard_testkit::hook::Answer;
use serde_json::{Value, json};

use super::{
    hook_security::{called_with, give},
    support::{CONFIG_MAP, DecoratorBuilder, Stage, THING, as_told, config_map},
};

#[tokio::test]
async fn the_hook_of_a_decorator_is_called_with_its_token() -> anyhow::Result<()> {
    let answer = json!({ "labels": { "seen": "1" }, "attachments": [] });
    let stage = Stage::answering("secured-decorator", move |_| answer.clone()).await?;
    let token = json!({ "name": "hook", "namespace": stage.namespace, "key": "token" });
    let decorator = DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .edit(|it| {
            it["spec"]["hooks"]["sync"]["webhook"]["authorization"] = json!({ "secretRef": token });
        })
        .apply()
        .await?;
    stage.parent(THING, "p", json!({})).await?;
    let text = "can't resolve endpoint config for sync hook: spec.hooks.sync.webhook.authorization";
    stage.event(&decorator, event::CREATE_ERROR, text).await?;

    give(&stage, json!({ "token": "t" })).await?;

    called_with(&stage, "Bearer t").await?;
    let is_seen = |it: &Value| it["metadata"]["labels"]["seen"] == "1";
    stage
        .objects(THING)
        .becomes("p", "to be seen", is_seen)
        .await?;
    Ok(())
}

#[tokio::test]
async fn each_hook_of_a_controller_has_credentials_of_its_own() -> anyhow::Result<()> {
    let stage = Stage::new("secured-each").await?;
    stage.hook.answer_with(|call| match call.path.as_str() {
        "/customize" => Answer::json(&json!({ "relatedResources": [] })),
        "/finalize" => Answer::json(&json!({ "children": [], "finalized": true })),
        _ => Answer::json(&as_told(&call.json())),
    });
    give(
        &stage,
        json!({ "sync": "s", "finalize": "f", "customize": "c" }),
    )
    .await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .edit(|it| {
            for hook in ["sync", "finalize", "customize"] {
                let token = json!({ "name": "hook", "namespace": stage.namespace, "key": hook });
                it["spec"]["hooks"][hook] = json!({ "webhook": {
                    "url": stage.hook.url(&format!("/{hook}")),
                    "authorization": { "secretRef": token },
                } });
            }
        })
        .apply()
        .await?;

    let spec = json!({ "children": [config_map("p", json!({}))] });
    stage.parent(THING, "p", spec).await?;
    stage.objects(CONFIG_MAP).appears("p").await?;
    stage.objects(THING).delete("p").await?;

    for (path, authorization) in [
        ("/customize", "Bearer c"),
        ("/sync", "Bearer s"),
        ("/finalize", "Bearer f"),
    ] {
        assert_eq!(called_with(&stage, authorization).await?.path, path);
    }
    Ok(())
}
