//! Controller objects that cannot work: they are refused by condition and event at once, and heal by themselves.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use metashard_api::names::{condition, event, reason};
use metashard_testkit::crds;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::support::{
    CONFIG_MAP, CONTROLLER, Kind, SECRET, Stage, THING, config_map, healed_in_time,
};

/// A controller is refused within this time.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);

/// So often a machine that is busy may be too slow for that.
const TRIES: usize = 4;

/// A kind that is not served at first.
const UNKNOWN: Kind = Kind {
    api_version: crds::API_VERSION,
    kind: "Unknown",
    plural: "unknowns",
    namespaced: true,
};

/// A fault of controllers, and what people are told of it.
struct Fault<F> {
    make: F,
    reason: &'static str,
    text: String,
}

impl<F: Fn(&Stage, &mut Value)> Fault<F> {
    /// A controller with this fault is refused in time; its stage.
    async fn is_refused(&self, claim: &str) -> anyhow::Result<Stage> {
        let mut took = Vec::new();
        for _ in 0..TRIES {
            let (stage, this) = self.is_refused_at_last(claim).await?;
            if this < REFUSED_WITHIN {
                return Ok(stage);
            }
            took.push(this);
        }
        bail!("it took {took:?}")
    }

    /// A controller with this fault is refused; its stage, and how long that took.
    async fn is_refused_at_last(&self, claim: &str) -> anyhow::Result<(Stage, Duration)> {
        let stage = Stage::new(claim).await?;
        let children = json!({ "children": [config_map("made", json!({}))] });
        stage.parent(THING, "p", children).await?;
        let since = Instant::now();
        let controller = stage
            .controller()
            .child(CONFIG_MAP, "InPlace")
            .edit(|it| (self.make)(&stage, it))
            .apply()
            .await?;
        stage
            .event(&controller, event::CREATE_ERROR, &self.text)
            .await?;
        stage
            .says(condition::ACCEPTED, "False", self.reason, &self.text)
            .await?;
        let took = since.elapsed();
        assert_eq!(stage.told(&controller, event::STARTED).await?, 0);
        Ok((stage, took))
    }
}

/// The stage's controller serves its parent soon after `since`.
async fn is_healed(stage: &Stage, since: Instant) -> anyhow::Result<()> {
    stage.objects(CONFIG_MAP).appears("made").await?;
    healed_in_time(since)?;
    stage.condition(condition::READY, "True").await?;
    Ok(())
}

async fn edit(stage: &Stage, patch: Value) -> anyhow::Result<Instant> {
    let since = Instant::now();
    stage
        .objects(CONTROLLER)
        .patch(&stage.namespace, patch)
        .await?;
    Ok(since)
}

/// The CRDs as they are shipped refuse contradictions in a webhook itself, Metacontroller's do not: here they are where
/// no CRD sees them.
fn for_its_host(stage: &Stage, controller: &mut Value, mut security: Value) {
    security["host"] = format!("127.0.0.1:{}", stage.hook.port()).into();
    controller["spec"]["endpointConfigs"] = json!([security]);
}

#[tokio::test]
async fn what_contradicts_itself_in_a_webhook_is_refused_by_the_shipped_crd() -> anyhow::Result<()>
{
    let stage = Stage::new("contradiction-crd").await?;
    let secret = json!({ "name": "hook", "namespace": stage.namespace });
    let faults = [
        json!({ "authorization": token(&stage), "basicAuth": token(&stage) }),
        json!({ "caBundle": { "inline": "x", "secretRef": secret } }),
    ];
    for fault in faults {
        let mut webhook = fault.clone();
        webhook["url"] = stage.hook.url("/sync").into();
        let applied = stage
            .controller()
            .edit(|it| it["spec"]["hooks"]["sync"]["webhook"] = webhook)
            .apply()
            .await;

        let error = format!("{:#}", applied.err().context("it was taken")?);
        ensure!(error.contains("spec.hooks.sync: Invalid value"), "{error}");
    }
    Ok(())
}

fn token(stage: &Stage) -> Value {
    json!({ "secretRef": { "name": "hook", "namespace": stage.namespace, "key": "token" } })
}

#[tokio::test]
async fn a_resource_that_nobody_serves_is_refused_at_once_and_served_once_it_is_installed()
-> anyhow::Result<()> {
    let fault = Fault {
        make: |_: &Stage, it: &mut Value| {
            it["spec"]["parentResource"]["resource"] = UNKNOWN.plural.into();
        },
        reason: reason::RESOURCE_NOT_FOUND,
        text: "spec.parentResource: discovery: can't find resource unknowns in apiVersion test.metashard.io/v1".to_owned(),
    };
    let stage = fault.is_refused("unknown-kind").await?;

    let since = Instant::now();
    let crd = crds::like_thing(UNKNOWN.kind, UNKNOWN.plural);
    crds::install_one(&stage.client, &crd).await?;
    let children = json!({ "children": [config_map("made", json!({}))] });
    stage.parent(UNKNOWN, "p", children).await?;
    is_healed(&stage, since).await
}

#[tokio::test]
async fn contradictory_settings_of_a_webhook_are_refused_at_once_until_they_are_mended()
-> anyhow::Result<()> {
    let fault = Fault {
        make: |stage: &Stage, it: &mut Value| {
            let both = json!({ "authorization": token(stage), "basicAuth": token(stage) });
            for_its_host(stage, it, both);
        },
        reason: reason::INVALID_SPEC,
        text: "spec.endpointConfigs[0].authorization: authorization and basicAuth are mutually exclusive; keep one of them".to_owned(),
    };
    let stage = fault.is_refused("contradictory").await?;

    let since = edit(&stage, json!({ "spec": { "endpointConfigs": null } })).await?;
    is_healed(&stage, since).await
}

#[tokio::test]
async fn two_sources_of_certificates_are_refused_at_once_until_one_is_left() -> anyhow::Result<()> {
    let fault = Fault {
        make: |stage: &Stage, it: &mut Value| {
            let secret = json!({ "name": "hook", "namespace": stage.namespace });
            let two = json!({ "caBundle": { "inline": "x", "secretRef": secret } });
            for_its_host(stage, it, two);
        },
        reason: reason::INVALID_SPEC,
        text:
            "spec.endpointConfigs[0].caBundle: not exactly one source of certificates; give one of"
                .to_owned(),
    };
    let stage = fault.is_refused("two-sources").await?;

    let since = edit(&stage, json!({ "spec": { "endpointConfigs": null } })).await?;
    is_healed(&stage, since).await
}

#[tokio::test]
async fn a_missing_secret_is_refused_at_once_until_it_is_there() -> anyhow::Result<()> {
    let fault = Fault {
        make: |stage: &Stage, it: &mut Value| {
            it["spec"]["hooks"]["sync"]["webhook"]["authorization"] = token(stage);
        },
        reason: reason::ENDPOINT_NOT_RESOLVED,
        text: "/hook not found; create it".to_owned(),
    };
    let stage = fault.is_refused("no-secret").await?;
    assert_eq!(stage.hook.count(), 0);

    let since = Instant::now();
    let secret = json!({ "metadata": { "name": "hook" }, "stringData": { "token": "t" } });
    stage.objects(SECRET).create(secret).await?;
    is_healed(&stage, since).await
}

#[tokio::test]
async fn a_controller_of_too_many_resources_is_refused_until_it_names_fewer() -> anyhow::Result<()>
{
    let fault = Fault {
        make: |_: &Stage, it: &mut Value| {
            let rule = |number| json!({ "apiVersion": "many.example/v1", "resource": format!("kind{number}s") });
            let mut rules: Vec<_> = (0..49).map(rule).collect();
            rules.push(json!({
                "apiVersion": "v1", "resource": "configmaps", "updateStrategy": { "method": "InPlace" },
            }));
            it["spec"]["childResources"] = rules.into();
        },
        reason: reason::INVALID_SPEC,
        text: "spec.childResources: the controller names 51 resources, and 50 is the most; split it into several controllers".to_owned(),
    };
    let stage = fault.is_refused("too-many").await?;

    let patch = json!({ "spec": { "childResources": [
        { "apiVersion": "v1", "resource": "configmaps", "updateStrategy": { "method": "InPlace" } },
    ] } });
    let since = edit(&stage, patch).await?;
    is_healed(&stage, since).await
}
