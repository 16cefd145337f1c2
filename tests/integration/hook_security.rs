//! Hooks with certificates and credentials, which Secrets and ConfigMaps hold.

use std::time::Duration;

use anyhow::{Context, ensure};
use metashard_api::names::{condition, event, reason};
use metashard_testkit::{
    FakeHook,
    hook::{Answer, Authority, Call, Pair, Tls},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::support::{
    CONFIG_MAP, CONTROLLER, SECRET, Stage, THING, as_told, condition_of, config_map, eventually,
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_hours(24);
const YEAR: Duration = Duration::from_hours(365 * 24);

fn answer(call: &Call) -> Answer {
    Answer::json(&as_told(&call.json()))
}

/// A stage whose hook is at an https URL and wants certificates of `ca`.
async fn secure_stage(claim: &str, ca: &Authority) -> anyhow::Result<(Stage, Tls)> {
    let tls = Tls::new(&ca.server()?, &[ca])?;
    let hook = FakeHook::start_secure(&tls, answer)?;
    Ok((Stage::with_hook(claim, hook).await?, tls))
}

/// What a hook needs that wants everything, from the Secret `hook`.
fn all_of_it(stage: &Stage) -> Value {
    let secret = json!({ "name": "hook", "namespace": stage.namespace });
    let mut token = secret.clone();
    token["key"] = "token".into();
    json!({
        "caBundle": { "secretRef": secret },
        "clientTLS": { "secretRef": secret },
        "authorization": { "secretRef": token },
    })
}

/// The data of the Secret `hook`.
fn data(ca: &str, client: &Pair, token: &str) -> Value {
    json!({ "ca.crt": ca, "tls.crt": client.certificate, "tls.key": client.key, "token": token })
}

pub(crate) async fn give(stage: &Stage, data: Value) -> anyhow::Result<()> {
    let secrets = stage.objects(SECRET);
    if secrets.find("hook").await?.is_some() {
        secrets.patch("hook", json!({ "stringData": data })).await?;
    } else {
        let secret = json!({ "metadata": { "name": "hook" }, "stringData": data });
        secrets.create(secret).await?;
    }
    Ok(())
}

/// Creates the controller with `security` for its sync hook.
async fn control(stage: &Stage, security: Value) -> anyhow::Result<Value> {
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .edit(|it| {
            if let Value::Object(fields) = security {
                for (name, value) in fields {
                    it["spec"]["hooks"]["sync"]["webhook"][name] = value;
                }
            }
        })
        .apply()
        .await
}

async fn parent(stage: &Stage, name: &str) -> anyhow::Result<Value> {
    let children = json!([config_map(name, json!({ "x": "1" }))]);
    stage
        .parent(THING, name, json!({ "children": children }))
        .await
}

/// The first call with this `Authorization`.
pub(crate) async fn called_with(stage: &Stage, authorization: &str) -> anyhow::Result<Call> {
    eventually(&format!("a call with {authorization:?}"), async || {
        let calls = stage.hook.calls();
        let found = calls.into_iter().find(|call| {
            call.headers
                .get("authorization")
                .is_some_and(|it| it == authorization)
        });
        found.context("none yet")
    })
    .await
}

#[tokio::test]
async fn a_hook_is_called_with_the_certificates_and_the_token_that_a_secret_holds()
-> anyhow::Result<()> {
    let ca = Authority::new()?;
    let (stage, _tls) = secure_stage("secured", &ca).await?;
    let client = ca.client(YEAR)?;
    give(&stage, data(ca.pem(), &client, "hush-hush\n")).await?;

    let controller = control(&stage, all_of_it(&stage)).await?;
    parent(&stage, "p").await?;
    stage.objects(CONFIG_MAP).appears("p").await?;

    let call = called_with(&stage, "Bearer hush-hush").await?;
    ensure!(call.has_certificate, "the client certificate was not shown");
    stage.condition(condition::HOOKS_READY, "True").await?;
    // Nothing of it is shown to anybody.
    let key = client.key.lines().nth(1).unwrap_or_default().to_owned();
    let shown = format!(
        "{}{:?}{:?}",
        stage.shared.replica.whole_log(),
        stage.events(&controller).await?,
        stage.objects(CONTROLLER).get(&stage.namespace).await?["status"]
    );
    ensure!(
        !shown.contains("hush-hush") && !shown.contains(&key),
        "a secret is shown"
    );
    Ok(())
}

#[tokio::test]
async fn a_controller_whose_secret_is_missing_is_refused_and_starts_when_it_comes()
-> anyhow::Result<()> {
    let ca = Authority::new()?;
    let (stage, _tls) = secure_stage("missing-secret", &ca).await?;
    parent(&stage, "p").await?;

    let applied = Instant::now();
    let controller = control(&stage, all_of_it(&stage)).await?;
    let text = format!(
        "Cannot create new controller: can't resolve endpoint config for sync hook: \
         spec.hooks.sync.webhook.caBundle.secretRef: Secret {}/hook not found; create it",
        stage.namespace
    );
    stage.event(&controller, event::CREATE_ERROR, &text).await?;
    let why = reason::ENDPOINT_NOT_RESOLVED;
    stage.says(condition::ACCEPTED, "False", why, "").await?;
    // The goal is one second; machines that run tests are busy.
    let took = applied.elapsed();
    ensure!(took < 5 * SECOND, "it took {took:?}");
    assert_eq!(stage.told(&controller, event::STARTED).await?, 0);
    assert_eq!(stage.hook.count(), 0);

    give(&stage, data(ca.pem(), &ca.client(YEAR)?, "t")).await?;
    let given = Instant::now();
    stage.objects(CONFIG_MAP).appears("p").await?;
    let took = given.elapsed();
    ensure!(took < 10 * SECOND, "it took {took:?}");
    stage.condition(condition::READY, "True").await?;
    stage
        .event(&controller, event::STARTED, "Started controller")
        .await?;
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_with_a_secret_is_told_until_it_is_right() -> anyhow::Result<()> {
    let ca = Authority::new()?;
    let (stage, _tls) = secure_stage("wrong-secret", &ca).await?;
    let (good, stranger) = (ca.client(YEAR)?, ca.client(YEAR)?);
    let mixed = Pair {
        certificate: good.certificate.clone(),
        key: stranger.key,
    };
    give(&stage, json!({ "other": "x" })).await?;
    control(&stage, all_of_it(&stage)).await?;

    let key = |key: &str| format!("key \"{key}\" of Secret {}/hook", stage.namespace);
    for (data, expected) in [
        (
            json!({}),
            format!("Secret {}/hook has no key \"ca.crt\"; add", stage.namespace),
        ),
        (
            json!({ "ca.crt": "" }),
            format!("{} is empty; give", key("ca.crt")),
        ),
        (
            json!({ "ca.crt": "x" }),
            format!("{} holds no certificate in PEM form; put", key("ca.crt")),
        ),
        (
            data(ca.pem(), &mixed, "t"),
            format!(
                "{} and the private key beside it do not belong",
                key("tls.crt")
            ),
        ),
        (
            data(ca.pem(), &good, "a\nb"),
            format!("{} has characters that no HTTP header", key("token")),
        ),
    ] {
        give(&stage, data).await?;

        eventually(&format!("Accepted to tell of {expected:?}"), async || {
            let controller = stage.objects(CONTROLLER).get(&stage.namespace).await?;
            let accepted = condition_of(&controller, condition::ACCEPTED).context("not yet")?;
            let message = accepted["message"].as_str().unwrap_or_default();
            ensure!(message.contains(&expected), "{accepted:#}");
            Ok(())
        })
        .await?;
    }

    give(&stage, data(ca.pem(), &good, "t")).await?;
    stage.condition(condition::ACCEPTED, "True").await?;
    parent(&stage, "p").await?;
    stage.objects(CONFIG_MAP).appears("p").await?;
    Ok(())
}

#[tokio::test]
async fn a_running_hook_keeps_what_it_had_while_its_secret_is_broken() -> anyhow::Result<()> {
    let ca = Authority::new()?;
    let (stage, _tls) = secure_stage("broken-secret", &ca).await?;
    let client = ca.client(YEAR)?;
    give(&stage, data(ca.pem(), &client, "1")).await?;
    let controller = control(&stage, all_of_it(&stage)).await?;
    parent(&stage, "a").await?;
    stage.objects(CONFIG_MAP).appears("a").await?;

    stage.objects(SECRET).delete("hook").await?;
    let text =
        "not found; create it, or correct the reference; what was read before is still in use";
    stage
        .event(&controller, event::ENDPOINT_NOT_RESOLVED, text)
        .await?;
    let why = reason::ENDPOINT_NOT_RESOLVED;
    stage.says(condition::HOOKS_READY, "False", why, "").await?;
    stage.condition(condition::ACCEPTED, "True").await?;
    parent(&stage, "b").await?;
    stage.objects(CONFIG_MAP).appears("b").await?;

    give(&stage, data(ca.pem(), &client, "2")).await?;
    stage.condition(condition::HOOKS_READY, "True").await?;
    parent(&stage, "c").await?;
    called_with(&stage, "Bearer 2").await?;
    assert_eq!(stage.told(&controller, event::STOPPED).await?, 0);
    Ok(())
}

#[tokio::test]
async fn no_call_fails_while_authority_certificates_and_token_are_replaced() -> anyhow::Result<()> {
    const PARENTS: usize = 6;
    const ROUNDS: usize = 4;
    let mut old = Authority::new()?;
    let (stage, tls) = secure_stage("rotation", &old).await?;
    let mut client = old.client(YEAR)?;
    give(&stage, data(old.pem(), &client, "0")).await?;
    control(&stage, all_of_it(&stage)).await?;
    for number in 0..PARENTS {
        // Each is synced all the time.
        let spec = json!({ "children": [], "resyncAfterSeconds": 0.02 });
        stage.parent(THING, &format!("p-{number}"), spec).await?;
    }
    called_with(&stage, "Bearer 0").await?;

    for round in 1..=ROUNDS {
        let new = Authority::new()?;
        let both = format!("{}{}", old.pem(), new.pem());
        give(&stage, data(&both, &client, &format!("{round}-a"))).await?;
        in_use(&stage, &format!("Bearer {round}-a"), PARENTS).await?;
        tls.replace(&new.server()?, &[&old, &new])?;
        client = new.client(YEAR)?;
        give(&stage, data(new.pem(), &client, &format!("{round}-b"))).await?;
        in_use(&stage, &format!("Bearer {round}-b"), PARENTS).await?;
        tls.replace(&new.server()?, &[&new])?;
        old = new;
    }

    for number in 0..PARENTS {
        let parent = stage.objects(THING).get(&format!("p-{number}")).await?;
        let mut events = stage.events(&parent).await?;
        events.retain(|event| event["type"] == "Warning");
        ensure!(events.is_empty(), "{events:#?}");
    }
    let calls = stage.hook.calls();
    ensure!(
        calls.iter().all(|call| call.has_certificate),
        "a call without certificate"
    );
    Ok(())
}

/// Returns once no call that began before has anything else: each parent was called for twice with this.
async fn in_use(stage: &Stage, authorization: &str, parents: usize) -> anyhow::Result<()> {
    eventually(
        &format!("all calls to come with {authorization:?}"),
        async || {
            let calls = stage.hook.calls();
            let with = calls
                .iter()
                .rev()
                .take_while(|call| {
                    call.headers
                        .get("authorization")
                        .is_some_and(|it| it == authorization)
                })
                .count();
            ensure!(with >= 4 * parents, "{with} of the last");
            Ok(())
        },
    )
    .await
}

#[tokio::test]
async fn the_endpoint_config_for_a_hooks_host_is_used_unless_the_webhook_has_its_own()
-> anyhow::Result<()> {
    let stage = Stage::new("endpoint-config").await?;
    let secret = json!({ "name": "hook", "namespace": stage.namespace });
    let basic = json!({ "basicAuth": { "secretRef": secret } });
    give(
        &stage,
        json!({ "username": "Aladdin", "password": "open sesame", "token": "own" }),
    )
    .await?;
    let host = format!("127.0.0.1:{}", stage.hook.port());
    let mut token = secret.clone();
    token["key"] = "token".into();
    let mut config = basic.clone();
    config["host"] = host.into();
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .finalize()
        .edit(|it| {
            it["spec"]["endpointConfigs"] = json!([{ "host": "elsewhere" }, config]);
            it["spec"]["hooks"]["finalize"]["webhook"]["authorization"] =
                json!({ "type": "ApiKey", "secretRef": token });
        })
        .apply()
        .await?;

    parent(&stage, "p").await?;
    stage.objects(CONFIG_MAP).appears("p").await?;
    let call = called_with(&stage, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==").await?;
    assert_eq!(call.path, "/sync");

    stage
        .hook
        .answer_with(|_| Answer::json(&json!({ "children": [], "finalized": true })));
    stage.objects(THING).delete("p").await?;
    let call = called_with(&stage, "ApiKey own").await?;
    assert_eq!(call.path, "/finalize");
    Ok(())
}

#[tokio::test]
async fn contradictory_security_is_refused_where_it_is_used() -> anyhow::Result<()> {
    let stage = Stage::new("contradiction").await?;
    let secret = json!({ "name": "hook", "namespace": stage.namespace });
    let bundle = json!({ "inline": "x", "secretRef": secret });
    let host = format!("127.0.0.1:{}", stage.hook.port());
    let controller = stage
        .controller()
        .edit(|it| it["spec"]["endpointConfigs"] = json!([{ "host": host, "caBundle": bundle }]))
        .apply()
        .await?;

    let text = "spec.endpointConfigs[0].caBundle: not exactly one source of certificates; give one";
    stage.event(&controller, event::CREATE_ERROR, text).await?;
    let why = reason::INVALID_SPEC;
    stage.says(condition::ACCEPTED, "False", why, "").await?;

    let one =
        json!({ "spec": { "endpointConfigs": [{ "host": "elsewhere", "caBundle": bundle }] } });
    stage
        .objects(CONTROLLER)
        .patch(&stage.namespace, one)
        .await?;
    stage.condition(condition::ACCEPTED, "True").await?;
    Ok(())
}

#[tokio::test]
async fn people_are_told_of_a_certificate_long_before_it_ends() -> anyhow::Result<()> {
    let ca = Authority::new()?;
    let (stage, _tls) = secure_stage("expiry", &ca).await?;
    give(&stage, data(ca.pem(), &ca.client(12 * DAY + DAY / 2)?, "t")).await?;
    let controller = control(&stage, all_of_it(&stage)).await?;
    parent(&stage, "p").await?;
    stage.objects(CONFIG_MAP).appears("p").await?;

    let text = format!(
        "the client certificate in key \"tls.crt\" of Secret {}/hook ends in 12 days; replace it",
        stage.namespace
    );
    stage
        .event(&controller, event::CERTIFICATE_EXPIRES, &text)
        .await?;
    let controllers = stage.objects(CONTROLLER);
    let tells = |it: &Value| {
        condition_of(it, condition::HOOKS_READY).is_some_and(|it| {
            it["status"] == "True" && it["message"].as_str().is_some_and(|it| it.contains(&text))
        })
    };
    controllers
        .becomes(&stage.namespace, "to tell of it", tells)
        .await?;

    give(&stage, data(ca.pem(), &ca.client(YEAR)?, "t")).await?;
    let is_quiet = |it: &Value| {
        condition_of(it, condition::HOOKS_READY).is_some_and(|it| {
            it["message"]
                .as_str()
                .is_some_and(|it| !it.contains("ends in"))
        })
    };
    controllers
        .becomes(&stage.namespace, "to be quiet", is_quiet)
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_former_answer_is_used_by_its_tag_and_not_for_a_parent_made_anew() -> anyhow::Result<()> {
    let stage = Stage::new("etag").await?;
    stage.hook.answer_with(|call| {
        if call.headers.contains_key("if-none-match") {
            return Answer::status(304, "");
        }
        answer(call).header("etag", "\"one\"")
    });
    control(
        &stage,
        json!({ "etag": { "enabled": true, "cacheTimeoutSeconds": 3600 } }),
    )
    .await?;
    parent(&stage, "p").await?;
    stage.objects(CONFIG_MAP).appears("p").await?;

    stage.settle(THING, "p").await?;
    // The former answer holds whatever the parent says now, and its child is kept by it.
    stage.objects(CONFIG_MAP).delete("p").await?;
    stage.objects(CONFIG_MAP).appears("p").await?;
    let with_tag = |call: &Call| {
        call.headers
            .get("if-none-match")
            .is_some_and(|it| it == "\"one\"")
    };
    let calls = stage.hook.calls();
    ensure!(
        !with_tag(&calls[0]) && calls[1..].iter().all(with_tag),
        "{calls:#?}"
    );

    stage.objects(THING).delete("p").await?;
    stage.objects(THING).goes("p").await?;
    let new = parent(&stage, "p").await?;
    let is_new = |call: &&Call| call.json()["parent"]["metadata"]["uid"] == new["metadata"]["uid"];
    let first = eventually("the new parent's first call", async || {
        let calls = stage.hook.calls();
        calls.iter().find(is_new).cloned().context("none yet")
    })
    .await?;
    ensure!(!with_tag(&first), "the tag of the old parent was sent");
    Ok(())
}
