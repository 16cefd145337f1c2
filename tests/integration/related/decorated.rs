//! Related objects of decorators.

use metashard_testkit::{
    FakeHook,
    hook::{Answer, Call},
};
use serde_json::{Value, json};

use super::config_maps;
use crate::support::{CONFIG_MAP, DecoratorBuilder, Stage, THING, config_map};

#[tokio::test]
async fn a_decorator_is_shown_what_its_customize_hook_asks_for_and_only_targets_call_hooks()
-> anyhow::Result<()> {
    let hook = FakeHook::start(|call| {
        let copy = config_map(
            "copy",
            call.json()["related"]["ConfigMap.v1"]["cfg"]["data"].clone(),
        );
        Answer::json(&if call.path == "/customize" {
            json!({ "relatedResources": [config_maps(json!({ "names": ["cfg"] }))] })
        } else {
            json!({ "attachments": [copy] })
        })
    })?;
    let stage = Stage::with_hook("related-decor", hook).await?;
    let maps = stage.objects(CONFIG_MAP);
    maps.create(config_map("cfg", json!({ "text": "one" })))
        .await?;
    let url = stage.hook.url("/customize");
    let decorator = DecoratorBuilder::new(&stage, "sync").target(THING);
    decorator
        .attaching(CONFIG_MAP, "InPlace")
        .edit(|it| it["spec"]["hooks"]["customize"] = json!({ "webhook": { "url": url } }))
        .apply()
        .await?;
    stage
        .objects(THING)
        .create(json!({ "metadata": { "name": "other" }, "spec": {} }))
        .await?;
    stage.parent(THING, "p", json!({})).await?;
    let is = |text: &'static str| move |it: &Value| it["data"]["text"] == text;
    maps.becomes("copy", "to be attached", is("one")).await?;

    maps.patch("cfg", json!({ "data": { "text": "two" } }))
        .await?;

    maps.becomes("copy", "to follow", is("two")).await?;
    let calls = stage.hook.calls();
    let name = |call: &Call| {
        let request = call.json();
        let target = ["parent", "object"].map(|field| request[field]["metadata"]["name"].clone());
        target.into_iter().find(Value::is_string)
    };
    assert!(calls.iter().all(|call| name(call) == Some("p".into())));
    Ok(())
}
