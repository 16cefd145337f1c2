//! Hooks that fail as servers: silent, slow, gone, broken, overloaded.

use std::{collections::BTreeSet, mem, time::Duration};

use anyhow::ensure;
use metashard_api::names::{condition::HOOKS_READY, reason};
use metashard_testkit::{
    FakeHook, Replica,
    hook::{Answer, Call, gap},
    replica,
};
use serde_json::json;
use tokio::{time::Instant, try_join};

use super::{
    fault::{PARENT, Scene, children},
    support::{
        CONFIG_MAP, CONTROLLER, OWN_REPLICA, Stage, THING, WITHIN, as_told, config_map, eventually,
        shared, throughout,
    },
};

const SYNC_ERROR: &str = "SyncError";

const SECOND: Duration = Duration::from_secs(1);

/// The failure changes nothing, is told of with `text`, and the next good answer counts.
async fn is_survived(claim: &str, answer: Answer, text: &str) -> anyhow::Result<()> {
    let mut scene = Scene::new(claim).await?;

    scene.fail(answer).await?;

    scene.is_told(SYNC_ERROR, text).await?;
    scene.is_untouched().await?;
    scene.heals().await
}

fn error_page(code: u16) -> Answer {
    let page = "<html><head><title>Error</title></head><body>Traceback: boom</body></html>";
    Answer::status(code, page).header("content-type", "text/html")
}

#[tokio::test]
async fn a_hook_that_drops_connections_is_asked_again() -> anyhow::Result<()> {
    is_survived(
        "dropped",
        Answer::cut(),
        "http error: POST http://127.0.0.1",
    )
    .await
}

#[tokio::test]
async fn a_hook_that_drops_connections_in_the_middle_of_an_answer_is_asked_again()
-> anyhow::Result<()> {
    let answer = Answer::json(&json!({ "children": [] })).cut_after(10);
    is_survived("broken-off", answer, "http error: POST http://127.0.0.1").await
}

#[tokio::test]
async fn a_hook_that_throws_is_asked_again() -> anyhow::Result<()> {
    let text = "unsupported status code: 500 body: <html><head><title>Error</title>";
    is_survived("throws", error_page(500), text).await
}

#[tokio::test]
async fn a_hook_that_answers_with_any_other_status_is_asked_again() -> anyhow::Result<()> {
    let status = |code| Answer::status(code, "");
    try_join!(
        is_survived("created", status(201), "unsupported status code: 201"),
        is_survived("not-modified", status(304), "unsupported status code: 304"),
        is_survived("not-found", status(404), "unsupported status code: 404"),
    )?;
    Ok(())
}

#[tokio::test]
async fn an_answer_that_is_compressed_unasked_is_refused() -> anyhow::Result<()> {
    let answer =
        Answer::status(200, vec![0x1f, 0x8b, 0x08, 0x00]).header("content-encoding", "gzip");
    is_survived("compressed", answer, "an encoding that was not asked for").await
}

#[tokio::test]
async fn a_hook_that_fails_is_asked_less_and_less_often() -> anyhow::Result<()> {
    let mut scene = Scene::new("backoff").await?;

    scene.fail(error_page(500)).await?;

    is_asked_less_and_less_often(&scene).await?;
    scene.heals().await
}

/// Each wait is up to twice the one before; the time that a busy machine takes for a call is small against the last.
async fn is_asked_less_and_less_often(scene: &Scene) -> anyhow::Result<()> {
    let calls = eventually("ten calls", async || {
        let calls = scene.stage.hook.calls();
        ensure!(calls.len() >= 10, "only {}", calls.len());
        Ok(calls)
    })
    .await?;
    let whole = gap(&calls[0], &calls[calls.len() - 1]);
    let last = gap(&calls[calls.len() - 2], &calls[calls.len() - 1]);
    ensure!(4 * last > whole, "the last of {whole:?} was {last:?}");
    Ok(())
}

#[tokio::test]
async fn a_hook_that_names_a_time_to_wait_is_not_asked_before() -> anyhow::Result<()> {
    let mut scene = Scene::new("told-to-wait").await?;
    let wait = 3 * SECOND;
    scene.stage.hook.forget();
    scene.stage.hook.script(vec![
        Answer::status(429, "later").header("retry-after", "3"),
        Answer::json(&json!({ "children": children("before, edited") })),
    ]);

    scene.edit().await?;
    scene.has_caught_up().await?;

    let calls = scene.stage.hook.calls();
    let waited = gap(&calls[0], &calls[1]);
    ensure!(waited >= wait && waited < 3 * wait, "it waited {waited:?}");
    is_no_error(&scene).await?;
    scene.heals().await
}

#[tokio::test]
async fn a_hook_that_is_away_until_a_time_is_not_asked_before() -> anyhow::Result<()> {
    let mut scene = Scene::new("away-until").await?;
    let wait = 3 * SECOND;
    scene.stage.hook.forget();
    scene.stage.hook.script(vec![
        Answer::status(503, "later").header("retry-after", "3"),
        Answer::json(&json!({ "children": children("before, edited") })),
    ]);

    scene.edit().await?;
    let text = "unsupported status code: 503 body: later";
    scene.stage.event(&scene.parent, SYNC_ERROR, text).await?;
    scene.has_caught_up().await?;

    let calls = scene.stage.hook.calls();
    let waited = gap(&calls[0], &calls[1]);
    ensure!(waited >= wait && waited < 3 * wait, "it waited {waited:?}");
    scene.heals().await
}

#[tokio::test]
async fn an_overloaded_hook_that_names_no_time_is_asked_less_and_less_often() -> anyhow::Result<()>
{
    let mut scene = Scene::new("overloaded").await?;

    scene.fail(Answer::status(429, "")).await?;

    is_asked_less_and_less_often(&scene).await?;
    scene.is_untouched().await?;
    is_no_error(&scene).await?;
    scene.heals().await
}

/// To wait is no failure: nobody is warned.
async fn is_no_error(scene: &Scene) -> anyhow::Result<()> {
    throughout("no warning", async || {
        let mut events = scene.stage.events(&scene.parent).await?;
        events.retain(|event| event["type"] == "Warning");
        ensure!(events.is_empty(), "{events:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_hook_that_was_away_is_asked_soon_after_it_is_back() -> anyhow::Result<()> {
    let mut scene = Scene::new("away").await?;
    let gone = mem::replace(&mut scene.stage.hook, FakeHook::json(as_told)?);
    let port = gone.port();

    drop(gone);
    let edited = Instant::now();
    scene.edit().await?;
    scene
        .is_told(SYNC_ERROR, "http error: connect to 127.0.0.1")
        .await?;
    // The connection that was kept open tells it at once.
    let took = edited.elapsed();
    ensure!(took < 5 * SECOND, "it took {took:?}");
    scene.is_untouched().await?;

    scene.stage.hook = FakeHook::start_on(port, |call| Answer::json(&as_told(&call.json())))?;
    scene.heals().await
}

#[tokio::test]
async fn a_hook_that_never_answers_is_cut_at_its_time_out_and_its_slots_are_free_again()
-> anyhow::Result<()> {
    /// More than the syncs that a controller may have at once: five.
    const PARENTS: usize = 8;
    let mut scene = Scene::with("silent", |controller| {
        controller.edit(|it| it["spec"]["hooks"]["sync"]["webhook"]["timeout"] = "1s".into())
    })
    .await?;
    scene.stage.hook.answer_with(|_| Answer::never());

    scene.edit().await?;
    for number in 0..PARENTS {
        let name = format!("more-{number}");
        let spec = json!({ "children": [config_map(&name, json!({}))] });
        scene.stage.parent(THING, &name, spec).await?;
    }
    eventually("every parent to be tried", async || {
        let calls = scene.stage.hook.calls();
        let tried: BTreeSet<String> = calls.iter().map(name_of_parent).collect();
        ensure!(tried.len() > PARENTS, "only {tried:?}");
        Ok(())
    })
    .await?;
    let text = "timed out after 1s";
    scene.stage.event(&scene.parent, SYNC_ERROR, text).await?;
    let why = reason::CALL_FAILED;
    scene.stage.says(HOOKS_READY, "False", why, text).await?;
    scene.is_untouched().await?;

    scene.heals().await?;
    for number in 0..PARENTS {
        let name = format!("more-{number}");
        scene.stage.objects(CONFIG_MAP).appears(&name).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_controller_whose_hook_hangs_is_mended_at_once() -> anyhow::Result<()> {
    let mut scene = Scene::with("hangs", |controller| {
        controller.edit(|it| it["spec"]["hooks"]["sync"]["webhook"]["timeout"] = "300s".into())
    })
    .await?;
    let good = FakeHook::json(as_told)?;
    scene.stage.hook.forget();
    scene.stage.hook.answer_with(|_| Answer::never());
    scene.edit().await?;
    eventually("a call that hangs", async || {
        ensure!(scene.stage.hook.count() > 0, "no call has come");
        Ok(())
    })
    .await?;

    let hooks = json!({ "sync": { "webhook": { "url": good.url("/sync") } } });
    let patch = json!({ "spec": { "hooks": hooks } });
    let name = scene.stage.namespace.clone();
    scene.stage.objects(CONTROLLER).patch(&name, patch).await?;

    scene.heals().await
}

fn name_of_parent(call: &Call) -> String {
    let request = call.json();
    let name = request["parent"]["metadata"]["name"].as_str();
    name.unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_hook_may_take_longer_than_any_lease() -> anyhow::Result<()> {
    const NEEDED: Duration = Duration::from_secs(15);
    let shared = shared().await?;
    let stage = Stage::with_hook(
        "slow",
        FakeHook::start(|call| Answer::json(&as_told(&call.json())).after(NEEDED))?,
    )
    .await?;
    let ours = format!("--target-label-selector={OWN_REPLICA}={}", stage.namespace);
    let options = replica::Options::new(&shared.cluster, &stage.namespace, &stage.namespace)?
        .flags([ours.as_str(), "--lease-duration=6s"]);
    let mut replica = Replica::start(shared.cluster.group(), &options)?;
    let labels = json!({ OWN_REPLICA: stage.namespace });
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .edit(|it| it["metadata"]["labels"] = labels)
        .edit(|it| it["spec"]["hooks"]["sync"]["webhook"]["timeout"] = "60s".into())
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("late", json!({}))] });
    stage.parent(THING, PARENT, spec).await?;
    replica.ready(WITHIN).await?;

    stage.objects(CONFIG_MAP).appears("late").await?;

    let answered: Vec<_> = stage
        .hook
        .calls()
        .iter()
        .map(|call| call.answered)
        .collect();
    ensure!(
        answered[0].is_some(),
        "the first call was given up: {answered:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_finalize_hook_that_fails_keeps_its_parent_until_it_answers() -> anyhow::Result<()> {
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is of one lifetime, the closure of all"
    )]
    let scene = Scene::with("finalize-fails", |controller| controller.finalize()).await?;
    let things = scene.stage.objects(THING);
    scene
        .stage
        .hook
        .answer_with(|call| match call.path.as_str() {
            "/finalize" => error_page(500),
            _ => Answer::json(&as_told(&call.json())),
        });

    things.delete(PARENT).await?;
    scene
        .is_told(
            SYNC_ERROR,
            "finalize hook failed (version=v1): unsupported status code: 500",
        )
        .await?;
    scene.is_untouched().await?;
    let kept = things.get(PARENT).await?;
    ensure!(
        kept["metadata"]["deletionTimestamp"].is_string(),
        "{kept:#}"
    );

    scene
        .stage
        .hook
        .answer_with(|_| Answer::json(&json!({ "children": [], "finalized": true })));
    things.goes(PARENT).await
}
