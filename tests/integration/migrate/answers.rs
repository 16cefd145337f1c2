//! What a move asks people at a terminal, and what it tells programs.

use std::sync::atomic::Ordering;

use anyhow::{Context, ensure};
use metashard_plan::document;
use serde_json::{Value, json};

use super::scene::{Says, Scene, scene};
use crate::support::{POD, WITHIN, eventually};

/// Time for a whole move.
const WHOLE: std::time::Duration = WITHIN.saturating_mul(4);

const QUESTION: &str = "Move from Metacontroller to metashard? [y/N] ";

fn document_of(says: &Says) -> anyhow::Result<Value> {
    serde_json::from_str(&says.out).with_context(|| format!("read {says:?}"))
}

/// What was told beside the document.
fn told(says: &Says, text: &str) -> anyhow::Result<()> {
    ensure!(says.err.contains(text), "no {text:?} in {says:?}");
    Ok(())
}

impl Scene {
    /// Answers the question of a command at a terminal; the exit code, and what was shown after the answer.
    async fn answers(
        &self,
        args: &[&str],
        question: &str,
        answer: &str,
    ) -> anyhow::Result<(i32, String)> {
        let mut terminal = self.at_terminal(args)?;
        terminal.shows(question, WITHIN).await?;
        terminal.types(answer)?;
        let (code, shown) = terminal.ended(WHOLE).await?;
        let after = shown
            .split_once(question)
            .map(|(_, after)| after.to_owned());
        Ok((code, after.context("the question is gone")?))
    }
}

#[tokio::test]
async fn only_yes_at_a_terminal_goes_on_and_everything_else_does_nothing() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    scene.start()?;

    // A new line alone, and the end of all input, are no answer.
    for answer in ["n\n", "\n", "yse\n", "\u{4}"] {
        let (code, after) = scene
            .answers(&["migrate", "apply"], QUESTION, answer)
            .await?;
        ensure!(code == 1, "{answer:?}: {code}, {after}");
        ensure!(
            after.contains("\nNothing was done.\n"),
            "{answer:?}: {after}"
        );
    }
    ensure!(scene.record().await?.is_none());

    let observe = ["migrate", "apply", "--only-observe"];
    let (code, after) = scene.answers(&observe, QUESTION, "Y\n").await?;
    ensure!(
        code == 0 && after.contains("Everything is observed"),
        "{code}: {after}"
    );
    let back = ["migrate", "rollback"];
    let question = "Go back to Metacontroller? [y/N] ";
    let (code, after) = scene.answers(&back, question, "no\n").await?;
    ensure!(
        code == 1 && after.contains("Nothing was done."),
        "{code}: {after}"
    );
    let says = scene.ctl(&back).await?;
    ensure!(says.code == 2, "{says:?}");
    told(&says, "there is no terminal to ask at: add --yes")?;
    let record = scene.record().await?.context("a record")?;
    ensure!(record["data"]["stage"] == "observing", "{record:#}");
    let (code, after) = scene.answers(&back, question, "yes\n").await?;
    ensure!(
        code == 0 && after.contains("Metacontroller acts again"),
        "{code}: {after}"
    );
    Ok(())
}

#[tokio::test]
async fn what_changed_while_somebody_thought_about_the_question_is_seen() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    scene.peer.elects.store(false, Ordering::SeqCst);
    scene.start_held().await?;
    scene.killed_in("stopping").await?;
    scene.workload(json!({ "spec": { "replicas": 0 } })).await?;
    let pods = scene.stage.objects(POD);
    eventually("Metacontroller to be stopped", async || {
        let workload = scene.stage.objects(scene.cast.workload).get("mc").await?;
        let status = &workload["status"];
        let is_seen = status["observedGeneration"] == workload["metadata"]["generation"];
        ensure!(is_seen && status["replicas"] == 0, "{status:#}");
        ensure!(pods.list().await?.is_empty(), "Pods are there");
        Ok(())
    })
    .await?;

    let mut terminal = scene.at_terminal(&["migrate", "apply", "--accept-writes"])?;
    terminal.shows(QUESTION, WITHIN).await?;
    scene.workload(json!({ "spec": { "replicas": 1 } })).await?;
    scene.peer_is_up().await?;
    terminal.types("y\n")?;
    let (code, shown) = terminal.ended(WHOLE).await?;

    ensure!(code == 0, "{shown}");
    ensure!(shown.contains("scaled from 1 to 0"), "{shown}");
    scene.never_were_both_at_work()?;
    Ok(())
}

#[tokio::test]
async fn what_a_move_has_not_done_is_one_document_for_programs() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    let [a, b] = scene.controllers();
    let names = scene.ctl(&["migrate", "plan", "-o", "name"]).await?;
    let name = |it: &str| format!("compositecontroller.metacontroller.k8s.io/{it}\n");
    ensure!(names.out == name(&a) + &name(&b), "{names:?}");

    let says = scene.apply(&["--dry-run", "-o", "json"]).await?;
    let plan = document_of(&says)?;
    ensure!(says.code == 0 && plan["result"] == "planned", "{says:?}");
    let first = &plan["ahead"][0];
    ensure!(
        first["when"] == "now" && plan["stage"].is_null(),
        "{plan:#}"
    );
    ensure!(plan["metacontrollers"][0]["replicas"] == 2, "{plan:#}");
    told(&says, "  now  observe: mark 2 controllers")?;

    let says = scene.apply(&["-o", "json", "--timeout=1s"]).await?;
    let failed = document_of(&says)?;
    ensure!(says.code == 2 && failed["result"] == "failed", "{says:?}");
    let error = failed["error"].as_str().unwrap_or_default();
    ensure!(error.contains("no replica is live"), "{failed:#}");
    ensure!(failed["stage"] == "observing", "{failed:#}");
    told(&says, &format!("error: {error}"))?;

    scene.start()?;
    scene.drift("drifted").await?;
    let says = scene.apply(&["-o", "json"]).await?;
    let stopped = document_of(&says)?;
    ensure!(says.code == 1 && stopped["result"] == "stopped", "{says:?}");
    let messages = stopped["messages"].to_string();
    ensure!(
        messages.contains("writes we would have made: 1"),
        "{stopped:#}"
    );
    let answer = &stopped["controllers"][0]["answer"];
    ensure!(
        answer["writes"] == 1 && answer["acts"] == false,
        "{stopped:#}"
    );
    Ok(())
}

#[tokio::test]
async fn a_move_is_one_document_for_programs_and_the_rest_is_told_beside_it() -> anyhow::Result<()>
{
    let mut scene = scene().await?;
    scene.start()?;
    let says = scene.apply(&["-o", "json"]).await?;
    let moved = document_of(&says)?;
    ensure!(says.code == 0 && moved["result"] == "finished", "{says:?}");
    ensure!(moved["stage"] == "done", "{moved:#}");
    let steps = moved["steps"].as_array().context("steps")?;
    let of = |kind: &str| -> Vec<_> { steps.iter().filter(|it| it["step"] == kind).collect() };
    let scaled = of("scale");
    ensure!(scaled.len() == 1, "{moved:#}");
    ensure!(scaled[0]["from"] == 2 && scaled[0]["to"] == 0, "{moved:#}");
    let done = of("record").pop().context("a record")?;
    let second = &done["controllers"][1]["answer"];
    ensure!(
        done["stage"] == "done" && second["acts"] == true,
        "{done:#}"
    );
    told(&says, "  waiting for ")?;
    told(&says, "Moved: metashard acts on all controllers")?;

    let says = scene.rollback(&["-o", "yaml"]).await?;
    let back = document::parse("out", &says.out)?;
    let back = &back.first().context("a document")?.value;
    ensure!(says.code == 0 && back["result"] == "finished", "{says:?}");
    ensure!(back["stage"] == "back", "{says:?}");
    Ok(())
}
