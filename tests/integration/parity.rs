//! The comparison of what is written with what is rendered finds every difference that is planted.

use std::{fs, path::PathBuf, process::Command};

use anyhow::ensure;
use metashard_reconcile::recording::Recording;
use metashard_testkit::{proxy::Exchange, replica};
use serde_json::{Value, json};

use crate::support::{CONFIG_MAP, Stage, THING, Tally, config_map, eventually};

/// What is on record of one stage that has come to rest.
struct Evidence {
    files: Vec<PathBuf>,
    recordings: Vec<Vec<u8>>,
    sent: Vec<Exchange>,
}

impl Evidence {
    /// Of a stage that has created, changed and deleted children, written a status, and finalized a parent.
    async fn gather(claim: &str) -> anyhow::Result<Self> {
        let stage = Stage::new(claim).await?;
        let controller = stage.controller().child(CONFIG_MAP, "InPlace").finalize();
        controller.apply().await?;
        let maps = |names: &[(&str, &str)]| {
            let map = |(name, value): &(&str, &str)| config_map(name, json!({ "k": value }));
            json!({
                "children": names.iter().map(map).collect::<Vec<_>>(),
                "status": { "n": names.len() }, "finalized": true,
            })
        };
        let spec = maps(&[("a", "1"), ("b", "1"), ("c", "1")]);
        stage.parent(THING, "p", spec).await?;
        stage.settle(THING, "p").await?;
        let things = stage.objects(THING);
        let spec = maps(&[("a", "2"), ("b", "1")]);
        things.patch("p", json!({ "spec": spec })).await?;
        stage.settle(THING, "p").await?;
        things.delete("p").await?;
        things.goes("p").await?;
        eventually("all passes to have ended", async || Self::of(&stage)).await
    }

    /// What there is of a stage, once none of it is being written any more.
    fn of(stage: &Stage) -> anyhow::Result<Self> {
        let cluster = &stage.shared.cluster;
        let folder = cluster.recordings().join(stage.shared.replica.name());
        let (mut files, mut recordings) = (Vec::new(), Vec::new());
        for file in fs::read_dir(folder)? {
            let path = file?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.contains(&stage.namespace) {
                let bytes = fs::read(&path)?;
                let has_ended = Recording::read(&bytes)?.verdict.is_some();
                ensure!(has_ended, "{} has not", path.display());
                recordings.push(bytes);
                files.push(path);
            }
        }
        let inside = format!("/namespaces/{}/", stage.namespace);
        let mut sent = cluster.sent(0);
        sent.retain(|it| it.path.contains(&inside));
        Ok(Self {
            files,
            recordings,
            sent,
        })
    }

    /// What does not fit.
    fn findings(&self) -> anyhow::Result<Vec<String>> {
        let mut tally = Tally::default();
        for exchange in &self.sent {
            tally.sent(exchange);
        }
        for recording in &self.recordings {
            tally.planned(Recording::read(recording)?);
        }
        Ok(tally.settle([], &Tally::default()))
    }

    /// The request that creates this child.
    fn creation(&mut self, name: &str) -> anyhow::Result<usize> {
        let named = format!(r#""name":"{name}""#);
        let found = self.sent.iter().position(|it| {
            it.method == http::Method::POST && String::from_utf8_lossy(&it.body).contains(&named)
        });
        found.ok_or_else(|| anyhow::anyhow!("no creation of {name} among {:#?}", self.sent))
    }
}

#[tokio::test]
async fn every_planted_difference_between_written_and_rendered_is_reported() -> anyhow::Result<()> {
    let mut evidence = Evidence::gather("parity").await?;
    let (passes, writes) = (evidence.recordings.len(), evidence.sent.len());
    // Finalizer, three children, status; child, deletion, status; finalizer.
    ensure!(passes >= 3, "{passes} passes are no comparison");
    ensure!(writes >= 9, "{writes} writes are no comparison");
    let findings = evidence.findings()?;
    ensure!(findings.is_empty(), "{findings:#?}");

    let at = evidence.creation("b")?;
    let original = evidence.sent[at].clone();
    let mut body = original.body.to_vec();
    body[0] ^= 1;
    evidence.sent[at].body = body.into();
    let findings = evidence.findings()?;
    ensure!(
        findings.len() == 2
            && findings
                .iter()
                .any(|it| it.starts_with("sent, and not planned"))
            && findings
                .iter()
                .any(|it| it.starts_with("planned, and not sent")),
        "one byte: {findings:#?}"
    );

    evidence.sent.remove(at);
    let findings = evidence.findings()?;
    ensure!(
        findings.len() == 1 && findings[0].starts_with("planned, and not sent"),
        "a write left out: {findings:#?}"
    );

    evidence.sent.push(original.clone());
    evidence.sent.push(original);
    let findings = evidence.findings()?;
    ensure!(
        findings.len() == 1 && findings[0].starts_with("sent, and not planned"),
        "a write too many: {findings:#?}"
    );
    evidence.sent.pop();

    let creates = |it: &&mut Vec<u8>| {
        Recording::read(it).is_ok_and(|recording| recording.replay().writes.len() >= 4)
    };
    let recording = evidence.recordings.iter_mut().find(creates);
    let recording = recording.ok_or_else(|| anyhow::anyhow!("no pass created children"))?;
    let other =
        String::from_utf8_lossy(recording).replace(r#""data":{"k":"1"}"#, r#""data":{"k":"7"}"#);
    ensure!(
        other.as_bytes() != &**recording,
        "the answer has no such child: {other}"
    );
    *recording = other.into_bytes();
    let findings = evidence.findings()?;
    ensure!(!findings.is_empty(), "another answer went unnoticed");
    Ok(())
}

#[tokio::test]
async fn the_tool_renders_a_recorded_sync_as_it_was_written() -> anyhow::Result<()> {
    let evidence = Evidence::gather("recorded").await?;

    let output = Command::new(replica::built("metashardctl")?)
        .args(["render", "-o", "json", "--recorded"])
        .args(&evidence.files)
        .output()?;

    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    ensure!(errors.contains("recorded at 20"), "{errors}");
    let told: Value = serde_json::from_slice(&output.stdout)?;
    let syncs = told["syncs"].as_array().into_iter().flatten();
    let writes = syncs.flat_map(|sync| sync["writes"].as_array().into_iter().flatten());
    let sort = |mut all: Vec<String>| {
        all.sort_unstable();
        all
    };
    let told = writes.map(|it| format!("{} {} {}", it["method"], it["path"], it["body"]));
    let sent = evidence.sent.iter().map(|it| {
        let body: Value = serde_json::from_slice(&it.body).unwrap_or_default();
        format!("{} {} {body}", json!(it.method.as_str()), json!(it.path))
    });
    assert_eq!(sort(told.collect()), sort(sent.collect()));
    Ok(())
}
