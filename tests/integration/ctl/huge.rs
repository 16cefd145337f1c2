//! Much at once, and readers that go away in the middle of it.

use std::{fs, io::pipe, process::Stdio, time::Duration};

use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use metashard_testkit::{cluster, replica};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::Command,
    time::{Instant, timeout},
};

use super::{User, reading::settled};
use crate::support::{CONFIG_MAP, CONTROLLER, OWN_REPLICA, Stage, THING, WITHIN, config_map};

const CHILDREN: usize = 10_000;

const CONTROLLERS: usize = 2_000;

/// Nobody waits longer than this for what is shown of them.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);

#[tokio::test]
async fn ten_thousand_children_are_shown_and_a_reader_may_go_away() -> anyhow::Result<()> {
    let stage = Stage::answering("ctl-huge", |request| {
        let wanted = request["parent"]["spec"]["wanted"].as_u64().unwrap_or(0);
        let child = |index| config_map(&format!("c{index:05}"), json!({}));
        json!({ "children": (0..wanted).map(child).collect::<Vec<_>>() })
    })
    .await?;
    let namespace = stage.namespace.as_str();
    // The controller is not served: what it would do is only rendered.
    let controller = stage.controller().child(CONFIG_MAP, "InPlace");
    controller.edit(super::ours(&stage)).apply().await?;
    stage
        .parent(THING, "p", json!({ "wanted": CHILDREN }))
        .await?;
    let admin = User::admin(stage.shared)?;

    let diff = admin
        .runs(["diff", namespace, "-n", namespace, "-o", "name"])
        .await?;
    ensure!(diff.code == 1, "{}", diff.errors);
    let creates = diff
        .text
        .lines()
        .filter(|it| it.starts_with("create ConfigMap"));
    ensure!(creates.count() == CHILDREN);
    let text = admin.runs(["diff", namespace, "-n", namespace]).await?;
    ensure!(text.text.contains("10,000 creates"), "{}", text.errors);

    // As `| head -1` does.
    let mut child = admin
        .command(["diff", namespace, "-n", namespace, "-o", "yaml"])?
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut first = String::new();
    let mut reader = BufReader::new(child.stdout.take().context("take the output")?);
    reader.read_line(&mut first).await?;
    drop(reader);
    let mut errors = String::new();
    let mut stderr = child.stderr.take().context("take the errors")?;
    stderr.read_to_string(&mut errors).await?;
    let status = child.wait().await?;
    ensure!(first == "syncs:\n", "{first:?}");
    ensure!(
        status.code() == Some(141) && errors.is_empty(),
        "{status}: {errors}"
    );
    Ok(())
}

#[tokio::test]
async fn a_tree_of_ten_thousand_children_is_shown_in_bounded_time_and_memory() -> anyhow::Result<()>
{
    let stage = Stage::new("ctl-wood").await?;
    let namespace = stage.namespace.as_str();
    let controller = stage.controller().child(CONFIG_MAP, "InPlace");
    controller.edit(super::ours(&stage)).apply().await?;
    let parent = stage.parent(THING, "p", json!({})).await?;
    let owner = json!([{
        "apiVersion": THING.api_version, "kind": THING.kind, "name": "p",
        "uid": parent["metadata"]["uid"], "controller": true,
    }]);
    let maps = stage.objects(CONFIG_MAP);
    let made = stream::iter(0..CHILDREN).map(|index| {
        let mut map = config_map(&format!("c{index:05}"), json!({ "k": "v" }));
        map["metadata"]["ownerReferences"] = owner.clone();
        maps.create(map)
    });
    let mut made = made.buffer_unordered(50);
    while made.try_next().await?.is_some() {}
    let admin = User::admin(stage.shared)?;

    let began = Instant::now();
    let tree = admin.runs(["tree", "thing/p", "-n", namespace]).await?;
    let took = began.elapsed();
    ensure!(tree.code == 0, "{}", tree.errors);
    let lines: Vec<_> = tree.text.lines().collect();
    ensure!(lines.len() == CHILDREN + 2, "{} lines", lines.len());
    ensure!(lines[2].starts_with("├─ConfigMap/c00000"), "{}", lines[2]);
    ensure!(
        lines[CHILDREN + 1].starts_with("└─ConfigMap/c09999"),
        "{}",
        lines[CHILDREN + 1]
    );
    ensure!(took < SHOWN_WITHIN, "it took {took:?}");
    if cfg!(target_os = "linux") {
        let peak = peak_of(&admin, &["tree", "thing/p", "-n", namespace]).await?;
        ensure!(peak < 250 << 10, "it took {peak} KiB");
    }

    let diff = admin.runs(["diff", namespace, "-n", namespace]).await?;
    ensure!(diff.code == 1, "{}", diff.errors);
    ensure!(
        diff.text.contains("would write 10,000 objects"),
        "{}",
        diff.text.lines().last().unwrap_or_default()
    );
    Ok(())
}

#[tokio::test]
async fn thousands_of_controllers_are_shown_in_bounded_time_and_memory() -> anyhow::Result<()> {
    let stage = Stage::new("ctl-crowd").await?;
    let name = stage.namespace.as_str();
    // Nobody serves them.
    let first = stage.controller().edit(super::ours(&stage)).apply().await?;
    let controllers = stage.objects(CONTROLLER);
    let made = stream::iter(0..CONTROLLERS).map(|index| {
        let labels = &first["metadata"]["labels"];
        let metadata = json!({ "name": format!("{name}-{index:05}"), "labels": labels });
        let mut other = json!({ "metadata": metadata, "spec": first["spec"] });
        // Of parents that are no other's, and have to be counted.
        let selector = &mut other["spec"]["parentResource"]["labelSelector"];
        selector["matchLabels"]["of"] = index.to_string().into();
        controllers.create(other)
    });
    let mut made = made.buffer_unordered(50);
    while made.try_next().await?.is_some() {}
    let admin = User::admin(stage.shared)?;
    let selector = format!("{OWN_REPLICA}={name}");
    let args = ["status", "-l", &selector];

    let began = Instant::now();
    let status = admin.runs(args).await?;
    let took = began.elapsed();

    ensure!(status.code == 1, "{}", status.errors);
    let lines = status.text.lines().count();
    ensure!(lines == CONTROLLERS + 2, "{lines} lines");
    ensure!(took < SHOWN_WITHIN, "it took {took:?}");
    if cfg!(target_os = "linux") {
        let peak = peak_of(&admin, &args).await?;
        ensure!(peak < 150 << 10, "it took {peak} KiB");
    }
    // Others look at all that there are.
    controllers.delete_all(&selector).await
}

/// The most memory that a run of the tool had, in KiB.
async fn peak_of(user: &User, args: &[&str]) -> anyhow::Result<u64> {
    let mut child = user
        .command(args.iter().copied())?
        .stdout(Stdio::piped())
        .spawn()?;
    let process = child.id().context("a process")?;
    let mut output = child.stdout.take().context("take the output")?;
    // It waits with its last line until somebody reads: by then it has all that it ever has.
    let mut first = [0];
    output.read_exact(&mut first).await?;
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).await?;
    child.wait().await?;
    let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|it| it.split_whitespace().next());
    peak.context("a peak")?.parse().context("read a peak")
}

#[tokio::test]
async fn a_reader_that_has_gone_ends_every_command_quietly() -> anyhow::Result<()> {
    let (stage, _) = settled("ctl-pipes").await?;
    let name = stage.namespace.as_str();
    let folder = stage.shared.cluster.folder();
    let file = folder.join(format!("{name}.pipes.json"));
    let controller = stage.objects(CONTROLLER).get(name).await?;
    fs::write(&file, controller.to_string())?;
    let file = file.to_string_lossy().into_owned();
    let answer = folder.join(format!("{name}.pipes.answer"));
    fs::write(&answer, r#"{"children": []}"#)?;
    let answer = answer.to_string_lossy().into_owned();
    let kubeconfig = stage.shared.cluster.kubeconfig(cluster::ADMIN)?;

    for args in [
        &["status"][..],
        &["status", "-w"],
        &["status", "-o", "json"],
        &["status", "-o", "name"],
        &["tree", "thing/p", "-n", name],
        &["tree", "things", "-n", name, "-o", "yaml"],
        &["diff", name, "-n", name, "--answer", &answer],
        &["lint", "-f", &file, "--cluster"],
        &["migrate", "plan"],
        &["migrate", "plan", "-o", "json"],
        &["completions", "bash"],
    ] {
        let (reader, writer) = pipe()?;
        drop(reader);
        let mut command = Command::new(replica::built("metashardctl")?);
        command
            .args(args)
            .env("KUBECONFIG", &kubeconfig)
            .kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(writer);
        let output = command.stderr(Stdio::piped()).spawn()?;
        let output = timeout(WITHIN, output.wait_with_output()).await;
        let output = output.with_context(|| format!("{args:?} goes on"))??;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(141),
            "{args:?}: {}, {errors}",
            output.status
        );
        ensure!(
            !errors.contains("error") && !errors.contains("panicked"),
            "{args:?}: {errors}"
        );
    }
    Ok(())
}
