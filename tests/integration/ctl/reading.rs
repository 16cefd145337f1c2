//! What `status`, `tree`, `diff`, `why` and `lint` say of a real cluster, in each form, and how they end.

use std::{fs, process::Stdio};

use anyhow::{Context, ensure};
use metashard_testkit::cluster;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader, Lines};

use super::{Ran, User, ran};
use crate::support::{CONFIG_MAP, STAGE, Stage, THING, WITHIN, config_map, data_of, eventually};

/// A stage with a controller, a parent `p` and its child `a`, which are as the hook wants them.
pub(super) async fn settled(claim: &str) -> anyhow::Result<(Stage, User)> {
    let stage = Stage::new(claim).await?;
    let controller = stage.controller().child(CONFIG_MAP, "InPlace");
    let label = stage.namespace.clone();
    controller
        .edit(|it| it["metadata"]["labels"] = json!({ STAGE: label }))
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("a", json!({ "k": "1" }))] });
    stage.parent(THING, "p", spec).await?;
    stage.settle(THING, "p").await?;
    stage.condition("Ready", "True").await?;
    let admin = User::admin(stage.shared)?;
    Ok((stage, admin))
}

fn ends(ran: &Ran, code: i32) -> anyhow::Result<()> {
    ensure!(ran.code == code, "it should end with {code}: {ran:#?}");
    Ok(())
}

#[tokio::test]
async fn status_shows_controllers_in_each_form_and_ends_with_1_while_one_is_not_ready()
-> anyhow::Result<()> {
    let (stage, admin) = settled("ctl-status").await?;
    let name = stage.namespace.as_str();

    let table = admin.runs(["status", name]).await?;
    ends(&table, 0)?;
    let lines: Vec<_> = table.text.lines().collect();
    ensure!(lines[0].starts_with("NAME"), "{table:#?}");
    let cells: Vec<_> = lines[1].split_whitespace().collect();
    ensure!(cells[..2] == [name, "True"], "{table:#?}");
    ensure!(cells[5] == "1", "one parent: {table:#?}");

    let one = admin.runs(["status", name, "-o", "json"]).await?.json()?;
    ensure!(one["kind"] == "CompositeController", "{one:#}");
    ensure!(one["metadata"].get("managedFields").is_none(), "{one:#}");
    let selector = format!("{STAGE}={name}");
    let some = admin
        .runs(["status", "-l", &selector, "-o", "json"])
        .await?;
    ensure!(
        some.json()?["items"].as_array().map(Vec::len) == Some(1),
        "{some:#?}"
    );
    let yaml = admin.runs(["status", name, "-o", "yaml"]).await?;
    ensure!(
        yaml.text.contains("\nkind: CompositeController\n"),
        "{yaml:#?}"
    );
    let names = admin.runs(["status", name, "-o", "name"]).await?;
    ensure!(
        names.text == format!("compositecontroller.metacontroller.k8s.io/{name}\n"),
        "{names:#?}"
    );
    ends(&admin.runs(["status", names.text.trim_end()]).await?, 0)?;
    let none = admin.runs(["status", "-l", "stage=nobody"]).await?;
    ends(&none, 0)?;
    ensure!(
        none.text.is_empty() && none.errors == "No controllers found\n",
        "{none:#?}"
    );

    // The replica of these tests is no Pod: its row is there all the same, and why nothing more is known.
    let wide = admin.runs(["status", name, "-o", "wide"]).await?;
    ends(&wide, 0)?;
    ensure!(wide.text.contains("LAST SYNC"), "{wide:#?}");

    let lost = json!({ "spec": { "parentResource": { "resource": "thinsg" } } });
    stage
        .objects(crate::support::CONTROLLER)
        .patch(name, lost)
        .await?;
    eventually("a controller that is not ready", async || {
        let bad = admin.runs(["status", name]).await?;
        ends(&bad, 1)?;
        ensure!(bad.text.contains("False"), "{bad:#?}");
        ensure!(bad.text.contains("thinsg"), "{bad:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_watch_prints_what_changes() -> anyhow::Result<()> {
    let (stage, admin) = settled("ctl-watch").await?;
    let namespace = stage.namespace.as_str();
    let follow = |args: Vec<&str>| -> anyhow::Result<_> {
        let mut child = admin.command(args)?.stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("take the output")?;
        Ok((child, BufReader::new(output).lines()))
    };
    let (_status, mut status) = follow(vec!["status", namespace, "-w"])?;
    let (_tree, mut tree) = follow(vec!["tree", "thing/p", "-n", namespace, "-w"])?;
    let head = status.next_line().await?.context("read a line")?;
    ensure!(head.starts_with("NAME"), "{head}");
    let row = status.next_line().await?.context("read a line")?;
    ensure!(row.contains("True"), "{row}");
    tree.next_line().await?;

    stage.parent(THING, "q", json!({})).await?;
    let both = json!([config_map("a", json!({})), config_map("b", json!({}))]);
    let patch = json!({ "spec": { "children": both } });
    stage.objects(THING).patch("p", patch).await?;

    let is_changed = |line: &str| line.contains("True") && line.contains(" 2 ");
    comes(&mut status, is_changed).await?;
    comes(&mut tree, |line| line.contains("ConfigMap/b")).await
}

/// Reads on until a line is as wanted.
async fn comes(
    lines: &mut Lines<impl AsyncBufRead + Unpin>,
    wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let found = async {
        loop {
            let line = lines.next_line().await?.context("it has ended")?;
            if wanted(&line) {
                return Ok(());
            }
        }
    };
    tokio::time::timeout(WITHIN, found).await?
}

#[tokio::test]
async fn tree_shows_what_belongs_to_an_object_in_each_form() -> anyhow::Result<()> {
    let (stage, admin) = settled("ctl-tree").await?;
    let namespace = stage.namespace.as_str();
    let run = async |args: &[&str]| {
        admin
            .runs(
                ["tree", "-n", namespace]
                    .into_iter()
                    .chain(args.iter().copied()),
            )
            .await
    };

    for object in [
        &["thing/p"][..],
        &["things", "p"],
        &["things.test.metashard.io/p"],
        &["things"],
    ] {
        let tree = run(object).await?;
        ends(&tree, 0)?;
        let lines: Vec<_> = tree.text.lines().collect();
        ensure!(lines[0].starts_with("NAME"), "{tree:#?}");
        ensure!(lines[1].starts_with("Thing/p"), "{tree:#?}");
        ensure!(lines[2].starts_with("└─ConfigMap/a"), "{tree:#?}");
    }
    let names = run(&["thing/p", "-o", "name"]).await?;
    ensure!(
        names.text == "thing.test.metashard.io/p\nconfigmap/a\n",
        "{names:#?}"
    );
    let json = run(&["thing/p", "-o", "json"]).await?.json()?;
    ensure!(
        json["objects"][1]["name"] == "a" && json["objects"][1]["controlled"] == true,
        "{json:#}"
    );
    ensure!(
        run(&["thing/p", "-o", "yaml"])
            .await?
            .text
            .starts_with("objects:")
    );
    ends(&run(&["thing/p", "-o", "wide"]).await?, 0)?;
    let none = run(&["things", "-l", "stage=nobody"]).await?;
    ends(&none, 0)?;
    ensure!(
        none.errors == format!("No things found in namespace {namespace}\n"),
        "{none:#?}"
    );
    let everywhere = admin
        .runs([
            "tree",
            "things",
            "-A",
            "-l",
            &format!("{STAGE}={namespace}"),
        ])
        .await?;
    ensure!(everywhere.text.contains("Thing/p"), "{everywhere:#?}");
    ends(&run(&["thing/p", "-l", "a=b"]).await?, 2)?;

    Ok(())
}

#[tokio::test]
async fn tree_ends_with_1_when_something_has_failed() -> anyhow::Result<()> {
    let (stage, admin) = settled("ctl-failed").await?;
    let namespace = stage.namespace.as_str();

    let failed =
        json!({ "conditions": [{ "type": "Stalled", "status": "True", "reason": "Stuck" }] });
    let patch = json!({ "spec": { "status": failed } });
    stage.objects(THING).patch("p", patch).await?;
    eventually("a tree that is not well", async || {
        let bad = admin.runs(["tree", "thing/p", "-n", namespace]).await?;
        ends(&bad, 1)?;
        ensure!(bad.text.contains("Failed"), "{bad:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn diff_ends_with_0_when_nothing_would_be_written_and_with_1_when_something_would()
-> anyhow::Result<()> {
    let (stage, admin) = settled("ctl-diff").await?;
    let name = stage.namespace.as_str();

    let same = admin.runs(["diff", name, "-n", name]).await?;
    ends(&same, 0)?;
    ensure!(same.text.ends_with("would write nothing\n"), "{same:#?}");
    // In another namespace there is nothing to look at, which is said.
    let elsewhere = admin.runs(["diff", name, "-n", "default"]).await?;
    ends(&elsewhere, 0)?;
    ensure!(
        elsewhere.errors.contains("-A looks in all"),
        "{elsewhere:#?}"
    );

    let wanted =
        json!({ "children": [config_map("a", json!({ "k": "2" })), config_map("b", json!({}))] });
    let answer = stage.shared.cluster.folder().join(format!("{name}.json"));
    fs::write(&answer, wanted.to_string())?;
    let answer = answer.to_string_lossy().into_owned();
    for place in [
        &["-n", name][..],
        &["-A"],
        &["-A", "-l", &format!("{STAGE}={name}")],
    ] {
        let args = ["diff", name, "--answer", &answer]
            .into_iter()
            .chain(place.iter().copied());
        let differs = admin.runs(args).await?;
        ends(&differs, 1)?;
        ensure!(
            differs.text.contains(r#"~ data.k: "1" -> "2""#),
            "{differs:#?}"
        );
        ensure!(
            differs
                .text
                .contains(&format!("+ create ConfigMap {name}/b")),
            "{differs:#?}"
        );
    }
    let args = ["diff", name, "-n", name, "--answer", &answer, "-o"];
    let with = |form: &'static str| args.into_iter().chain([form]);
    let json = admin.runs(with("json")).await?.json()?;
    ensure!(json["syncs"][0]["writes"][0]["method"] == "PUT", "{json:#}");
    let names = admin.runs(with("name")).await?;
    ensure!(
        names.text == format!("update ConfigMap {name}/a\ncreate ConfigMap {name}/b\n"),
        "{names:#?}"
    );
    ensure!(admin.runs(with("yaml")).await?.text.starts_with("syncs:"));
    // By the server, as its flag says.
    let by_server = with("json").chain(["--apply-strategy=server-side-apply"]);
    let by_server = admin.runs(by_server).await?.json()?;
    ensure!(
        by_server
            .to_string()
            .contains("application/apply-patch+yaml"),
        "{by_server:#}"
    );

    // Nothing of this was written.
    let child = stage.objects(CONFIG_MAP).get("a").await?;
    ensure!(data_of(&child) == json!({ "k": "1" }));
    Ok(())
}

#[tokio::test]
async fn diff_ends_with_2_when_an_answer_is_refused() -> anyhow::Result<()> {
    let (stage, admin) = settled("ctl-refused").await?;
    let name = stage.namespace.as_str();
    let answer = stage.shared.cluster.folder().join(format!("{name}.json"));
    fs::write(&answer, r#"{"children": "no list"}"#)?;
    let answer = answer.to_string_lossy().into_owned();
    let refused = admin
        .runs(["diff", name, "-n", name, "--answer", &answer])
        .await?;
    ends(&refused, 2)?;
    ensure!(refused.text.contains("answer_refused"), "{refused:#?}");
    Ok(())
}

#[tokio::test]
async fn lint_takes_kinds_from_the_cluster() -> anyhow::Result<()> {
    let stage = Stage::new("ctl-lint").await?;
    let admin = User::admin(stage.shared)?;
    let mut controller = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": { "name": stage.namespace },
        "spec": {
            "generateSelector": true,
            "parentResource": { "apiVersion": "test.metashard.io/v1", "resource": "things" },
            "hooks": { "sync": { "webhook": { "url": stage.hook.url("/sync") } } },
        },
    });
    let file = stage
        .shared
        .cluster
        .folder()
        .join(format!("{}.lint.json", stage.namespace));
    let name = file.to_string_lossy().into_owned();
    let lint = async |controller: &Value, args: &[&str]| {
        fs::write(&file, controller.to_string())?;
        let mut command = admin.command(
            ["lint", "-f", &name]
                .into_iter()
                .chain(args.iter().copied()),
        )?;
        command.env(
            "KUBECONFIG",
            stage.shared.cluster.kubeconfig(cluster::ADMIN)?,
        );
        ran(command).await
    };

    // Without the cluster the kind of its parents is not known.
    ends(&lint(&controller, &[]).await?, 1)?;
    let known = lint(&controller, &["--cluster", "--connect"]).await?;
    ends(&known, 0)?;
    controller["spec"]["parentResource"]["resource"] = "thinsg".into();
    let typo = lint(&controller, &["--cluster", "-o", "json"]).await?;
    ends(&typo, 1)?;
    ensure!(typo.text.contains("did you mean things"), "{typo:#?}");
    ends(
        &lint(&controller, &["--cluster", "--context", "nowhere"]).await?,
        2,
    )?;
    Ok(())
}
