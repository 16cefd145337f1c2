//! The proxy in front of the API server: what it lets through, and each way in which it fails.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{ListParams, ObjectMeta, PostParams},
};
use metashard_testkit::{
    Cluster,
    cluster::client_of,
    proxy::{Fault, Proxy},
};

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn requests_pass_and_are_recorded() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let proxy = Proxy::start(cluster)?;
    let namespaces: Api<Namespace> = Api::all(client_of(&proxy.kubeconfig()).await?);

    let list = namespaces.list(&ListParams::default()).await?;

    assert!(!list.items.is_empty());
    let requests = proxy.requests();
    assert_eq!(requests[0].path, "/api/v1/namespaces");
    assert!(!requests[0].is_write() && !requests[0].is_watch());
    Ok(())
}

#[tokio::test]
async fn a_lost_answer_is_one_of_a_request_that_was_carried_out() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let namespace = cluster.namespace("proxy").await?;
    let proxy = Proxy::start(cluster)?;
    let objects: Api<ConfigMap> =
        Api::namespaced(client_of(&proxy.kubeconfig()).await?, &namespace);
    proxy.fail(|request| {
        if request.is_write() {
            Fault::LoseAnswer
        } else {
            Fault::Pass
        }
    });

    let outcome = objects
        .create(&PostParams::default(), &config_map("lost"))
        .await;

    assert!(
        !matches!(outcome, Ok(_) | Err(kube::Error::Api(_))),
        "{outcome:?}"
    );
    objects.get("lost").await?;
    Ok(())
}

#[tokio::test]
async fn a_cut_or_refused_request_changes_nothing_and_healing_ends_it() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let namespace = cluster.namespace("proxy").await?;
    let proxy = Proxy::start(cluster)?;
    let objects: Api<ConfigMap> =
        Api::namespaced(client_of(&proxy.kubeconfig()).await?, &namespace);
    let create = async |name| {
        objects
            .create(&PostParams::default(), &config_map(name))
            .await
    };

    proxy.fail(|_| Fault::Cut);
    let cut = create("cut").await;
    proxy.fail(|_| Fault::Answer(503));
    let refused = create("refused").await;
    proxy.heal();
    create("healed").await?;

    assert!(cut.is_err());
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 503));
    let names: Vec<_> = objects.list(&ListParams::default()).await?.items;
    assert_eq!(names.len(), 1);
    Ok(())
}
