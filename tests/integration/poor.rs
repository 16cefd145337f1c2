//! Replicas that may not do all that their controllers ask for, and rights that they are given.

use std::sync::Arc;

use metashard_testkit::{Cluster, Replica, proxy::Proxy, replica};
use serde_json::{Value, json};

use super::{
    canary::Canary,
    support::{
        CONFIG_MAP, CONTROLLER, ControllerBuilder, Kind, OWN_REPLICA, Objects, Stage, WITHIN,
        eventually, shared,
    },
};

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

/// A replica that acts as a user with few rights.
pub(crate) struct Poor {
    pub(crate) replica: Replica,
    _proxy: Proxy,
    client: kube::Client,
    /// Of the user, its roles, and the system namespace.
    pub(crate) name: String,
    /// A parent that all is well with.
    pub(crate) canary: Arc<Canary>,
}

impl Poor {
    /// One that has no right to Secrets outside of its system namespace.
    pub(crate) async fn start(claim: &str) -> anyhow::Result<Self> {
        let rules = json!([
            all("metacontroller.k8s.io", "*"),
            all("test.metashard.io", "*"),
            all("", "configmaps"),
            rule("", "events", &["create", "patch"]),
        ]);
        Self::with(claim, rules).await
    }

    /// One that has these rights everywhere, beside those to what it keeps for itself.
    pub(crate) async fn with(claim: &str, rules: Value) -> anyhow::Result<Self> {
        let cluster = &shared().await?.cluster;
        let stage = Stage::new(claim).await?;
        let name = stage.namespace.clone();
        let client = cluster.admin().await?;
        bind(&client, None, (&name, "basic"), rules).await?;
        let here = json!([
            all("coordination.k8s.io", "leases"),
            all("metashard.io", "shardmaps"),
            rule("", "secrets", &["get", "create"]),
            // Of the canary, and records of finalizers.
            all("test.metashard.io", "*"),
            all("", "configmaps"),
        ]);
        bind(&client, Some(&name), (&name, "here"), here).await?;
        let mut options = replica::Options::new(cluster, &name, &name)?.flags([
            format!("--target-label-selector={OWN_REPLICA}={name}").as_str(),
            "--zap-log-level=debug",
            "--zap-encoder=console",
        ]);
        let proxy = Proxy::start_as(cluster, &name)?;
        options.kubeconfig = proxy.kubeconfig();
        may_list(cluster, &name, &[(CONTROLLER, ""), (CONFIG_MAP, &name)]).await?;
        let mut replica = Replica::start(cluster.group(), &options)?;
        replica.ready(WITHIN).await?;
        let canary = Canary::start(stage, |controller| served_by(controller, &name)).await?;
        Ok(Self {
            replica,
            _proxy: proxy,
            client,
            name,
            canary,
        })
    }

    /// Lets the user do `verbs` with Secrets everywhere.
    pub(crate) async fn grant(&self, verbs: &[&str]) -> anyhow::Result<()> {
        let rules = json!([rule("", "secrets", verbs)]);
        bind(&self.client, None, (&self.name, verbs[0]), rules).await
    }

    /// Gives the user rights everywhere, by a role named after it and `what`.
    pub(crate) async fn grant_everywhere(&self, what: &str, rules: Value) -> anyhow::Result<()> {
        bind(&self.client, None, (&self.name, what), rules).await
    }

    /// Gives the user rights in the namespace of a stage, by a role named after it and `what`.
    pub(crate) async fn grant_in(
        &self,
        stage: &Stage,
        what: &str,
        rules: Value,
    ) -> anyhow::Result<()> {
        bind(
            &stage.client,
            Some(&stage.namespace),
            (&self.name, what),
            rules,
        )
        .await
    }

    /// Takes rights away that were given so.
    pub(crate) async fn revoke_in(&self, stage: &Stage, what: &str) -> anyhow::Result<()> {
        let bindings = stage.objects(ROLE_BINDING);
        bindings.delete(&format!("{}-{what}", self.name)).await
    }
}

/// Has a controller served by the replica of this name.
pub(crate) fn served_by<'a>(
    controller: ControllerBuilder<'a>,
    replica: &str,
) -> ControllerBuilder<'a> {
    let labels = json!({ OWN_REPLICA: replica });
    controller.edit(|it| it["metadata"]["labels"] = labels)
}

/// A rule of a role.
pub(crate) fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
}

/// A rule that allows everything.
pub(crate) fn all(group: &str, resource: &str) -> Value {
    rule(group, resource, &["*"])
}

/// Returns once `user` may list each of these kinds, in its namespace: rights count some time after they were given.
pub(crate) async fn may_list(
    cluster: &Cluster,
    user: &str,
    kinds: &[(Kind, &str)],
) -> anyhow::Result<()> {
    let client = cluster.client(user).await?;
    eventually("rights to count", async || {
        for (kind, namespace) in kinds {
            Objects::new(&client, *kind, namespace).list().await?;
        }
        Ok(())
    })
    .await
}

/// Gives `user` rights in one namespace, or in all, by a role named after it and `what`.
pub(crate) async fn bind(
    client: &kube::Client,
    namespace: Option<&str>,
    (user, what): (&str, &str),
    rules: Value,
) -> anyhow::Result<()> {
    let (role_kind, binding_kind) = match namespace {
        Some(_) => (ROLE, ROLE_BINDING),
        None => (CLUSTER_ROLE, CLUSTER_ROLE_BINDING),
    };
    let namespace = namespace.unwrap_or_default();
    let name = format!("{user}-{what}");
    let metadata = json!({ "name": name });
    let here = Objects::new(client, role_kind, namespace);
    if here.find(&name).await?.is_none() {
        here.create(json!({ "metadata": metadata, "rules": rules }))
            .await?;
    }
    Objects::new(client, binding_kind, namespace)
        .create(binding_of(user, role_kind.kind, &metadata))
        .await?;
    Ok(())
}

fn binding_of(user: &str, kind: &str, metadata: &Value) -> Value {
    json!({
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": metadata["name"] },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    })
}
