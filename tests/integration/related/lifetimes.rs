//! How long the caches of related objects, and the answers that ask for them, live.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use metashard_testkit::{FakeHook, Replica, hook::Answer};
use serde_json::{Value, json};

use super::{quiet, stage};
use crate::support::{SECRET, STAGE, Stage, THING, eventually};

/// Controllers that two replicas share: enough that each of them gets some.
const CONTROLLERS: usize = 8;

/// How many caches of Secrets a replica has that are followed.
async fn caches(replica: &Replica) -> anyhow::Result<usize> {
    let text = replica.metrics().await?;
    let sample = "metashard_kube_views{resource=\"v1/secrets\",state=\"live\"} ";
    let value = text.lines().find_map(|line| line.strip_prefix(sample));
    Ok(value.unwrap_or("0").parse()?)
}

async fn has_caches(replica: &Replica, wanted: usize) -> anyhow::Result<()> {
    eventually(&format!("{wanted} caches of Secrets"), async || {
        let now = caches(replica).await?;
        ensure!(now == wanted, "there are {now}");
        Ok(())
    })
    .await
}

/// The controllers that a replica has a queue for: it runs them, or keeps them warm.
async fn open(replica: &Replica, stage: &Stage) -> anyhow::Result<usize> {
    let prefix = format!(
        "workqueue_depth{{name=\"CompositeController-{}",
        stage.namespace
    );
    let text = replica.metrics().await?;
    Ok(text
        .lines()
        .filter(|line| line.starts_with(&prefix))
        .count())
}

/// A rule for the Secrets of one controller.
fn secrets_of(number: &Value) -> Value {
    json!({ "apiVersion": "v1", "resource": "secrets", "labelSelector": { "matchLabels": { "of": number } } })
}

async fn secret(stage: &Stage, number: usize) -> anyhow::Result<Value> {
    let of = number.to_string();
    let metadata = json!({ "name": format!("s{number}"), "labels": { "of": of } });
    let secret = json!({ "metadata": metadata, "stringData": { "version": "0" } });
    stage.objects(SECRET).create(secret).await
}

/// A controller, its parent and the Secret that they ask for.
async fn controller(stage: &Stage, number: usize) -> anyhow::Result<()> {
    secret(stage, number).await?;
    let name = format!("{}-{number}", stage.namespace);
    let labels = json!({ STAGE: name });
    let url = stage.hook.url("/customize");
    let controller = stage.controller().own().edit(|it| {
        it["metadata"]["name"] = name.as_str().into();
        it["spec"]["parentResource"]["labelSelector"]["matchLabels"] = labels.clone();
        it["spec"]["hooks"]["customize"] = json!({ "webhook": { "url": url } });
    });
    controller.apply().await?;
    let metadata = json!({ "name": format!("p{number}"), "labels": labels });
    let spec = json!({ "number": number.to_string() });
    let things = stage.objects(THING);
    things
        .create(json!({ "metadata": metadata, "spec": spec }))
        .await?;
    Ok(())
}

/// What a hook was shown of the Secrets of each parent, in order: resourceVersions, `None` where there was none.
fn shown(hook: &FakeHook) -> BTreeMap<String, Vec<Option<u64>>> {
    let mut shown: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for call in hook.calls_to("/sync") {
        let request = call.json();
        let parent = request["parent"]["metadata"]["name"].as_str();
        let secrets = request["related"]["Secret.v1"].as_object();
        let first = secrets.and_then(|secrets| secrets.values().next());
        let version = first.and_then(|it| it["metadata"]["resourceVersion"].as_str()?.parse().ok());
        let parent = parent.unwrap_or_default().to_owned();
        shown.entry(parent).or_default().push(version);
    }
    shown
}

#[tokio::test]
async fn a_new_owner_fills_its_caches_before_it_acts_and_the_old_one_closes_them()
-> anyhow::Result<()> {
    let hook = FakeHook::start(|call| {
        let number = &call.json()["parent"]["spec"]["number"];
        Answer::json(&match call.path.as_str() {
            "/customize" => json!({ "relatedResources": [secrets_of(number)] }),
            _ => json!({ "children": [] }),
        })
    })?;
    let stage = Stage::with_hook("related-move", hook).await?;
    let first = stage.replica("move-1", "").await?;
    for number in 0..CONTROLLERS {
        controller(&stage, number).await?;
    }
    has_caches(&first, CONTROLLERS).await?;

    let second = stage.replica("move-2", "").await?;
    let mut edit = 0;
    eventually("both replicas to have controllers", async || {
        // Whoever acts on an older state than was acted on before shows it to the hook.
        edit += 1;
        for number in 0..CONTROLLERS {
            let patch = json!({ "stringData": { "version": edit.to_string() } });
            let secrets = stage.objects(SECRET);
            secrets.patch(&format!("s{number}"), patch).await?;
        }
        let here = open(&first, &stage).await?;
        let there = open(&second, &stage).await?;
        ensure!(
            here > 0 && there > 0 && here + there == CONTROLLERS,
            "they have {here} and {there}"
        );
        Ok(())
    })
    .await?;

    // More of them may move meanwhile.
    eventually(
        "each replica to have what its controllers need",
        async || {
            let (here, there) = (open(&first, &stage).await?, open(&second, &stage).await?);
            ensure!(here + there == CONTROLLERS, "they have {here} and {there}");
            for (replica, wanted) in [(&first, here), (&second, there)] {
                let caches = caches(replica).await?;
                ensure!(caches == wanted, "{caches} caches for {wanted}");
            }
            let metrics = first.metrics().await?;
            let counted = metrics
                .lines()
                .filter(|line| line.starts_with("metashard_worker_syncs_total{"))
                .map(|line| line.split(',').next().unwrap_or_default())
                .collect::<BTreeSet<_>>();
            ensure!(counted.len() == here, "{counted:#?}");
            Ok(())
        },
    )
    .await?;
    let shown = shown(&stage.hook);
    ensure!(shown.len() == CONTROLLERS, "{shown:#?}");
    for (parent, versions) in shown {
        ensure!(
            versions.iter().all(Option::is_some) && versions.is_sorted(),
            "{parent} was shown {versions:?}"
        );
    }
    Ok(())
}

#[tokio::test]
#[cfg(debug_assertions)]
async fn a_cache_that_nobody_needs_is_closed_after_a_while_and_others_stay() -> anyhow::Result<()> {
    let stage = stage("related-idle").await?;
    let replica = stage.replica("idle-1", "related-idle=1").await?;
    super::controller(&stage, "v1").own().apply().await?;
    for number in ["0", "1"] {
        let spec = json!({ "related": [secrets_of(&number.into())] });
        stage.parent(THING, &format!("p{number}"), spec).await?;
        stage.settle(THING, &format!("p{number}")).await?;
    }
    has_caches(&replica, 2).await?;

    stage.objects(THING).delete("p0").await?;

    has_caches(&replica, 1).await?;
    quiet(&stage).await?;
    stage.hook.forget();
    secret(&stage, 0).await?;
    stage.no_calls().await?;
    secret(&stage, 1).await?;
    stage
        .request("the Secret of the cache that stays", |request| {
            request["related"]["Secret.v1"].get("s1").is_some()
        })
        .await?;
    Ok(())
}

#[tokio::test]
#[cfg(debug_assertions)]
async fn an_answer_of_the_customize_hook_counts_for_a_while_only() -> anyhow::Result<()> {
    let stage = stage("related-old").await?;
    let _replica = stage.replica("old-1", "customized-for=2").await?;
    super::controller(&stage, "v1").own().apply().await?;
    let spec = json!({ "related": [secrets_of(&"0".into())] });
    stage.parent(THING, "p", spec).await?;
    stage.settle(THING, "p").await?;
    quiet(&stage).await?;
    stage.hook.forget();

    // A change of what it asked for starts a sync; the answer has become too old for one of them.
    let mut edit = 0;
    eventually("the customize hook to be asked twice more", async || {
        edit += 1;
        let name = format!("s{edit}");
        let metadata = json!({ "name": name, "labels": { "of": "0" } });
        let secret = json!({ "metadata": metadata });
        stage.objects(SECRET).create(secret).await?;
        let asked = stage.hook.calls_to("/customize").len();
        ensure!(asked > 1, "it was, {asked} times");
        Ok(())
    })
    .await?;

    let asked = stage.hook.calls_to("/customize");
    let mut between = stage.hook.calls_to("/sync");
    between.retain(|it| (asked[0].received..asked[1].received).contains(&it.received));
    ensure!(between.len() > 1, "each change asks the customize hook");
    Ok(())
}
