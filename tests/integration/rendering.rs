//! `render` plans what the worker wrote, byte for byte, also from what a user has: the hook's request and its answer. From
//! what replicas recorded every stage is compared, see `support::parity`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{Context, ensure};
use metashard_kube::gate::wire;
use metashard_plan::{
    hook::Hook,
    input,
    render::{Asked, Input, render_against},
    resources::Resources,
};
use metashard_reconcile::{
    object::Object,
    write::{WriteError, WriteResult},
};
use metashard_testkit::{crds, hook::Call, proxy::Exchange};
use serde_json::{Value, json, value::RawValue};

use crate::support::{CONFIG_MAP, SECRET, Stage, THING, as_told, config_map, data_of, labelled};

/// What was written in a stage's namespace, events left out.
fn written(stage: &Stage) -> Vec<Exchange> {
    let inside = format!("/namespaces/{}/", stage.namespace);
    let mut all = stage.shared.cluster.sent(0);
    all.retain(|it| it.path.contains(&inside) && !it.path.contains("/events"));
    all
}

/// Renders each call of the hook with its answer, and finds each write among those that the replica made.
/// What is left over.
async fn left_over(stage: &Stage) -> anyhow::Result<Vec<Exchange>> {
    let mut left = written(stage);
    for call in stage.hook.calls() {
        let mut missing = Vec::new();
        let hook = Hook::recorded(as_told(&call.json()).to_string());
        render_against(input_of(&call)?, &hook, |asked| {
            // Whatever is read is read before the hook is called.
            let Asked::Write(write) = asked else {
                return Err(WriteError::NoAuthority);
            };
            let wire = wire(write);
            let same = |it: &Exchange| {
                it.method == wire.method && it.path == wire.path && it.body == wire.body
            };
            let Some(found) = left.iter().position(same) else {
                let body = String::from_utf8_lossy(&wire.body).into_owned();
                missing.push(format!("{} {} {body}", wire.method, wire.path));
                return Err(WriteError::NoAuthority);
            };
            answer_of(&left.remove(found))
        })
        .await;
        ensure!(
            missing.is_empty(),
            "rendered, and not written like that: {missing:#?}; written: {:#?}",
            written(stage)
        );
    }
    Ok(left)
}

/// What the API server answered, as the worker's write gate reads it.
fn answer_of(exchange: &Exchange) -> WriteResult {
    match (exchange.status, exchange.method.as_str()) {
        (_, "DELETE") => Ok(None),
        (200 | 201, _) => Ok(Object::parse(exchange.answer.clone()).ok().map(Arc::new)),
        _ => Err(WriteError::Conflict),
    }
}

/// What the sync that made this call started from.
fn input_of(call: &Call) -> anyhow::Result<Input> {
    let request: BTreeMap<&str, &RawValue> = serde_json::from_slice(&call.body)?;
    let part = |name: &str| {
        request
            .get(name)
            .copied()
            .context("read a part of a request")
    };
    let mut resources = Resources::default();
    resources.add_crd(crds::thing());
    let controller: Value = serde_json::from_str(part("controller")?.get())?;
    let controller = input::controller(&controller, &resources)?;
    let object = |raw: &RawValue| -> anyhow::Result<Arc<Object>> {
        Ok(Arc::new(Object::parse(raw.get().as_bytes().to_vec())?))
    };
    let parent = object(part("parent")?)?;
    let rule = controller
        .rule_of(&parent)
        .context("find the parent's rule")?;
    let groups: BTreeMap<&str, BTreeMap<&str, &RawValue>> =
        serde_json::from_str(part("children")?.get())?;
    let children = groups.values().flat_map(BTreeMap::values);
    Ok(Input {
        resource: Arc::clone(&rule.resource),
        others: children
            .map(|it| object(it))
            .collect::<anyhow::Result<_>>()?,
        controller,
        parent,
        resources: Arc::new(resources),
    })
}

fn secret(value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": { "k": value },
    })
}

#[tokio::test]
async fn what_is_rendered_is_what_the_worker_wrote_byte_for_byte() -> anyhow::Result<()> {
    let stage = Stage::new("render").await?;
    let controller = stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .child(SECRET, "Recreate");
    controller.apply().await?;
    let map = |value: &str| {
        labelled(
            config_map("a", json!({ "k": value, "odd": "<&>\u{e9}" })),
            "app",
            "x",
        )
    };
    let spec = |children: Value, phase: &str| json!({ "children": children, "status": { "phase": phase, "n": 1.50 } });
    let things = stage.objects(THING);

    // Create, update, recreate, delete; the parent's status with each.
    stage
        .parent(
            THING,
            "p",
            spec(
                json!([
                    map("1"),
                    config_map("b", json!({ "x": "y" })),
                    secret("MQ==")
                ]),
                "One",
            ),
        )
        .await?;
    stage.settle(THING, "p").await?;
    things
        .patch(
            "p",
            json!({ "spec": spec(json!([map("2"), secret("Mg==")]), "Two") }),
        )
        .await?;
    stage.settle(THING, "p").await?;
    let maps = stage.objects(CONFIG_MAP);
    maps.patch("a", json!({ "data": { "k": "edited by hand" } }))
        .await?;
    let is_back = |it: &Value| data_of(it)["k"] == "2";
    maps.becomes("a", "to be put back", is_back).await?;
    stage.settle(THING, "p").await?;

    let methods = written(&stage)
        .iter()
        .map(|it| it.method.to_string())
        .collect();
    let expected: BTreeSet<_> = ["DELETE", "POST", "PUT"].map(str::to_owned).into();
    assert_eq!(expected, methods);
    let left_over = left_over(&stage).await?;
    assert!(
        left_over.is_empty(),
        "written, and not rendered: {left_over:#?}"
    );
    Ok(())
}
