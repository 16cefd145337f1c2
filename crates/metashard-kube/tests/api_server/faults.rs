//! Views while the API server fails.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use metashard_kube::{
    identity::Identity,
    informer::{TroubleKind, ViewKey, ViewState},
};
use metashard_testkit::{Cluster, cluster::Options, wait::eventually};

use crate::{
    kit::{Kit, Recorder, SOON, live, seen},
    proxy::Proxy,
};

#[tokio::test]
async fn a_cut_watch_goes_on_where_it_was_without_a_list() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let proxy = Proxy::before(cluster).await?;
    let kit = Kit::with(cluster, proxy.kubeconfig.clone()).await?;
    kit.create("one", &[]).await?;
    let (view, recorder) = kit.open().await?;
    recorder.take();

    proxy.cut();
    kit.create("two", &[]).await?;
    kit.delete("one").await?;
    proxy.open();

    seen(&view, &kit.namespace, "two").await?;
    eventually(SOON, "the deletion", async || {
        ensure!(
            view.get(Some(&kit.namespace), "one").is_none(),
            "it is still there"
        );
        Ok(())
    })
    .await?;
    assert_eq!(recorder.take(), ["+two", "-one"]);
    assert!((kit.metric("metashard_kube_lists_total", "v1/configmaps") - 1.0).abs() < 0.1);
    Ok(())
}

#[tokio::test]
async fn what_was_deleted_before_the_api_server_remembers_is_told_once() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let proxy = Proxy::before(&cluster).await?;
    let kit = Kit::with(&cluster, proxy.kubeconfig.clone()).await?;
    kit.create("kept", &[]).await?;
    kit.create("lost", &[]).await?;
    let (view, recorder) = kit.open().await?;
    recorder.take();

    proxy.cut();
    kit.delete("lost").await?;
    kit.create("new", &[]).await?;
    // Its cache begins anew, so it does not know what happened before.
    cluster.restart_api_server().await?;
    proxy.open();

    seen(&view, &kit.namespace, "new").await?;
    eventually(SOON, "the deletion", async || {
        ensure!(
            view.get(Some(&kit.namespace), "lost").is_none(),
            "it is still there"
        );
        Ok(())
    })
    .await?;
    let mut told = recorder.take();
    told.sort_unstable();
    assert_eq!(told, ["+new", "-lost"]);
    assert!(kit.metric("metashard_kube_lists_total", "v1/configmaps") >= 2.0);
    Ok(())
}

#[tokio::test]
async fn every_view_recovers_from_restarts_of_the_api_server() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let kit = Kit::on(&cluster).await?;
    metashard_testkit::crds::install(&cluster.admin().await?).await?;
    let (config_maps, _) = kit.open().await?;
    let open = |resource| {
        let recorder = Arc::new(Recorder::default());
        let key =
            ViewKey::new(Identity::process(), Arc::new(resource)).in_namespace(&*kit.namespace);
        kit.informers.open(key, Some(recorder as _))
    };
    let things = open(crate::kit::things());
    let mut secrets = crate::kit::config_maps();
    secrets.plural = "secrets".to_owned();
    secrets.kind = "Secret".to_owned();
    let secrets = open(secrets);
    let secret_api: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(cluster.admin().await?, &kit.namespace);
    for view in [&things, &secrets] {
        crate::kit::synced(view).await?;
    }

    for round in 0..3 {
        cluster.kill_api_server().await?;
        let failing = eventually(SOON, "the view to notice", async || {
            let state = config_maps.state().borrow().clone();
            ensure!(matches!(state, ViewState::Failing(_)), "{state:?}");
            Ok(state)
        })
        .await?;
        let ViewState::Failing(trouble) = failing else {
            anyhow::bail!("{failing:?}")
        };
        assert_eq!(
            (trouble.kind, trouble.synced),
            (TroubleKind::Unavailable, true)
        );
        cluster.start_api_server().await?;

        let name = format!("after-{round}");
        kit.create(&name, &[]).await?;
        let secret = serde_json::from_value(serde_json::json!({ "metadata": { "name": name } }))?;
        secret_api.create(&PostParams::default(), &secret).await?;
        metashard_testkit::apply::apply(
            &cluster.admin().await?,
            &serde_json::json!({
                "apiVersion": "test.metashard.io/v1", "kind": "Thing",
                "metadata": { "namespace": kit.namespace, "name": name },
            }),
        )
        .await?;
        for view in [&config_maps, &things, &secrets] {
            seen(view, &kit.namespace, &name)
                .await
                .with_context(|| format!("round {round}, {view:?}"))?;
            live(view).await?;
        }
    }
    secret_api
        .delete("after-0", &DeleteParams::default())
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_refresh_waits_out_an_absence_and_the_old_watch_goes_on() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let proxy = Proxy::before(cluster).await?;
    let kit = Kit::with(cluster, proxy.kubeconfig.clone()).await?;
    let (view, recorder) = kit.open().await?;
    recorder.take();

    proxy.cut();
    let refreshed = tokio::time::timeout(Duration::from_millis(500), view.refresh()).await;
    assert!(refreshed.is_err());
    kit.create("one", &[]).await?;
    proxy.open();
    tokio::time::timeout(SOON, view.refresh()).await?;

    assert_eq!(recorder.take(), ["+one"]);
    Ok(())
}
