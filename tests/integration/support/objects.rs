//! Objects of any kind as plain JSON.

use anyhow::Context;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use metashard_testkit::crds;
use serde_json::{Value, json};

use super::eventually;

/// A kind of objects.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "they are called so in manifests")]
pub(crate) struct Kind {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) namespaced: bool,
}

/// The usual parent.
pub(crate) const THING: Kind = namespaced(crds::API_VERSION, "Thing", "things");
/// The cluster-scoped parent.
pub(crate) const BIG_THING: Kind = cluster_scoped(crds::API_VERSION, "BigThing", "bigthings");
/// A kind of two versions, in the one that is not stored.
pub(crate) const MULTI_V2: Kind = namespaced("test.metashard.io/v2", "Multi", "multis");
/// A kind whose list items get defaults.
pub(crate) const DEFAULTED: Kind = namespaced(crds::API_VERSION, "Defaulted", "defaulteds");
pub(crate) const CONFIG_MAP: Kind = namespaced("v1", "ConfigMap", "configmaps");
pub(crate) const SECRET: Kind = namespaced("v1", "Secret", "secrets");
pub(crate) const SERVICE: Kind = namespaced("v1", "Service", "services");
pub(crate) const REPLICA_SET: Kind = namespaced("apps/v1", "ReplicaSet", "replicasets");
pub(crate) const POD: Kind = namespaced("v1", "Pod", "pods");
pub(crate) const LEASE: Kind = namespaced("coordination.k8s.io/v1", "Lease", "leases");
pub(crate) const SHARD_MAP: Kind = namespaced("metashard.io/v1beta1", "ShardMap", "shardmaps");
pub(crate) const PLACEMENT: Kind = namespaced("metashard.io/v1beta1", "Placement", "placements");
pub(crate) const EVENT: Kind = namespaced("v1", "Event", "events");
pub(crate) const NAMESPACE: Kind = cluster_scoped("v1", "Namespace", "namespaces");
pub(crate) const CONTROLLER: Kind = cluster_scoped(
    "metacontroller.k8s.io/v1alpha1",
    "CompositeController",
    "compositecontrollers",
);
pub(crate) const DECORATOR: Kind = cluster_scoped(
    "metacontroller.k8s.io/v1alpha1",
    "DecoratorController",
    "decoratorcontrollers",
);

const fn namespaced(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        api_version,
        kind,
        plural,
        namespaced: true,
    }
}

const fn cluster_scoped(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Kind {
    Kind {
        api_version,
        kind,
        plural,
        namespaced: false,
    }
}

/// The objects of one kind, in one namespace if it is namespaced.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    kind: Kind,
    api: Api<DynamicObject>,
}

impl Objects {
    /// Those of `namespace`, unless the kind is cluster-scoped.
    pub(crate) fn new(client: &Client, kind: Kind, namespace: &str) -> Self {
        let (group, version) = kind
            .api_version
            .split_once('/')
            .unwrap_or(("", kind.api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: kind.api_version.to_owned(),
            kind: kind.kind.to_owned(),
            plural: kind.plural.to_owned(),
        };
        let api = if kind.namespaced {
            Api::namespaced_with(client.clone(), namespace, &resource)
        } else {
            Api::all_with(client.clone(), &resource)
        };
        Self { kind, api }
    }

    /// Those of all namespaces, to be listed.
    pub(crate) fn everywhere(client: &Client, kind: Kind) -> Self {
        let of_cluster = Kind {
            namespaced: false,
            ..kind
        };
        Self {
            kind,
            ..Self::new(client, of_cluster, "")
        }
    }

    /// The object of this name.
    pub(crate) async fn get(&self, name: &str) -> anyhow::Result<Value> {
        let found = self.find(name).await?;
        found.with_context(|| format!("there is no {} {name}", self.kind.kind))
    }

    /// The object of this name, if there is one.
    pub(crate) async fn find(&self, name: &str) -> anyhow::Result<Option<Value>> {
        self.api.get_opt(name).await?.map(value).transpose()
    }

    /// All of them.
    pub(crate) async fn list(&self) -> anyhow::Result<Vec<Value>> {
        let list = self.api.list(&ListParams::default()).await?;
        list.items.into_iter().map(value).collect()
    }

    /// Creates an object; `apiVersion` and `kind` are filled in.
    pub(crate) async fn create(&self, object: Value) -> anyhow::Result<Value> {
        self.create_with(&PostParams::default(), object).await
    }

    /// Creates an object as this field manager.
    pub(crate) async fn create_as(&self, manager: &str, object: Value) -> anyhow::Result<Value> {
        let params = PostParams {
            field_manager: Some(manager.to_owned()),
            ..PostParams::default()
        };
        self.create_with(&params, object).await
    }

    async fn create_with(&self, params: &PostParams, mut object: Value) -> anyhow::Result<Value> {
        object["apiVersion"] = self.kind.api_version.into();
        object["kind"] = self.kind.kind.into();
        let what = format!("create {} {}", self.kind.kind, object["metadata"]["name"]);
        let object = serde_json::from_value(object)?;
        let created = self.api.create(params, &object).await;
        value(created.context(what)?)
    }

    /// Merges `patch` into an object.
    pub(crate) async fn patch(&self, name: &str, patch: Value) -> anyhow::Result<Value> {
        let patched = self
            .api
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        value(patched.with_context(|| format!("patch {} {name}", self.kind.kind))?)
    }

    /// Applies an object by the server, by force, as this manager.
    pub(crate) async fn apply_as(&self, manager: &str, object: &Value) -> anyhow::Result<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let params = PatchParams::apply(manager).force();
        let applied = self.api.patch(name, &params, &Patch::Apply(object)).await;
        value(applied.with_context(|| format!("apply {} {name}", self.kind.kind))?)
    }

    /// Replaces an object by one that is based on the version in the API server.
    pub(crate) async fn replace(&self, object: &Value) -> anyhow::Result<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let replaced = self
            .api
            .replace(name, &PostParams::default(), &object)
            .await;
        value(replaced.with_context(|| format!("replace {} {name}", self.kind.kind))?)
    }

    /// Merges `status` into the status of an object, by its subresource.
    pub(crate) async fn patch_status(&self, name: &str, status: Value) -> anyhow::Result<Value> {
        let patch = Patch::Merge(json!({ "status": status }));
        let patched = self
            .api
            .patch_status(name, &PatchParams::default(), &patch)
            .await;
        value(patched.with_context(|| format!("patch the status of {} {name}", self.kind.kind))?)
    }

    /// Deletes an object in the background.
    pub(crate) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.delete_with(name, DeleteParams::background()).await
    }

    /// Deletes an object; its dependents first.
    pub(crate) async fn delete_in_foreground(&self, name: &str) -> anyhow::Result<()> {
        self.delete_with(name, DeleteParams::foreground()).await
    }

    /// Deletes those with these labels.
    pub(crate) async fn delete_all(&self, selector: &str) -> anyhow::Result<()> {
        let (how, which) = (
            DeleteParams::background(),
            ListParams::default().labels(selector),
        );
        let deleted = self.api.delete_collection(&how, &which).await;
        deleted.context("delete many")?;
        Ok(())
    }

    async fn delete_with(&self, name: &str, params: DeleteParams) -> anyhow::Result<()> {
        let deleted = self.api.delete(name, &params).await;
        deleted.with_context(|| format!("delete {} {name}", self.kind.kind))?;
        Ok(())
    }

    /// The object of this name, once it is as wanted.
    pub(crate) async fn becomes(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        eventually(&format!("{} {name} {what}", self.kind.kind), async || {
            let object = self.get(name).await?;
            anyhow::ensure!(wanted(&object), "it is {object:#}");
            Ok(object)
        })
        .await
    }

    /// The object of this name, once it is there.
    pub(crate) async fn appears(&self, name: &str) -> anyhow::Result<Value> {
        self.becomes(name, "to appear", |_| true).await
    }

    /// Returns once there is no object of this name.
    pub(crate) async fn goes(&self, name: &str) -> anyhow::Result<()> {
        eventually(&format!("{} {name} to go", self.kind.kind), async || {
            let found = self.find(name).await?;
            anyhow::ensure!(found.is_none(), "it is there: {found:#?}");
            Ok(())
        })
        .await
    }
}

fn value(object: DynamicObject) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(object)?)
}

/// A ConfigMap as a hook wants it.
pub(crate) fn config_map(name: &str, data: Value) -> Value {
    let mut object =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    object["data"] = data;
    object
}

/// The same object with a label more.
pub(crate) fn labelled(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["labels"][key] = value.into();
    object
}

/// `data` of an object.
pub(crate) fn data_of(object: &Value) -> Value {
    object["data"].clone()
}

/// Uid and resourceVersion of an object: equal if it was neither written nor made anew.
pub(crate) fn version_of(object: &Value) -> (Value, Value) {
    let metadata = &object["metadata"];
    (metadata["uid"].clone(), metadata["resourceVersion"].clone())
}
