//! What the tool says when it is used wrongly, when it may not, and when nobody answers or reads.

use std::{fs, time::Duration};

use anyhow::ensure;
use futures::future::try_join_all;
use metashard_testkit::cluster;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::Instant};

use super::{Ran, User};
use crate::support::{Stage, THING};

/// Nobody waits longer than this for being told that a cluster does not answer.
const SOON: Duration = Duration::from_secs(20);

pub(super) fn fails(ran: &Ran, text: &str) -> anyhow::Result<()> {
    ensure!(ran.code == 2, "{ran:#?}");
    ensure!(
        ran.errors.contains(text),
        "{text:?} should be told: {ran:#?}"
    );
    ensure!(!ran.errors.contains("panicked"), "{ran:#?}");
    Ok(())
}

#[tokio::test]
async fn typos_are_answered_with_the_right_word() -> anyhow::Result<()> {
    let stage = Stage::new("ctl-typos").await?;
    stage.controller().apply().await?;
    stage.parent(THING, "parent", json!({})).await?;
    let admin = User::admin(stage.shared)?;
    let name = stage.namespace.as_str();
    let wrong = name.replace("typos", "tpyos");

    fails(&admin.runs(["staus"]).await?, "'status'")?;
    fails(
        &admin.runs(["status", "--contxt", "a"]).await?,
        "'--context'",
    )?;
    fails(&admin.runs(["status", "-o", "jsn"]).await?, "json")?;
    fails(
        &admin.runs(["status", &wrong]).await?,
        &format!("did you mean {name}?"),
    )?;
    fails(
        &admin.runs(["diff", &wrong]).await?,
        &format!("did you mean {name}?"),
    )?;
    let of = |args: &'static [&'static str]| args.iter().copied().chain(["-n", name]);
    fails(
        &admin.runs(of(&["tree", "thign/parent"])).await?,
        "did you mean things?",
    )?;
    fails(
        &admin.runs(of(&["tree", "thing/parnet"])).await?,
        "did you mean parent?",
    )?;
    fails(
        &admin.runs(of(&["why", "thign/parent"])).await?,
        "did you mean things?",
    )?;
    fails(
        &admin.runs(of(&["why", "thing/parnet"])).await?,
        "did you mean parent?",
    )?;
    fails(
        &admin.runs(["why", "thing/parent", "-A"]).await?,
        "name the namespace",
    )?;
    fails(
        &admin.runs(["status", "--context", "nowhere"]).await?,
        "nowhere",
    )?;
    fails(
        &admin.runs(["status", "-l", "a in"]).await?,
        "unable to parse",
    )?;
    Ok(())
}

/// A kubeconfig for an API server at this address.
fn kubeconfig_for(stage: &Stage, address: &str) -> anyhow::Result<User> {
    let path =
        stage
            .shared
            .cluster
            .folder()
            .join(format!("{}.{}.gone", stage.namespace, address.len()));
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "gone",
        "contexts": [{ "name": "gone", "context": { "cluster": "gone", "user": "me" } }],
        "clusters": [{ "name": "gone", "cluster": { "server": address } }],
        "users": [{ "name": "me", "user": {} }],
    });
    fs::write(&path, config.to_string())?;
    Ok(User::with(path))
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_told_of_soon() -> anyhow::Result<()> {
    let stage = Stage::new("ctl-gone").await?;
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let silent = format!("https://{}", silent.local_addr()?);
    let nowhere = "https://no-such-host.invalid:6443".to_owned();

    for address in [&silent, &nowhere] {
        let user = kubeconfig_for(&stage, address)?;
        let user = &user;
        let runs = [
            &["status"][..],
            &["tree", "thing/p"],
            &["diff", "c"],
            &["why", "thing/p"],
        ]
        .map(|args| async move {
            let began = Instant::now();
            let ran = user.runs(args.iter().copied()).await?;
            fails(&ran, "ask the API server at ")?;
            ensure!(ran.errors.lines().count() == 1, "{ran:#?}");
            ensure!(
                began.elapsed() < SOON,
                "{args:?} took {:?}",
                began.elapsed()
            );
            Ok(())
        });
        try_join_all(runs).await?;
    }
    Ok(())
}

/// A user that acts as a ServiceAccount of the stage's namespace, which no role is bound to.
async fn service_account(stage: &Stage) -> anyhow::Result<User> {
    let namespace = &stage.namespace;
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let post = |path: &str, body: Value| {
        http::Request::post(path)
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())
    };
    let account = json!({ "metadata": { "name": "poor" } });
    stage.client.request_text(post(&accounts, account)?).await?;
    let request =
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let made = stage
        .client
        .request_text(post(&format!("{accounts}/poor/token"), request)?)
        .await?;
    let token = serde_json::from_str::<Value>(&made)?["status"]["token"].take();
    let admin = fs::read_to_string(stage.shared.cluster.kubeconfig(cluster::ADMIN)?)?;
    let mut config: Value = serde_json::from_str(&admin)?;
    config["users"][0]["user"] = json!({ "token": token });
    let path = stage
        .shared
        .cluster
        .folder()
        .join(format!("{namespace}.poor"));
    fs::write(&path, config.to_string())?;
    Ok(User::with(path))
}

#[tokio::test]
async fn a_user_without_rights_is_told_the_verb_the_resource_and_the_namespace()
-> anyhow::Result<()> {
    let stage = Stage::new("ctl-rights").await?;
    stage.controller().apply().await?;
    stage.parent(THING, "p", json!({})).await?;
    let user = service_account(&stage).await?;
    let namespace = stage.namespace.as_str();

    let who = format!("system:serviceaccount:{namespace}:poor");
    let status = user.runs(["status"]).await?;
    fails(&status, "cannot list resource \"compositecontrollers\"")?;
    fails(&status, &who)?;
    fails(&status, "at the cluster scope")?;
    let tree = user.runs(["tree", "thing/p", "-n", namespace]).await?;
    let here = format!("in the namespace \"{namespace}\"");
    fails(
        &user.runs(["diff", namespace, "-n", namespace]).await?,
        "cannot list resource",
    )?;
    for ran in [tree, user.runs(["why", "thing/p", "-n", namespace]).await?] {
        fails(&ran, "cannot ")?;
        ensure!(
            ran.errors
                .contains("cannot list resource \"compositecontrollers\"")
                || ran.errors.contains("cannot get resource \"things\"")
                    && ran.errors.contains(&here),
            "{ran:#?}"
        );
    }
    Ok(())
}
