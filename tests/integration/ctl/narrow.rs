//! The tool at a real terminal of 40 columns, and with messages that nobody would want to be shown as they are.

use std::{fs, process::Command};

use anyhow::{Context, ensure};
use metashard_testkit::{Terminal, cluster, replica};
use serde_json::json;

use super::{ours, reading::settled, start_replica};
use crate::support::{CONFIG_MAP, CONTROLLER, STAGE, Stage, THING, WITHIN, config_map, labelled};

const COLUMNS: u16 = 40;

/// The exit code, and the lines that a command shows at the narrow terminal.
async fn shown(stage: &Stage, args: &[&str]) -> anyhow::Result<(i32, Vec<String>)> {
    let mut command = Command::new(replica::built("metashardctl")?);
    let kubeconfig = stage.shared.cluster.kubeconfig(cluster::ADMIN)?;
    command.args(args).env("KUBECONFIG", kubeconfig);
    // A terminal knows its width better than who started the shell. Colours are clap's, and tested there.
    command.env("COLUMNS", "200").env("NO_COLOR", "1");
    let (code, text) = Terminal::start(command, COLUMNS)?.ended(WITHIN * 2).await?;
    ensure!(!text.contains("panicked"), "{args:?}: {text}");
    let is_odd = |it: char| it.is_control() && it != '\n';
    ensure!(!text.contains(is_odd), "{args:?}: {text:?}");
    Ok((code, text.lines().map(str::to_owned).collect()))
}

/// A table: no line is wider than the terminal, and these columns are in it.
async fn table(stage: &Stage, args: &[&str], columns: &[&str]) -> anyhow::Result<Vec<String>> {
    let (code, lines) = shown(stage, args).await?;
    ensure!(code <= 1, "{args:?}: {code}, {lines:#?}");
    let head = lines.first().context("a table")?;
    ensure!(
        columns.iter().all(|it| head.contains(it)),
        "{args:?}: {lines:#?}"
    );
    let fits = |line: &String| line.chars().count() <= usize::from(COLUMNS);
    ensure!(lines.iter().all(fits), "{args:?}: {lines:#?}");
    Ok(lines)
}

#[tokio::test]
async fn tables_and_trees_fit_a_terminal_of_40_columns_and_give_up_what_matters_least()
-> anyhow::Result<()> {
    let (stage, _) = settled("ctl-narrow").await?;
    let namespace = stage.namespace.as_str();
    let long = config_map("long-".repeat(20).trim_end_matches('-'), json!({}));
    let long = labelled(long, "a", "b");
    let status = json!({ "conditions": [{
        "type": "Stalled", "status": "True", "reason": "Stuck", "message": "one\ntwo \u{1b}[2J\u{1b}[31m three",
    }]});
    let patch = json!({ "spec": { "children": [long], "status": status } });
    stage.objects(THING).patch("p", patch).await?;
    stage.settle(THING, "p").await?;

    let one = table(&stage, &["status", namespace], &["NAME", "READY"]).await?;
    ensure!(one.len() == 2 && one[1].contains("True"), "{one:#?}");
    table(&stage, &["status"], &["NAME", "READY"]).await?;
    let tree = table(
        &stage,
        &["tree", "thing/p", "-n", namespace],
        &["NAME", "HEALTH"],
    )
    .await?;
    ensure!(tree.len() == 3, "{tree:#?}");
    ensure!(
        tree[1].contains("Failed") && tree[2].contains('…'),
        "{tree:#?}"
    );

    // Wide, or to a file, nothing is left out, and what a hook says stays on its line.
    let (_, wide) = shown(&stage, &["tree", "thing/p", "-n", namespace, "-o", "wide"]).await?;
    ensure!(wide.len() == 3 && wide[1].contains("one two"), "{wide:#?}");
    ensure!(
        wide[2].contains("long-long-long-long-long-long-long-long"),
        "{wide:#?}"
    );
    Ok(())
}

/// A file of this text in the cluster's folder.
fn file(stage: &Stage, name: &str, text: &str) -> anyhow::Result<String> {
    let path = stage
        .shared
        .cluster
        .folder()
        .join(format!("{}.{name}", stage.namespace));
    fs::write(&path, text)?;
    Ok(path.to_string_lossy().into_owned())
}

#[tokio::test]
async fn texts_are_whole_at_a_terminal_of_40_columns() -> anyhow::Result<()> {
    let stage = Stage::new("ctl-texts").await?;
    let name = stage.namespace.as_str();
    let replica = start_replica(&stage, name, name).await?;
    let controller = stage.controller().child(CONFIG_MAP, "InPlace");
    controller.edit(ours(&stage)).apply().await?;
    let child = config_map("a", json!({ "k": "1" }));
    stage
        .parent(THING, "p", json!({ "children": [child] }))
        .await?;
    stage.settle(THING, "p").await?;
    let server = format!("http://127.0.0.1:{}", replica.health_port());
    let wanted = json!({ "children": [config_map("b", json!({}))] });
    let answer = file(&stage, "answer", &wanted.to_string())?;
    let mut typo = stage.objects(CONTROLLER).get(name).await?;
    typo["spec"]["genrateSelector"] = true.into();
    let typo = file(&stage, "typo.json", &typo.to_string())?;

    let why = ["why", "thing/p", "-n", name, "--server", &server];
    let diff = ["diff", name, "-n", name, "--answer", &answer];
    for (args, code, text) in [
        (&why[..], 0, "wrote: create ConfigMap"),
        (&diff, 1, "+ create ConfigMap"),
        (
            &["lint", "-f", &typo, "--cluster"],
            1,
            "did you mean generateSelector?",
        ),
        (
            &["migrate", "plan", "-l", "a=b", "-n", name],
            0,
            "no Metacontroller was found",
        ),
        (&["tree", "thign/p", "-n", name], 2, "did you mean things?"),
        (
            &["status", "--kubeconfig", "/no/such/file"],
            2,
            "/no/such/file",
        ),
        (&["staus"], 2, "'status'"),
        (&["migrate", "apply", "--help"], 0, "--let-others-rest"),
    ] {
        let (ended, lines) = shown(&stage, args).await?;
        ensure!(ended == code, "{args:?}: {ended}, {lines:#?}");
        ensure!(lines.join("\n").contains(text), "{args:?}: {lines:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn help_fits_a_terminal_of_40_columns() -> anyhow::Result<()> {
    let stage = Stage::new("ctl-help").await?;
    let (_, help) = shown(&stage, &["diff", "--help"]).await?;
    let fits = |line: &String| line.chars().count() <= usize::from(COLUMNS);
    let wide: Vec<_> = help.iter().filter(|it| !fits(it)).collect();
    // Only what is to be typed as it is may be longer: a flag with its value, and the line of usage.
    let is_typed = |line: &str| line.trim_start().starts_with('-') || line.starts_with("Usage:");
    ensure!(wide.iter().all(|it| is_typed(it)), "{wide:#?}");
    Ok(())
}

#[tokio::test]
async fn whoever_says_how_wide_a_terminal_is_may_say_nonsense() -> anyhow::Result<()> {
    let (stage, admin) = settled("ctl-columns").await?;
    let selector = format!("{STAGE}={}", stage.namespace);
    for (columns, widest) in [
        ("40", 40),
        ("1", 40),
        ("0", usize::MAX),
        ("no number", usize::MAX),
    ] {
        let mut command = admin.command(["status", "-l", &selector])?;
        command.env("COLUMNS", columns);
        let ran = super::ran(command).await?;
        ensure!(ran.code == 0 && ran.text.starts_with("NAME"), "{ran:#?}");
        let fits = |line: &str| line.chars().count() <= widest;
        ensure!(ran.text.lines().all(fits), "{columns}: {ran:#?}");
    }
    Ok(())
}
