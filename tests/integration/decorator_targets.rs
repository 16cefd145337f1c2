//! DecoratorControllers of all sorts of objects: built-in kinds, cluster-scoped ones, kinds that are installed later.

use std::time::Duration;

use anyhow::ensure;
use metashard_api::names::{condition, reason};
use metashard_testkit::{FakeHook, Replica, crds, hook::Answer, replica};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAP, DECORATOR, DecoratorBuilder, Kind, LONG_LEASE, NAMESPACE, OWN_REPLICA, POD, STAGE,
    Stage, THING, WITHIN, condition_of, config_map, eventually,
};

const DEPLOYMENT: Kind = kind("apps/v1", "Deployment", "deployments", true);
const NODE: Kind = kind("v1", "Node", "nodes", false);
const CLUSTER_ROLE: Kind = kind(
    "rbac.authorization.k8s.io/v1",
    "ClusterRole",
    "clusterroles",
    false,
);
const ROLE_BINDING: Kind = kind(
    "rbac.authorization.k8s.io/v1",
    "RoleBinding",
    "rolebindings",
    true,
);
const CRD: Kind = kind(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    false,
);
const LATE_TARGET: Kind = kind(crds::API_VERSION, "LateTarget", "latetargets", true);
const ROLES_OF: Kind = kind(crds::API_VERSION, "RolesOf", "rolesofs", true);

const fn kind(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Kind {
    Kind {
        api_version,
        kind,
        plural,
        namespaced,
    }
}

/// The CRD of a kind that is as `Thing`.
fn crd_of(kind: Kind) -> Value {
    crds::like_thing(kind.kind, kind.plural)
}

/// A hook that labels every target with its kind, and attaches to it a ConfigMap of its kind's name in `namespace`.
fn by_kind(request: &Value) -> Value {
    let object = &request["object"];
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let mut attached = config_map(&format!("of-{kind}"), json!({}));
    if object["metadata"]["namespace"].is_null() {
        attached["metadata"]["namespace"] = object["metadata"]["name"].clone();
    }
    json!({ "labels": { "kind": kind }, "attachments": [attached] })
}

fn labelled(stage: &Stage, name: &str, spec: &Value) -> Value {
    json!({ "metadata": { "name": name, "labels": { STAGE: stage.namespace } }, "spec": spec })
}

/// The name of the decorator that [`DecoratorBuilder::new`] makes for the path `one`.
fn name_of(stage: &Stage) -> String {
    format!("{}-one", stage.namespace)
}

#[tokio::test]
async fn one_decorator_serves_pods_deployments_and_namespaces() -> anyhow::Result<()> {
    let stage = Stage::answering("built-in", by_kind).await?;
    let containers = json!([{ "name": "c", "image": "example.invalid/none" }]);
    let labels = json!({ "app": "x" });
    let pod = labelled(&stage, "p", &json!({ "containers": containers }));
    stage.objects(POD).create(pod).await?;
    let spec = json!({
        "replicas": 0,
        "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": containers } },
    });
    stage
        .objects(DEPLOYMENT)
        .create(labelled(&stage, "p", &spec))
        .await?;
    let label = json!({ "metadata": { "labels": { STAGE: stage.namespace } } });
    stage
        .objects(NAMESPACE)
        .patch(&stage.namespace, label)
        .await?;

    DecoratorBuilder::new(&stage, "one")
        .target(POD)
        .target(DEPLOYMENT)
        .target(NAMESPACE)
        .attaching(CONFIG_MAP, "InPlace")
        .apply()
        .await?;

    let namespace = stage.namespace.as_str();
    let targets = [
        (POD, "p", "pod"),
        (DEPLOYMENT, "p", "deployment"),
        (NAMESPACE, namespace, "namespace"),
    ];
    for (kind, name, word) in targets {
        let is_labelled = |it: &Value| it["metadata"]["labels"]["kind"] == word;
        let target = stage
            .objects(kind)
            .becomes(name, "to be labelled", is_labelled)
            .await?;
        let attached = stage
            .objects(CONFIG_MAP)
            .appears(&format!("of-{word}"))
            .await?;
        let owner = &attached["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], target["metadata"]["uid"], "{word}");
        assert_eq!(owner["kind"], target["kind"], "{word}");
    }
    // An attachment of one kind of targets wakes a target of that kind.
    stage.objects(CONFIG_MAP).delete("of-deployment").await?;
    stage.objects(CONFIG_MAP).appears("of-deployment").await?;
    Ok(())
}

/// Section 5, `clusteredparent`.
#[tokio::test]
async fn a_cluster_scoped_target_has_attachments_in_namespaces() -> anyhow::Result<()> {
    let stage = Stage::answering("clustered", |request| {
        let metadata = &request["object"]["metadata"];
        let namespace = metadata["annotations"]["default-service-account-binding"].clone();
        json!({ "attachments": [{
            "apiVersion": ROLE_BINDING.api_version, "kind": "RoleBinding",
            "metadata": { "name": "bound", "namespace": namespace },
            "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": namespace }],
            "roleRef": {
                "kind": "ClusterRole", "name": metadata["name"],
                "apiGroup": "rbac.authorization.k8s.io",
            },
        }] })
    })
    .await?;
    let exists = json!({ "key": "default-service-account-binding", "operator": "Exists" });
    DecoratorBuilder::new(&stage, "one")
        .target(CLUSTER_ROLE)
        .edit(|it| {
            it["spec"]["resources"][0]["annotationSelector"] =
                json!({ "matchExpressions": [exists] });
            it["spec"]["attachments"] = json!([
                { "apiVersion": ROLE_BINDING.api_version, "resource": ROLE_BINDING.plural },
            ]);
        })
        .apply()
        .await?;
    let mut role = json!({ "metadata": { "name": stage.namespace }, "rules": [] });
    role["metadata"]["labels"] = json!({ STAGE: stage.namespace });
    role["metadata"]["annotations"] = json!({ "default-service-account-binding": stage.namespace });

    stage.objects(CLUSTER_ROLE).create(role).await?;

    let bindings = stage.objects(ROLE_BINDING);
    let first = bindings.appears("bound").await?;
    bindings.delete("bound").await?;
    let is_new = |it: &Value| it["metadata"]["uid"] != first["metadata"]["uid"];
    bindings.becomes("bound", "to be made anew", is_new).await?;
    stage.objects(CLUSTER_ROLE).delete(&stage.namespace).await?;
    stage.objects(CLUSTER_ROLE).goes(&stage.namespace).await
}

/// Between two passes an attachment came and went: the hook would be shown what it was shown before.
#[tokio::test]
async fn an_attachment_that_is_deleted_before_the_next_pass_is_made_anew() -> anyhow::Result<()> {
    /// Keeps the only worker, while what happens to the other target waits.
    const SLOW: Duration = Duration::from_secs(2);
    let hook = FakeHook::start(|call| {
        let request = call.json();
        if request["object"]["metadata"]["name"] == "slow" {
            Answer::json(&json!({ "attachments": [] })).after(SLOW)
        } else {
            Answer::json(&json!({ "attachments": [config_map("brief", json!({}))] }))
        }
    })?;
    let stage = Stage::with_hook("brief", hook).await?;
    let cluster = &stage.shared.cluster;
    let selector = format!("--target-label-selector={OWN_REPLICA}={}", stage.namespace);
    let options = replica::Options::new(cluster, &stage.namespace, &stage.namespace)?;
    let options = options.flags([selector.as_str(), "--workers=1", LONG_LEASE]);
    let mut replica = Replica::start(cluster.group(), &options)?;
    replica.ready(WITHIN).await?;
    let label = json!({ OWN_REPLICA: stage.namespace });
    DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .attaching(CONFIG_MAP, "InPlace")
        .edit(|it| it["metadata"]["labels"] = label)
        .apply()
        .await?;
    let things = stage.objects(THING);
    stage.parent(THING, "slow", json!({})).await?;
    let is_slow = |it: &Value| it["object"]["metadata"]["name"] == "slow";
    stage.request("the slow target", is_slow).await?;
    stage.parent(THING, "quick", json!({})).await?;
    // It comes again after the quick one, and before the events of that one's attachment.
    let again = json!({ "metadata": { "annotations": { "again": "1" } } });
    things.patch("slow", again).await?;

    let attached = stage.objects(CONFIG_MAP);
    let first = attached.appears("brief").await?;
    attached.delete("brief").await?;

    let is_new = |it: &Value| it["metadata"]["uid"] != first["metadata"]["uid"];
    attached.becomes("brief", "to be made anew", is_new).await?;
    Ok(())
}

/// Section 5, `crd-roles`.
#[tokio::test]
async fn a_crd_is_a_target_with_cluster_scoped_attachments() -> anyhow::Result<()> {
    let stage = Stage::answering("crd-roles", |request| {
        let spec = &request["object"]["spec"];
        let name = format!(
            "{}-reader",
            request["object"]["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
        );
        let rule = json!({
            "apiGroups": [spec["group"]], "resources": [spec["names"]["plural"]], "verbs": ["get"],
        });
        json!({ "attachments": [{
            "apiVersion": CLUSTER_ROLE.api_version, "kind": "ClusterRole",
            "metadata": { "name": name }, "rules": [rule],
        }] })
    })
    .await?;
    DecoratorBuilder::new(&stage, "one")
        .target(CRD)
        .attaching(CLUSTER_ROLE, "InPlace")
        .apply()
        .await?;
    let mut crd = crd_of(ROLES_OF);
    crd["metadata"]["labels"] = json!({ STAGE: stage.namespace });

    crds::install_one(&stage.client, &crd).await?;

    let role = format!("rolesofs.{}-reader", crds::GROUP);
    let role = stage.objects(CLUSTER_ROLE).appears(&role).await?;
    assert_eq!(role["rules"][0]["resources"], json!(["rolesofs"]));
    Ok(())
}

/// N04.
#[tokio::test]
async fn a_node_is_labelled() -> anyhow::Result<()> {
    let stage = Stage::answering("node", |_| json!({ "labels": { "seen": "yes" } })).await?;
    DecoratorBuilder::new(&stage, "one")
        .target(NODE)
        .apply()
        .await?;

    stage
        .objects(NODE)
        .create(labelled(&stage, &stage.namespace, &json!({})))
        .await?;

    let is_seen = |it: &Value| it["metadata"]["labels"]["seen"] == "yes";
    stage
        .objects(NODE)
        .becomes(&stage.namespace, "to be labelled", is_seen)
        .await?;
    Ok(())
}

/// D03, D06 for targets: the others are decorated meanwhile, and the missing kind is named.
#[tokio::test]
async fn targets_of_a_kind_that_is_installed_later_are_decorated_then() -> anyhow::Result<()> {
    let stage = Stage::answering("late-target", by_kind).await?;
    DecoratorBuilder::new(&stage, "one")
        .target(LATE_TARGET)
        .target(THING)
        .attaching(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    stage.parent(THING, "t", json!({})).await?;
    stage.objects(CONFIG_MAP).appears("of-thing").await?;
    let decorators = stage.objects(DECORATOR);
    let tells = |it: &Value| {
        condition_of(it, condition::WATCHES_READY).is_some_and(|it| {
            let message = it["message"].as_str().unwrap_or_default();
            it["reason"] == reason::RESOURCE_NOT_FOUND
                && message.contains("spec.resources[0]: discovery: can't find resource latetargets")
        })
    };
    decorators
        .becomes(&name_of(&stage), "to tell of the missing kind", tells)
        .await?;

    crds::install_one(&stage.client, &crd_of(LATE_TARGET)).await?;
    stage.parent(LATE_TARGET, "t", json!({})).await?;

    stage.objects(CONFIG_MAP).appears("of-latetarget").await?;
    let is_ready =
        |it: &Value| condition_of(it, condition::READY).is_some_and(|it| it["status"] == "True");
    decorators
        .becomes(&name_of(&stage), "to be ready", is_ready)
        .await?;
    Ok(())
}

/// A kind of targets that is one of the attachments too.
#[tokio::test]
async fn an_attachment_of_the_targets_own_kind_is_no_target() -> anyhow::Result<()> {
    let stage = Stage::answering("same-kind", by_kind).await?;
    DecoratorBuilder::new(&stage, "one")
        .target(CONFIG_MAP)
        .attaching(CONFIG_MAP, "InPlace")
        .apply()
        .await?;

    let mut target = labelled(&stage, "t", &Value::Null);
    target.as_object_mut().map(|it| it.remove("spec"));
    stage.objects(CONFIG_MAP).create(target).await?;

    stage.objects(CONFIG_MAP).appears("of-configmap").await?;
    let is_labelled = |it: &Value| it["metadata"]["labels"]["kind"] == "configmap";
    stage
        .objects(CONFIG_MAP)
        .becomes("t", "to be labelled", is_labelled)
        .await?;
    let asked: Vec<_> = stage
        .hook
        .calls()
        .iter()
        .map(metashard_testkit::hook::Call::json)
        .collect();
    assert!(
        asked
            .iter()
            .all(|it| it["object"]["metadata"]["name"] == "t"),
        "{asked:#?}"
    );
    Ok(())
}

/// F02 for decorators.
#[tokio::test]
async fn a_deletion_of_a_target_is_no_change_of_the_status_that_is_ignored() -> anyhow::Result<()> {
    let stage = Stage::answering(
        "ignore",
        |request| json!({ "attachments": [], "finalized": request["finalizing"] }),
    )
    .await?;
    DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .finalize()
        .edit(|it| it["spec"]["resources"][0]["ignoreStatusChanges"] = true.into())
        .apply()
        .await?;
    stage.parent(THING, "t", json!({})).await?;
    let is_held = |it: &Value| !it["metadata"]["finalizers"].is_null();
    stage
        .objects(THING)
        .becomes("t", "to be held", is_held)
        .await?;

    stage.objects(THING).delete("t").await?;

    stage.objects(THING).goes("t").await?;
    stage
        .request("a finalize call", |it| it["finalizing"] == true)
        .await?;
    Ok(())
}

/// 4.3.
#[tokio::test]
async fn metrics_name_a_decorator_by_its_kind() -> anyhow::Result<()> {
    let stage = Stage::answering("metrics", |_| json!({ "attachments": [] })).await?;
    DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .apply()
        .await?;
    stage.parent(THING, "t", json!({})).await?;
    stage.request("a call", |_| true).await?;
    let name = name_of(&stage);

    eventually("the metrics of the decorator", async || {
        let metrics = stage.shared.replica.metrics().await?;
        let queue = format!("workqueue_adds_total{{name=\"DecoratorController-{name}\"}}");
        let labels = format!("controller_name=\"{name}\",controller_type=\"DecoratorController\"");
        let is_call = |line: &str| {
            line.starts_with("metacontroller_sync_requests_total") && line.contains(&labels)
        };
        ensure!(metrics.contains(&queue), "no {queue}");
        ensure!(metrics.lines().any(is_call), "no calls with {labels}");
        Ok(())
    })
    .await
}

/// Decorators are given to replicas as composite controllers are: the next one goes on where the last has stopped.
#[tokio::test]
async fn a_decorator_goes_to_another_replica_when_its_own_is_stopped() -> anyhow::Result<()> {
    let hook = FakeHook::start(|call| Answer::json(&by_kind(&call.json())))?;
    let stage = Stage::with_hook("hand-over", hook).await?;
    let cluster = &stage.shared.cluster;
    let system = stage.namespace.as_str();
    let selector = format!("--target-label-selector={OWN_REPLICA}={system}");
    let start = |name: &str| -> anyhow::Result<Replica> {
        let name = format!("{system}-{name}");
        let options = replica::Options::new(cluster, &name, system)?;
        Replica::start(cluster.group(), &options.flags([selector.as_str()]))
    };
    let mut first = start("a")?;
    first.ready(WITHIN).await?;
    let label = json!({ OWN_REPLICA: system });
    let decorator = DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .attaching(CONFIG_MAP, "InPlace")
        .edit(|it| it["metadata"]["labels"] = label)
        .apply()
        .await?;
    stage.parent(THING, "t", json!({})).await?;
    let attached = stage.objects(CONFIG_MAP).appears("of-thing").await?;
    let started = stage.event(&decorator, "Started", "").await?;
    assert_eq!(started["reportingInstance"], format!("{system}-a"));
    let mut second = start("b")?;
    second.ready(WITHIN).await?;

    first.signal(Signal::TERM)?;
    first.ended(WITHIN).await?;
    stage.objects(CONFIG_MAP).delete("of-thing").await?;

    let is_new = |it: &Value| it["metadata"]["uid"] != attached["metadata"]["uid"];
    stage
        .objects(CONFIG_MAP)
        .becomes("of-thing", "to be made anew", is_new)
        .await?;
    eventually("the second to have started it", async || {
        let events = stage.events(&decorator).await?;
        let by_second = format!("{system}-b");
        let is_its =
            |it: &&Value| it["reason"] == "Started" && it["reportingInstance"] == *by_second;
        ensure!(events.iter().any(|it| is_its(&it)), "{events:#?}");
        Ok(())
    })
    .await
}
