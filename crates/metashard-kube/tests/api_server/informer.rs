//! Views of a healthy API server.

use std::sync::Arc;

use anyhow::{Context, ensure};
use kube::api::{Patch, PatchParams};
use metashard_fleet::shard::Cut;
use metashard_kube::{
    discovery::Discovery,
    identity::Identity,
    informer::{Controlled, Interest, TroubleKind, View, ViewKey, ViewState},
};
use metashard_runtime::{shutdown::Shutdown, task};
use metashard_testkit::{
    Cluster, crds,
    wait::{eventually, throughout},
};
use serde_json::json;
use std::time::Duration;

use crate::kit::{Kit, Recorder, SOON, config_maps, connect, seen, synced, things};

#[tokio::test]
async fn a_view_shows_what_is_there_and_what_happens() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    kit.create("one", &[]).await?;

    let (view, recorder) = kit.open().await?;
    assert_eq!(recorder.take(), ["+one", "synced"]);
    kit.create("two", &[]).await?;
    seen(&view, &kit.namespace, "two").await?;
    kit.config_maps
        .patch(
            "one",
            &PatchParams::default(),
            &Patch::Merge(json!({ "data": { "a": "b" } })),
        )
        .await?;
    kit.delete("two").await?;

    eventually(SOON, "the deletion", async || {
        ensure!(
            view.get(Some(&kit.namespace), "two").is_none(),
            "it is still there"
        );
        Ok(())
    })
    .await?;
    assert_eq!(recorder.take(), ["+two", "~one", "-two"]);
    let one = view.get(Some(&kit.namespace), "one").context("one")?;
    assert_eq!((one.api_version(), one.kind()), ("v1", "ConfigMap"));
    Ok(())
}

#[tokio::test]
async fn a_list_of_what_is_known_tells_nothing_and_keeps_the_objects() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    kit.create("one", &[]).await?;
    let (view, recorder) = kit.open().await?;
    recorder.take();
    let before = view.get(Some(&kit.namespace), "one").context("one")?;

    tokio::time::timeout(SOON, view.refresh()).await?;

    assert_eq!(recorder.take(), Vec::<String>::new());
    let after = view.get(Some(&kit.namespace), "one").context("one")?;
    assert!(Arc::ptr_eq(&before, &after));
    assert!(kit.metric("metashard_kube_lists_total", "streaming") >= 2.0);
    Ok(())
}

#[tokio::test]
async fn a_refreshed_view_shows_what_was_written_before_and_goes_on() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let (view, recorder) = kit.open().await?;
    recorder.take();

    kit.create("one", &[]).await?;
    tokio::time::timeout(SOON, view.refresh()).await?;
    assert!(view.get(Some(&kit.namespace), "one").is_some());
    kit.create("two", &[]).await?;
    seen(&view, &kit.namespace, "two").await?;

    assert_eq!(recorder.take(), ["+one", "+two"]);
    Ok(())
}

#[tokio::test]
async fn a_view_that_is_joined_afresh_is_listed_once_more_and_a_new_one_is_not()
-> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let lists = || kit.metric("metashard_kube_lists_total", "streaming");

    let (first, wish) = kit.informers.open_fresh(kit.key(), None);
    tokio::time::timeout(SOON, first.fulfilled(wish)).await?;
    let of_a_new_one = lists();
    kit.create("one", &[]).await?;
    let (second, wish) = kit.informers.open_fresh(kit.key(), None);
    tokio::time::timeout(SOON, second.fulfilled(wish)).await?;

    assert!(second.get(Some(&kit.namespace), "one").is_some());
    assert_eq!((of_a_new_one, lists()), (1.0, 2.0));
    Ok(())
}

#[tokio::test]
async fn a_view_reaches_the_version_of_a_write_even_if_it_does_not_select_it() -> anyhow::Result<()>
{
    let kit = Kit::shared().await?;
    let (all, _) = kit.open().await?;
    let some = kit.informers.open(kit.key().selecting("app=web"), None);
    synced(&some).await?;

    let created = kit.create("one", &[("app", "other")]).await?;
    let version = created.metadata.resource_version.context("a version")?;

    tokio::time::timeout(SOON, all.reach(&version)).await?;
    assert!(all.get(Some(&kit.namespace), "one").is_some());
    tokio::time::timeout(SOON, some.reach(&version)).await?;
    assert!(some.list().is_empty());
    Ok(())
}

#[tokio::test]
async fn the_api_server_filters_by_selector() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    kit.create("web", &[("app", "web"), ("tier", "front")])
        .await?;
    kit.create("db", &[("app", "db")]).await?;
    let recorder = Arc::new(Recorder::default());
    let key = kit.key().selecting("app in (web,api),tier!=back");

    let view = kit.informers.open(key, Some(Arc::clone(&recorder) as _));
    synced(&view).await?;
    assert_eq!(recorder.take(), ["+web", "synced"]);
    let relabel = Patch::Merge(json!({ "metadata": { "labels": { "tier": "back" } } }));
    kit.config_maps
        .patch("web", &PatchParams::default(), &relabel)
        .await?;

    eventually(
        SOON,
        "the relabelled object to leave the view",
        async || {
            ensure!(view.list().is_empty(), "it is still there");
            Ok(())
        },
    )
    .await?;
    assert_eq!(recorder.take(), ["-web"]);
    Ok(())
}

#[tokio::test]
async fn children_are_found_by_owner_and_orphans_by_namespace() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let parent = kit.create("parent", &[]).await?;
    let uid = parent.metadata.uid.context("a uid")?;
    kit.create("child", &[]).await?;
    let (view, _) = kit.open().await?;
    let owned = json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": uid, "controller": true }
    ] } });

    kit.config_maps
        .patch("child", &PatchParams::default(), &Patch::Merge(owned))
        .await?;

    eventually(SOON, "the child", async || {
        ensure!(view.owned_by(&uid).len() == 1, "it is not there");
        Ok(())
    })
    .await?;
    let orphans = view.ownerless(Some(&kit.namespace));
    assert!(orphans.iter().all(|orphan| orphan.name() != "child"));
    assert!(orphans.iter().any(|orphan| orphan.name() == "parent"));
    Ok(())
}

#[tokio::test]
async fn users_of_one_view_share_a_watch_that_outlives_the_first_of_them() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let (first, _) = kit.open().await?;
    let (second, recorder) = kit.open().await?;
    recorder.take();

    drop(first);
    kit.create("late", &[]).await?;

    seen(&second, &kit.namespace, "late").await?;
    assert_eq!(recorder.take(), ["+late"]);
    assert!((kit.metric("metashard_kube_lists_total", "v1/configmaps") - 1.0).abs() < 0.1);
    assert!((kit.metric("metashard_kube_views", "live") - 1.0).abs() < 0.1);
    drop(second);
    assert!(kit.metric("metashard_kube_views", "live").abs() < 0.1);
    Ok(())
}

#[tokio::test]
async fn a_view_of_metadata_holds_no_content() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    kit.create("one", &[("app", "web")]).await?;

    let view = kit.informers.open(kit.key().metadata_only(), None);
    synced(&view).await?;

    let one = view.get(Some(&kit.namespace), "one").context("one")?;
    assert_eq!(one.kind(), "PartialObjectMetadata");
    assert_eq!(one.label("app"), Some("web"));
    Ok(())
}

#[tokio::test]
async fn a_missing_crd_is_named_and_found_soon_after_it_is_installed() -> anyhow::Result<()> {
    let cluster = Cluster::start(metashard_testkit::cluster::Options::default()).await?;
    let kit = Kit::on(&cluster).await?;
    let discovery = Discovery::new(&kit.clients, &kit.informers);
    let shutdown = Shutdown::new();
    let running = task::spawn(
        "discovery",
        discovery
            .clone()
            .run(Duration::from_secs(30), shutdown.token()),
    );
    let view = kit
        .informers
        .open(ViewKey::new(Identity::process(), Arc::new(things())), None);

    let mut state = view.state();
    let failing = tokio::time::timeout(
        SOON,
        state.wait_for(|state| matches!(state, ViewState::Failing(_))),
    )
    .await??
    .clone();
    let ViewState::Failing(trouble) = failing else {
        anyhow::bail!("{failing:?}")
    };
    assert_eq!(trouble.kind, TroubleKind::Missing);
    assert!(
        trouble.message.contains("test.metashard.io/v1/things"),
        "{}",
        trouble.message
    );
    // Long enough that only the news of the CRD can wake the view in time.
    throughout(Duration::from_secs(4), "the view fails", async || {
        ensure!(!view.state().borrow().is_synced());
        Ok(())
    })
    .await?;
    crds::install_one(&cluster.admin().await?, &crds::thing()).await?;

    tokio::time::timeout(Duration::from_secs(8), view.synced())
        .await
        .context("the view is not live")?;
    eventually(SOON, "discovery to know the kind", async || {
        let found = discovery.lookup(crds::API_VERSION, "things");
        ensure!(found.is_some_and(|things| things.has_status), "it does not");
        Ok(())
    })
    .await?;
    shutdown.request();
    running.await?;
    Ok(())
}

#[tokio::test]
async fn a_missing_right_is_named_and_a_granted_one_is_used() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let kit = Kit::shared().await?;
    let user = format!("reader-{}", kit.namespace);
    let clients = connect(cluster.kubeconfig(&user)?, &prometheus::Registry::new()).await?;
    let informers = metashard_kube::informer::Informers::new(&clients);

    let view = informers.open(kit.key(), None);
    let mut state = view.state();
    let failing = tokio::time::timeout(
        SOON,
        state.wait_for(|state| matches!(state, ViewState::Failing(_))),
    )
    .await??
    .clone();
    let ViewState::Failing(trouble) = failing else {
        anyhow::bail!("{failing:?}")
    };
    assert_eq!(trouble.kind, TroubleKind::Forbidden);
    assert!(
        trouble.message.contains("list and watch v1/configmaps"),
        "{}",
        trouble.message
    );
    assert!(
        trouble
            .message
            .contains("cannot watch resource \"configmaps\""),
        "{}",
        trouble.message
    );
    let namespace = &kit.namespace;
    cluster
        .apply_yaml(&format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {{name: reader, namespace: {namespace}}}, \
             rules: [{{apiGroups: [''], resources: [configmaps], verbs: [list, watch]}}]}}\n---\n\
             {{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {{name: reader, namespace: {namespace}}}, \
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}}, \
             subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {user}}}]}}"
        ))
        .await?;

    tokio::time::timeout(Duration::from_secs(31), view.synced())
        .await
        .context("the view is not live")?;
    Ok(())
}

#[tokio::test]
async fn resources_are_found_by_plural_and_by_kind() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let discovery = Discovery::new(&kit.clients, &kit.informers);
    assert!(discovery.lookup("v1", "configmaps").is_none());

    discovery.refresh().await?;

    assert_eq!(
        discovery.lookup("v1", "configmaps").as_deref(),
        Some(&config_maps())
    );
    let deployments = discovery
        .lookup_kind("apps/v1", "Deployment")
        .context("deployments")?;
    assert!(deployments.has_status && deployments.namespaced);
    assert_eq!(discovery.lookup("apps/v1", "configmaps"), None);
    let before = *discovery.changed().borrow();
    discovery.refresh().await?;
    assert_eq!(*discovery.changed().borrow(), before);
    assert!(kit.metric("rest_client_requests_total", "304") >= 1.0);
    Ok(())
}

/// ConfigMaps of a color, and the interest in what they control.
async fn owners_of(kit: &Kit, color: &str) -> anyhow::Result<(Arc<[View]>, Interest)> {
    let key = kit.key().selecting(format!("color={color}"));
    let owners: Arc<[View]> = [kit.informers.open(key, None)].into();
    synced(&owners[0]).await?;
    let interest = Interest::Controlled(Controlled {
        by: Arc::clone(&owners),
        cut: Cut::WHOLE,
        with_ownerless: false,
    });
    Ok((owners, interest))
}

#[tokio::test]
async fn a_view_keeps_what_its_users_want_and_is_listed_anew_for_one_who_wants_more()
-> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let lists = || kit.metric("metashard_kube_lists_total", "streaming");
    let foreign = || kit.metric("metashard_kube_watch_events_total", "foreign");
    let red = kit.create("red", &[("color", "red")]).await?;
    let blue = kit.create("blue", &[("color", "blue")]).await?;
    kit.create_owned("of-red", &red).await?;
    kit.create_owned("of-blue", &blue).await?;
    let (_, interest) = owners_of(&kit, "red").await?;

    let of_red = kit.informers.open_for(kit.key(), interest, None);
    synced(&of_red).await?;
    ensure!(names(&of_red) == ["of-red"], "{:?}", names(&of_red));
    let before = foreign();
    let last = kit.create_owned("of-blue-2", &blue).await?;
    let version = last.metadata.resource_version.context("a version")?;
    tokio::time::timeout(SOON, of_red.reach(&version)).await?;
    ensure!(foreign() > before, "it was not counted");
    ensure!(names(&of_red) == ["of-red"], "{:?}", names(&of_red));
    let of_one = lists();

    let (owners, interest) = owners_of(&kit, "blue").await?;
    let of_blue = kit.informers.open_for(kit.key(), interest, None);
    synced(&of_blue).await?;
    let blue = owners[0].get(Some(&kit.namespace), "blue");
    ensure!(of_blue.lacks(&*blue.context("blue")?), "it lacks two");
    tokio::time::timeout(SOON, of_blue.refresh()).await?;

    // Its owners were listed too.
    let more = lists() - of_one;
    ensure!((1.5..2.5).contains(&more), "{more} more lists");
    let all = ["of-blue", "of-blue-2", "of-red"];
    ensure!(of_red.is_synced() && names(&of_blue) == all);
    Ok(())
}

fn names(view: &View) -> Vec<String> {
    let mut names: Vec<_> = view.list().iter().map(|it| it.name().to_owned()).collect();
    names.sort_unstable();
    names
}
