//! Hooks with certificates and credentials: the tool calls them as a worker does, with what the user may read.

use std::{fs, time::Duration};

use anyhow::ensure;
use metashard_testkit::{
    FakeHook, crds,
    hook::{Answer, Authority, Tls},
    replica,
};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{User, ours, ran};
use crate::{
    hook_security::give,
    support::{CONFIG_MAP, Stage, THING, as_told, config_map},
};

const YEAR: Duration = Duration::from_hours(365 * 24);

/// A controller that no replica serves, whose hook wants certificates and a token; a parent of it.
async fn stage(claim: &str, ca: &Authority) -> anyhow::Result<(Stage, Value)> {
    let tls = Tls::new(&ca.server()?, &[ca])?;
    let hook = FakeHook::start_secure(&tls, |call| Answer::json(&as_told(&call.json())))?;
    let stage = Stage::with_hook(claim, hook).await?;
    let secret = json!({ "name": "hook", "namespace": stage.namespace });
    let mut token = secret.clone();
    token["key"] = "token".into();
    let controller = stage.controller().child(CONFIG_MAP, "InPlace").edit(|it| {
        let webhook = &mut it["spec"]["hooks"]["sync"]["webhook"];
        webhook["caBundle"] = json!({ "secretRef": secret });
        webhook["clientTLS"] = json!({ "secretRef": secret });
        webhook["authorization"] = json!({ "secretRef": token });
    });
    let controller = controller.edit(ours(&stage)).apply().await?;
    let spec = json!({ "children": [config_map("a", json!({ "k": "1" }))] });
    stage.parent(THING, "p", spec).await?;
    Ok((stage, controller))
}

fn held(ca: &Authority) -> anyhow::Result<Value> {
    let client = ca.client(YEAR)?;
    Ok(
        json!({ "ca.crt": ca.pem(), "tls.crt": client.certificate, "tls.key": client.key, "token": "hush-hush" }),
    )
}

#[tokio::test]
async fn diff_and_render_call_a_hook_with_its_certificates_and_its_token() -> anyhow::Result<()> {
    let ca = Authority::new()?;
    let (stage, controller) = stage("ctl-secured", &ca).await?;
    let admin = User::admin(stage.shared)?;
    let name = stage.namespace.as_str();

    let without = admin.runs(["diff", name, "-n", name]).await?;
    ensure!(without.code == 2, "{without:#?}");
    ensure!(
        without
            .errors
            .contains(&format!("Secret {name}/hook not found")),
        "{without:#?}"
    );
    give(&stage, held(&ca)?).await?;
    let with = admin.runs(["diff", name, "-n", name]).await?;
    ensure!(with.code == 1, "{with:#?}");
    ensure!(
        with.text.contains(&format!("+ create ConfigMap {name}/a")),
        "{with:#?}"
    );
    ensure!(!format!("{with:?}").contains("hush"), "a secret is shown");
    let calls = stage.hook.calls();
    ensure!(calls[0].has_certificate && calls[0].headers["authorization"] == "Bearer hush-hush");

    // The same from files: the Secret is not a child of anybody.
    let folder = stage.shared.cluster.folder().join(format!("{name}.files"));
    fs::create_dir(&folder)?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": held(&ca)?,
        "metadata": { "name": "hook", "namespace": name },
    });
    let parent = json!({
        "apiVersion": THING.api_version, "kind": THING.kind,
        "metadata": { "name": "p", "namespace": name, "labels": { "stage": name } },
        "spec": { "children": [] },
    });
    for (file, object) in [
        ("c", controller),
        ("s", secret),
        ("p", parent),
        ("crd", crds::thing()),
    ] {
        fs::write(folder.join(format!("{file}.json")), object.to_string())?;
    }
    let files = folder.to_string_lossy().into_owned();
    let mut render = Command::new(replica::built("metashardctl")?);
    render.args(["render", "-f", &files, "-o", "name"]);
    let rendered = ran(render).await?;
    ensure!(rendered.code == 0, "{rendered:#?}");
    ensure!(!rendered.text.contains("Secret"), "{rendered:#?}");
    Ok(())
}

#[tokio::test]
async fn cases_call_a_hook_with_the_secrets_that_they_name() -> anyhow::Result<()> {
    let ca = Authority::new()?;
    let (stage, controller) = stage("ctl-cases", &ca).await?;
    let name = stage.namespace.as_str();
    let folder = stage.shared.cluster.folder().join(format!("{name}.cases"));
    fs::create_dir(&folder)?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": held(&ca)?,
        "metadata": { "name": "hook", "namespace": name },
    });
    let metadata = json!({ "name": "p", "namespace": name, "labels": { "stage": name } });
    let mut case = json!({
        "controller": controller, "crds": [crds::thing()], "secrets": ["secret.yaml"],
        "parent": {
            "apiVersion": THING.api_version, "kind": THING.kind, "metadata": metadata,
            "spec": { "children": [config_map("a", json!({ "k": "1" }))] },
        },
    });
    fs::write(folder.join("secret.yaml"), secret.to_string())?;
    let file = folder.join("a.test.yaml");
    fs::write(&file, case.to_string())?;
    let test = async |args: &[&str]| {
        let mut command = Command::new(replica::built("metashardctl")?);
        command.arg("test").arg(&file).args(args);
        ran(command).await
    };

    let updated = test(&["--update"]).await?;
    ensure!(updated.code == 0, "{updated:#?}");
    let again = test(&[]).await?;
    ensure!(
        again.code == 0 && again.text.contains("1 of 1 case is as expected"),
        "{again:#?}"
    );
    let calls = stage.hook.calls();
    ensure!(
        calls.len() == 2 && calls[1].has_certificate,
        "{}",
        calls.len()
    );
    ensure!(calls[1].headers["authorization"] == "Bearer hush-hush");
    let expected = fs::read_to_string(folder.join("a.test.expected.yaml"))?;
    ensure!(expected.contains("create_child"), "{expected}");
    ensure!(!expected.contains("hush"), "a secret is written down");

    case["secrets"] = json!([]);
    fs::write(&file, case.to_string())?;
    let without = test(&[]).await?;
    ensure!(without.code == 2, "{without:#?}");
    let why = format!("Secret {name}/hook not found");
    ensure!(without.text.contains(&why), "{without:#?}");
    Ok(())
}

#[tokio::test]
async fn lint_checks_a_hooks_certificate_against_authority_and_name() -> anyhow::Result<()> {
    let ca = Authority::new()?;
    let (stage, mut controller) = stage("ctl-handshake", &ca).await?;
    let admin = User::admin(stage.shared)?;
    let name = stage.namespace.clone();
    give(&stage, held(&ca)?).await?;
    let file = stage.shared.cluster.folder().join(format!("{name}.json"));
    let path = file.to_string_lossy().into_owned();
    let lint = async |controller: &Value| {
        fs::write(&file, controller.to_string())?;
        let args = ["lint", "-f", &path, "--cluster", "--connect", "-n", &name];
        admin.runs(args).await
    };

    // The test kit's certificates last a day.
    let good = lint(&controller).await?;
    ensure!(good.code == 0, "{good:#?}");
    ensure!(
        good.text.contains("the certificate of the hook ends in "),
        "{good:#?}"
    );

    let other = Authority::new()?;
    give(&stage, json!({ "ca.crt": other.pem() })).await?;
    let stranger = lint(&controller).await?;
    ensure!(stranger.code == 1, "{stranger:#?}");
    ensure!(stranger.text.contains("into caBundle"), "{stranger:#?}");
    give(&stage, held(&ca)?).await?;
    let webhook = &mut controller["spec"]["hooks"]["sync"]["webhook"];
    let url = webhook["url"]
        .as_str()
        .unwrap_or_default()
        .replace("localhost", "127.0.0.1");
    webhook["url"] = url.into();
    let misnamed = lint(&controller).await?;
    ensure!(misnamed.code == 1, "{misnamed:#?}");
    ensure!(
        misnamed
            .text
            .contains("name the hook as its certificate does"),
        "{misnamed:#?}"
    );
    let webhook = &mut controller["spec"]["hooks"]["sync"]["webhook"];
    webhook["url"] = stage.hook.url("/sync").into();
    if let Some(webhook) = webhook.as_object_mut() {
        webhook.remove("clientTLS");
    }
    let unknown = lint(&controller).await?;
    ensure!(unknown.code == 1, "{unknown:#?}");
    ensure!(unknown.text.contains("clientTLS"), "{unknown:#?}");
    Ok(())
}
