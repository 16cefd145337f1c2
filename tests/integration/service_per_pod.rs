//! The example of this name: a Service for each Pod of a StatefulSet, by two decorators whose hooks are written anew here.
//!
//! No controller of StatefulSets runs in these tests: the Pods are made as it would make them.

use anyhow::ensure;
use metashard_testkit::{FakeHook, hook::Answer};
use serde_json::{Map, Value, json};

use crate::support::{DECORATOR, DecoratorBuilder, Kind, POD, SERVICE, STAGE, Stage, eventually};

const STATEFUL_SET: Kind = Kind {
    api_version: "apps/v1",
    kind: "StatefulSet",
    plural: "statefulsets",
    namespaced: true,
};

/// On a StatefulSet: the label by which the Services select Pods, and their ports.
const LABEL_OF_SERVICES: &str = "service-per-pod-label";
const PORTS: &str = "service-per-pod-ports";
/// On a Pod: the label that is to hold its name.
const LABEL_OF_POD: &str = "pod-name-label";
/// What a v2 hook sets once it has seen its Services under names with their namespace.
const VERIFIED: &str = "v2-naming-verified";

const FOREIGN: &str = "metacontroller.io/service-per-pod-test";

fn annotation<'a>(request: &'a Value, name: &str) -> &'a str {
    let annotations = &request["object"]["metadata"]["annotations"];
    annotations[name].as_str().unwrap_or_default()
}

/// `80:8080,443` as ports of a Service.
fn ports(text: &str) -> Vec<Value> {
    let port = |text: &str| {
        let (port, target) = text.split_once(':').unwrap_or((text, text));
        let number = |text: &str| text.parse::<u16>().unwrap_or_default();
        json!({ "name": format!("port-{port}"), "port": number(port), "targetPort": number(target) })
    };
    text.split(',').map(port).collect()
}

/// The Services that the hook of `service-per-pod` is shown.
fn services(request: &Value) -> Option<&Map<String, Value>> {
    request["attachments"]["Service.v1"].as_object()
}

/// The hook of `service-per-pod`.
fn service_per_pod(request: &Value, is_v2: bool) -> Value {
    let seen = services(request);
    if request["finalizing"] == true {
        return json!({ "attachments": [], "finalized": seen.is_none_or(Map::is_empty) });
    }
    let object = &request["object"];
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let replicas = object["spec"]["replicas"].as_u64().unwrap_or(1);
    let label = annotation(request, LABEL_OF_SERVICES);
    let service = |ordinal: u64| {
        let pod = format!("{name}-{ordinal}");
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": pod, "labels": { "app": "service-per-pod" } },
            "spec": { "selector": { label: pod }, "ports": ports(annotation(request, PORTS)) },
        })
    };
    let mut answer = json!({ "attachments": (0..replicas).map(service).collect::<Vec<_>>() });
    let prefix = format!("{namespace}/{name}-");
    let is_verified = seen
        .is_some_and(|seen| !seen.is_empty() && seen.keys().all(|key| key.starts_with(&prefix)));
    if is_v2 && is_verified {
        answer["annotations"] = json!({ VERIFIED: "true" });
    }
    answer
}

/// The hook of `pod-name-label`.
fn pod_name_label(request: &Value) -> Value {
    let name = &request["object"]["metadata"]["name"];
    json!({ "labels": { annotation(request, LABEL_OF_POD): name } })
}

fn exists(name: &str) -> Value {
    json!({ "key": name, "operator": "Exists" })
}

/// The stage with both decorators.
async fn stage(claim: &str, version: &'static str) -> anyhow::Result<Stage> {
    let hook = FakeHook::start(move |call| {
        let request = call.json();
        Answer::json(&match call.path.as_str() {
            "/service-per-pod" => service_per_pod(&request, version == "v2"),
            _ => pod_name_label(&request),
        })
    })?;
    let stage = Stage::with_hook(claim, hook).await?;
    DecoratorBuilder::new(&stage, "service-per-pod")
        .target(STATEFUL_SET)
        .attaching(SERVICE, "InPlace")
        .finalize()
        .edit(|it| {
            let needed = [exists(LABEL_OF_SERVICES), exists(PORTS)];
            it["spec"]["resources"][0]["annotationSelector"] =
                json!({ "matchExpressions": needed });
            for hook in ["sync", "finalize"] {
                it["spec"]["hooks"][hook]["version"] = version.into();
            }
        })
        .apply()
        .await?;
    DecoratorBuilder::new(&stage, "pod-name-label")
        .target(POD)
        .edit(|it| {
            let rule = &mut it["spec"]["resources"][0];
            let unlabelled = json!([{ "key": "pod-name", "operator": "DoesNotExist" }]);
            rule["labelSelector"]["matchExpressions"] = unlabelled;
            rule["annotationSelector"] = json!({ "matchExpressions": [exists(LABEL_OF_POD)] });
            it["spec"]["hooks"]["sync"]["version"] = version.into();
        })
        .apply()
        .await?;
    Ok(stage)
}

/// A StatefulSet of three, and its Pods.
async fn nginx(stage: &Stage) -> anyhow::Result<()> {
    let labels = json!({ "app": "nginx", STAGE: stage.namespace });
    let marks = json!({ LABEL_OF_POD: "pod-name" });
    let containers = json!([{ "name": "nginx", "image": "nginx" }]);
    let set = json!({
        "metadata": {
            "name": "nginx", "labels": labels,
            "annotations": { LABEL_OF_SERVICES: "pod-name", PORTS: "80:8080,443" },
        },
        "spec": {
            "replicas": 3, "serviceName": "nginx",
            "selector": { "matchLabels": { "app": "nginx" } },
            "template": {
                "metadata": { "labels": labels, "annotations": marks },
                "spec": { "containers": containers },
            },
        },
    });
    let set = stage.objects(STATEFUL_SET).create(set).await?;
    for ordinal in 0..3 {
        let owner = json!({
            "apiVersion": STATEFUL_SET.api_version, "kind": STATEFUL_SET.kind, "name": "nginx",
            "uid": set["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
        });
        let pod = json!({
            "metadata": {
                "name": format!("nginx-{ordinal}"), "labels": labels, "annotations": marks,
                "ownerReferences": [owner],
            },
            "spec": { "containers": containers },
        });
        stage.objects(POD).create(pod).await?;
    }
    Ok(())
}

fn finalizer(stage: &Stage) -> String {
    format!(
        "metacontroller.io/decoratorcontroller-{}-service-per-pod",
        stage.namespace
    )
}

/// The StatefulSet has just these finalizers.
async fn is_held_by(stage: &Stage, finalizers: &[&str]) -> anyhow::Result<Value> {
    let is_held = |it: &Value| {
        let held = it["metadata"]["finalizers"].as_array();
        let held = held.into_iter().flatten().filter_map(Value::as_str);
        held.eq(finalizers.iter().copied())
    };
    let sets = stage.objects(STATEFUL_SET);
    sets.becomes("nginx", &format!("to be held by {finalizers:?}"), is_held)
        .await
}

/// The first steps of the example: each Pod has a Service.
async fn has_services(stage: &Stage) -> anyhow::Result<()> {
    nginx(stage).await?;
    let services = stage.objects(SERVICE);
    for pod in ["nginx-0", "nginx-1", "nginx-2"] {
        let service = services.appears(pod).await?;
        ensure!(
            service["spec"]["selector"] == json!({ "pod-name": pod }),
            "{service:#}"
        );
        let ports = &service["spec"]["ports"];
        ensure!(
            ports[0]["targetPort"] == 8080 && ports[1]["port"] == 443,
            "{service:#}"
        );
        let is_labelled = |it: &Value| it["metadata"]["labels"]["pod-name"] == pod;
        stage
            .objects(POD)
            .becomes(pod, "to be labelled", is_labelled)
            .await?;
    }
    is_held_by(stage, &[&finalizer(stage)]).await.map(drop)
}

/// The set opts out and in again, and is deleted.
async fn opts_out_and_goes(stage: &Stage) -> anyhow::Result<()> {
    let (services, sets) = (stage.objects(SERVICE), stage.objects(STATEFUL_SET));
    let ours = finalizer(stage);
    let mark =
        |value: Value| json!({ "metadata": { "annotations": { LABEL_OF_SERVICES: value } } });
    sets.patch("nginx", mark(Value::Null)).await?;
    services.goes("nginx-2").await?;
    is_held_by(stage, &[]).await?;

    sets.patch("nginx", mark("pod-name".into())).await?;
    services.appears("nginx-2").await?;
    is_held_by(stage, &[&ours]).await?;

    let both = json!({ "metadata": { "finalizers": [ours, FOREIGN] } });
    sets.patch("nginx", both).await?;
    sets.delete("nginx").await?;
    services.goes("nginx-2").await?;
    let left = is_held_by(stage, &[FOREIGN]).await?;
    ensure!(
        left["metadata"]["deletionTimestamp"].is_string(),
        "{left:#}"
    );
    let free = json!({ "metadata": { "finalizers": null } });
    sets.patch("nginx", free).await?;
    sets.goes("nginx").await
}

#[tokio::test]
async fn each_pod_of_a_stateful_set_gets_a_service_until_the_set_opts_out_or_goes()
-> anyhow::Result<()> {
    let stage = stage("per-pod", "v1").await?;
    has_services(&stage).await?;
    opts_out_and_goes(&stage).await?;
    // A labelled Pod is a target no more, and calls end.
    let called = stage.hook.calls_to("/pod-name-label");
    let is_unlabelled = |it: &Value| it["object"]["metadata"]["labels"].get("pod-name").is_none();
    ensure!(called.iter().all(|call| is_unlabelled(&call.json())));
    Ok(())
}

#[tokio::test]
async fn a_v2_hook_sees_the_services_of_pods_under_names_with_their_namespace() -> anyhow::Result<()>
{
    let stage = stage("per-pod-v2", "v2").await?;
    has_services(&stage).await?;
    // Before it is edited: a decoration of what has changed meanwhile is not written.
    let verified = |it: &Value| annotation(it, VERIFIED) == "true";
    stage
        .request("a request that shows the annotation", verified)
        .await?;
    opts_out_and_goes(&stage).await?;
    eventually("decorators to be ready", async || {
        let name = format!("{}-service-per-pod", stage.namespace);
        let decorator = stage.objects(DECORATOR).get(&name).await?;
        let ready = crate::support::condition_of(&decorator, "Ready");
        ensure!(
            ready.is_some_and(|it| it["status"] == "True"),
            "{decorator:#}"
        );
        Ok(())
    })
    .await
}
