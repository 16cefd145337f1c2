//! A replica that may not do all that its controllers ask for.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use metashard_api::names::{condition, event, reason};
use metashard_testkit::{FakeHook, Replica, hook::Answer, replica};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    canary::Canary,
    fault::PARENT,
    support::{
        CONFIG_MAP, ControllerBuilder, Kind, OWN_REPLICA, Objects, SECRET, Stage, THING, WITHIN,
        config_map, eventually, shared,
    },
};

/// What a right was missing for goes on within this time after it is granted.
const HEALED_WITHIN: Duration = Duration::from_secs(10);

const CLUSTER_ROLE: Kind = rbac("ClusterRole", "clusterroles", false);
const CLUSTER_ROLE_BINDING: Kind = rbac("ClusterRoleBinding", "clusterrolebindings", false);
const ROLE: Kind = rbac("Role", "roles", true);
const ROLE_BINDING: Kind = rbac("RoleBinding", "rolebindings", true);

const fn rbac(kind: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind {
        api_version: "rbac.authorization.k8s.io/v1",
        kind,
        plural,
        namespaced,
    }
}

/// A replica that acts as a user with few rights: none to Secrets outside of its system namespace.
struct Poor {
    _replica: Replica,
    client: kube::Client,
    /// Of the user, its roles, and the system namespace.
    name: String,
    canary: Arc<Canary>,
}

impl Poor {
    async fn start(claim: &str) -> anyhow::Result<Self> {
        let cluster = &shared().await?.cluster;
        let stage = Stage::new(claim).await?;
        let name = stage.namespace.clone();
        let client = cluster.admin().await?;
        let all = |group: &str, resource: &str| rule(group, resource, &["*"]);
        let rules = json!([
            all("metacontroller.k8s.io", "*"),
            all("test.metashard.io", "*"),
            all("", "configmaps"),
            rule("", "events", &["create", "patch"]),
        ]);
        bind(&client, &name, "basic", rules).await?;
        let here = json!([
            all("coordination.k8s.io", "leases"),
            all("metashard.io", "shardmaps"),
            rule("", "secrets", &["get", "create"]),
        ]);
        bind_in(&client, &name, &name, here).await?;
        let mut options = replica::Options::new(cluster, &name, &name)?
            .flags([format!("--target-label-selector={OWN_REPLICA}={name}").as_str()]);
        options.kubeconfig = cluster.kubeconfig(&name)?;
        let mut replica = Replica::start(cluster.group(), &options)?;
        replica.ready(WITHIN).await?;
        let canary = Canary::start(stage, |controller| served_by(controller, &name)).await?;
        Ok(Self {
            _replica: replica,
            client,
            name,
            canary,
        })
    }

    /// Lets the user do `verbs` with Secrets everywhere.
    async fn grant(&self, verbs: &[&str]) -> anyhow::Result<()> {
        let rules = json!([rule("", "secrets", verbs)]);
        bind(&self.client, &self.name, verbs[0], rules).await
    }
}

fn served_by<'a>(controller: ControllerBuilder<'a>, replica: &str) -> ControllerBuilder<'a> {
    let labels = json!({ OWN_REPLICA: replica });
    controller.edit(|it| it["metadata"]["labels"] = labels)
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
}

/// Gives `user` rights in all namespaces, by a role named after it and `what`.
async fn bind(client: &kube::Client, user: &str, what: &str, rules: Value) -> anyhow::Result<()> {
    let metadata = json!({ "name": format!("{user}-{what}") });
    let role = json!({ "metadata": metadata, "rules": rules });
    Objects::new(client, CLUSTER_ROLE, "").create(role).await?;
    let binding = json!({
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": metadata["name"] },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    });
    Objects::new(client, CLUSTER_ROLE_BINDING, "")
        .create(binding)
        .await?;
    Ok(())
}

/// Gives `user` rights in a namespace.
async fn bind_in(
    client: &kube::Client,
    namespace: &str,
    user: &str,
    rules: Value,
) -> anyhow::Result<()> {
    let role = json!({ "metadata": { "name": user }, "rules": rules });
    Objects::new(client, ROLE, namespace).create(role).await?;
    let binding = json!({
        "metadata": { "name": user },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    });
    Objects::new(client, ROLE_BINDING, namespace)
        .create(binding)
        .await?;
    Ok(())
}

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
    eventually("the condition to tell of it", async || {
        let told = stage.condition(condition::WATCHES_READY, "False").await?;
        let message = told["message"].as_str().unwrap_or_default();
        ensure!(told["reason"] == reason::FORBIDDEN, "{told:#}");
        ensure!(message.contains(&cannot("watch")), "{told:#}");
        Ok(())
    })
    .await?;
    poor.grant(&["watch", "list"]).await?;
    stage.condition(condition::WATCHES_READY, "True").await?;
    stage
        .event(&parent, event::SYNC_ERROR, &cannot("create"))
        .await?;
    let told = stage.condition(condition::AUTHORIZED, "False").await?;
    let message = told["message"].as_str().unwrap_or_default();
    ensure!(message.contains(&cannot("create")), "{told:#}");

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
    bind_in(&poor.client, &stage.namespace, &poor.name, json!([right])).await?;
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
    let told = stage.condition(condition::WATCHES_READY, "False").await?;
    ensure!(told["reason"] == reason::FORBIDDEN, "{told:#}");
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
    let took = since.elapsed();
    ensure!(took < HEALED_WITHIN, "it took {took:?}");
    stage.condition(condition::WATCHES_READY, "True").await?;
    watch.is_unharmed().await
}
