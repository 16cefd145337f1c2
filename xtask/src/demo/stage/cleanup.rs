//! Leaves a user's cluster as it was, apart from metashard's own kinds.

use anyhow::Context;
use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, api::DeleteParams};
use metashard_api::v1alpha1::composite::CompositeController;

use crate::{
    demo::tenants::{self, Example, TENANTS, cast},
    talk::say,
};

/// Deletes the demo's controllers, then its namespaces with all that is in them, then the examples' kinds.
pub(super) async fn run(client: &Client, system_namespace: &str) -> anyhow::Result<()> {
    let controllers: Api<CompositeController> = Api::all(client.clone());
    for cast in cast() {
        delete(&controllers, &cast.controller).await?;
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for tenant in TENANTS {
        delete(&namespaces, &tenants::namespace(tenant)).await?;
    }
    delete(&namespaces, system_namespace).await?;
    let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for example in Example::ALL {
        delete(
            &kinds,
            &format!("{}.examples.metashard.io", example.kind().1),
        )
        .await?;
    }
    say("the demo's objects are being deleted; the CustomResourceDefinitions of metashard stay");
    Ok(())
}

async fn delete<K>(api: &Api<K>, name: &str) -> anyhow::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("delete {name}")),
        Ok(_) => Ok(()),
    }
}
