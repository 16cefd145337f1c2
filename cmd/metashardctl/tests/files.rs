//! The program as people run it: over files, with typos, closed pipes and clusters that are not there.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::Context;
use serde_json::{Value, json};
use tempfile::TempDir;

const CONTROLLER: &str = r"
apiVersion: metacontroller.k8s.io/v1alpha1
kind: CompositeController
metadata: {name: demo}
spec:
  generateSelector: true
  parentResource: {apiVersion: ex.io/v1, resource: foos}
  childResources:
  - {apiVersion: v1, resource: configmaps, updateStrategy: {method: InPlace}}
  hooks: {sync: {webhook: {url: http://hook.ns/sync}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.ex.io}
spec:
  group: ex.io
  scope: Namespaced
  names: {plural: foos, kind: Foo}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: ex.io/v1
kind: Foo
metadata: {name: p, namespace: ns}
";

/// A folder with the controller, its kind and a parent, and an answer with so many children.
fn folder(children: usize) -> anyhow::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let child = |index: usize| {
        let name = format!("c{index}");
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
    };
    let children: Vec<_> = (0..children).map(child).collect();
    let answer = json!({"children": children}).to_string();
    fs::write(folder.path().join("all.yaml"), CONTROLLER)?;
    fs::write(folder.path().join("answer.json"), answer)?;
    Ok(folder)
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metashardctl"));
    command
        .args(args)
        .current_dir(folder)
        .env_remove("KUBECONFIG");
    command
}

fn run(folder: &TempDir, args: &[&str]) -> anyhow::Result<(i32, String, String)> {
    let Output {
        status,
        stdout,
        stderr,
    } = command(folder.path(), args).output()?;
    let code = status.code().context("read the exit code")?;
    Ok((code, String::from_utf8(stdout)?, String::from_utf8(stderr)?))
}

const RENDER: [&str; 5] = ["render", "-f", "all.yaml", "--answer", "answer.json"];

#[test]
fn render_prints_the_exact_writes_without_a_cluster() -> anyhow::Result<()> {
    let folder = folder(1)?;

    let (code, text, _) = run(&folder, &RENDER)?;
    assert_eq!(code, 0);
    assert!(text.contains("+ create ConfigMap ns/c0"), "{text}");
    assert!(
        text.ends_with("would write 2 objects in 1 namespace: 1 create, 1 status\n"),
        "{text}"
    );

    let (code, text, _) = run(&folder, &[&RENDER[..], &["-o", "json"]].concat())?;
    let value: Value = serde_json::from_str(&text).unwrap();
    let create = &value["syncs"][0]["writes"][0];
    assert_eq!(code, 0);
    assert_eq!(
        (&create["method"], &create["path"]),
        (&json!("POST"), &json!("/api/v1/namespaces/ns/configmaps"))
    );
    assert_eq!(
        create["body"]["metadata"]["ownerReferences"][0]["name"],
        "p"
    );
    Ok(())
}

#[test]
fn an_answer_that_is_refused_is_an_error() -> anyhow::Result<()> {
    let folder = folder(0)?;
    fs::write(folder.path().join("answer.json"), r#"{"children": [null]}"#).unwrap();

    let (code, text, _) = run(&folder, &RENDER)?;

    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("answer_refused") && text.contains("would write nothing"),
        "{text}"
    );
    Ok(())
}

#[test]
fn lint_finds_a_typo_and_ends_with_1() -> anyhow::Result<()> {
    let folder = folder(0)?;
    let wrong = CONTROLLER.replace("generateSelector", "genrateSelector");
    fs::write(folder.path().join("wrong.yaml"), wrong).unwrap();

    assert_eq!(run(&folder, &["lint", "-f", "all.yaml"])?.0, 0);
    let (code, text, _) = run(&folder, &["lint", "-f", "wrong.yaml"])?;

    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("spec.genrateSelector") && text.contains("did you mean generateSelector?"),
        "{text}"
    );
    Ok(())
}

/// Writes a case of Deployments as parents.
fn write_case(folder: &TempDir) -> anyhow::Result<()> {
    let cases = "controller: controller.yaml\nparent: {apiVersion: apps/v1, kind: Deployment, metadata: {name: p}}\nanswer: answer.json\n";
    let controller = CONTROLLER.split("---").next().context("a controller")?;
    let controller = controller
        .replace("ex.io/v1", "apps/v1")
        .replace("foos", "deployments");
    fs::write(folder.path().join("controller.yaml"), controller)?;
    fs::write(folder.path().join("a.test.yaml"), cases)?;
    Ok(())
}

#[test]
fn cases_end_with_1_until_what_is_expected_is_written_down() -> anyhow::Result<()> {
    let folder = folder(1)?;
    write_case(&folder)?;

    assert_eq!(run(&folder, &["test", "."])?.0, 1);
    assert_eq!(run(&folder, &["test", ".", "--update"])?.0, 0);
    let (code, text, _) = run(&folder, &["test", ".", "--junit", "out.xml"])?;

    assert_eq!(code, 0, "{text}");
    assert!(text.contains("1 of 1 case is as expected"), "{text}");
    assert!(
        fs::read_to_string(folder.path().join("out.xml"))
            .unwrap()
            .contains("<testcase")
    );
    Ok(())
}

#[test]
fn a_reader_that_goes_away_is_no_panic() -> anyhow::Result<()> {
    let folder = folder(3000)?;
    let mut child = command(folder.path(), &[&RENDER[..], &["-o", "yaml"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut first).unwrap();
    drop(reader);

    let output = child.wait_with_output().unwrap();

    assert_eq!(first, "syncs:\n");
    assert_eq!(output.status.code(), Some(141));
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

#[test]
fn a_command_may_answer_and_standard_input_may_be_a_file() -> anyhow::Result<()> {
    let folder = folder(1)?;
    let args = [
        "render",
        "-f",
        "-",
        "-o",
        "name",
        "--",
        "cat",
        "answer.json",
    ];
    let mut child = command(folder.path(), &args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(CONTROLLER.as_bytes())
        .unwrap();

    let output = child.wait_with_output().unwrap();

    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "create ConfigMap ns/c0\nupdate status of Foo ns/p\n");
    Ok(())
}

#[test]
fn a_cluster_that_is_not_there_is_one_line_and_exit_code_2() -> anyhow::Result<()> {
    let folder = folder(0)?;
    let kubeconfig = r"
apiVersion: v1
kind: Config
current-context: gone
contexts: [{name: gone, context: {cluster: gone, user: me}}]
clusters: [{name: gone, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: me, user: {}}]
";
    fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();

    let (code, _, errors) = run(&folder, &["status", "--kubeconfig", "kubeconfig"])?;
    let (other, _, context) = run(
        &folder,
        &["status", "--kubeconfig", "kubeconfig", "--context", "none"],
    )?;

    assert_eq!((code, other), (2, 2));
    assert!(
        errors.starts_with("error: ask the API server at 127.0.0.1:1: "),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(context.contains("none"), "{context}");
    Ok(())
}

#[test]
fn man_pages_and_completions_know_every_command() -> anyhow::Result<()> {
    let folder = folder(0)?;

    let (_, script, _) = run(&folder, &["completions", "bash"])?;
    assert_eq!(run(&folder, &["man", "pages"])?.0, 0);

    for command in [
        "render",
        "test",
        "lint",
        "status",
        "tree",
        "diff",
        "why",
        "shards",
        "drain",
        "uncordon",
        "rebalance",
        "migrate",
    ] {
        assert!(script.contains(command), "{command}");
        let page = folder
            .path()
            .join(format!("pages/metashardctl-{command}.1"));
        assert!(page.exists(), "{}", page.display());
    }
    Ok(())
}

/// A reader that has gone before the first line.
fn gone(folder: &TempDir, args: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let mut command = command(folder.path(), args);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn()?;
    drop(command);
    let output = child.wait_with_output()?;
    Ok((output.status.code(), String::from_utf8(output.stderr)?))
}

#[test]
fn a_reader_that_has_gone_ends_every_command_quietly() -> anyhow::Result<()> {
    let folder = folder(1)?;
    write_case(&folder)?;

    for args in [
        &RENDER[..],
        &["lint", "-f", "all.yaml"],
        &["lint", "-f", "all.yaml", "-o", "json"],
        &["test", "."],
        &["completions", "zsh"],
        &["man", "pages"],
    ] {
        let (code, errors) = gone(&folder, args)?;
        assert_eq!((code, &*errors), (Some(141), ""), "{args:?}");
    }
    Ok(())
}

#[test]
fn a_file_of_a_hundred_thousand_lines_is_rendered() -> anyhow::Result<()> {
    let folder = folder(500)?;
    let keys = (0..200).map(|key| format!("  key{key}: some text\n"));
    let data = keys.collect::<Vec<_>>().concat();
    let mut many = String::new();
    for index in 0..500 {
        let name = format!("c{index}\ndata:\n");
        many += "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ";
        many += &(name + &data);
    }
    assert!(many.lines().count() > 100_000);
    fs::write(folder.path().join("many.yaml"), many)?;

    let args = [&RENDER[..], &["-f", "many.yaml"]].concat();
    let (code, text, errors) = run(&folder, &args)?;

    assert_eq!((code, &*errors), (0, ""));
    assert!(
        text.contains("500 updates"),
        "{}",
        text.lines().last().unwrap_or_default()
    );
    let (code, text, _) = run(&folder, &["lint", "-f", "all.yaml", "-f", "many.yaml"])?;
    assert_eq!(code, 0, "{text}");
    Ok(())
}

#[test]
fn an_answer_that_no_replica_would_take_is_refused_by_its_length() -> anyhow::Result<()> {
    let folder = folder(0)?;
    let answer = json!({"children": [], "status": {"text": "x".repeat(10 << 20)}});
    fs::write(folder.path().join("answer.json"), answer.to_string())?;
    let exec = ["render", "-f", "all.yaml", "--", "cat", "answer.json"];

    for args in [&RENDER[..], &exec] {
        let (code, text, _) = run(&folder, args)?;
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("longer than 8388608 bytes"), "{text}");
    }
    // Just below it is shown, and cut where people look at it.
    let texts = vec!["x".repeat(1000); 7500];
    let answer = json!({"children": [], "status": {"texts": texts}});
    fs::write(folder.path().join("answer.json"), answer.to_string())?;
    let (code, text, _) = run(&folder, &[&RENDER[..], &["-o", "json"]].concat())?;
    assert_eq!(code, 0);
    assert!(text.len() > 7_500_000);
    let (_, text, _) = run(&folder, &RENDER)?;
    assert!(text.len() < 10_000, "{}", text.len());
    Ok(())
}
