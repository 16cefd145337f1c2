//! Hooks in the languages that people write them in, by the usual means of each: the example `greeting`, as a reader would
//! run it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use anyhow::{Context, ensure};
use metashard_testkit::tools::skip;
use serde_json::Value;

use super::support::{CONFIG_MAP, Kind, Stage, data_of, eventually, shared};

const GREETING: Kind = Kind {
    api_version: "examples.metashard.io/v1",
    kind: "Greeting",
    plural: "greetings",
    namespaced: true,
};

/// Ended when it is dropped.
struct Hook(Child);

impl Drop for Hook {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
async fn a_hook_of_pythons_http_server_works() -> anyhow::Result<()> {
    if is_missing(
        "python3",
        "--version",
        "a_hook_of_pythons_http_server_works",
    )? {
        return Ok(());
    }
    let mut command = Command::new("python3");
    command.arg(example("python/hook.py"));
    greets("python", command).await
}

#[tokio::test]
async fn a_hook_of_nodes_http_module_works() -> anyhow::Result<()> {
    if is_missing("node", "--version", "a_hook_of_nodes_http_module_works")? {
        return Ok(());
    }
    let mut command = Command::new("node");
    command.arg(example("node/hook.mjs"));
    greets("node", command).await
}

#[tokio::test]
async fn a_hook_of_gos_net_http_works() -> anyhow::Result<()> {
    if is_missing("go", "version", "a_hook_of_gos_net_http_works")? {
        return Ok(());
    }
    let program = shared()
        .await?
        .cluster
        .group()
        .folder()
        .join("go-hook-program");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(example("go"))
        // It needs nothing but the standard library.
        .envs([("GOFLAGS", "-mod=mod"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")])
        .output()?;
    ensure!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    greets("go", Command::new(program)).await
}

/// The example's sample gets its ConfigMap from the hook that `command` serves on the port in its argument.
async fn greets(language: &str, mut command: Command) -> anyhow::Result<()> {
    let stage = Stage::new(language).await?;
    let cluster = &stage.shared.cluster;
    let name = format!("{language}-hook");
    let _hook = Hook(cluster.group().spawn(command.arg("0"), &name)?);
    let port = eventually("the hook's port", async || {
        let log = fs::read_to_string(cluster.group().log(&name))?;
        let port = log.lines().find_map(|line| line.strip_prefix("port "));
        Ok(port.context("not told yet")?.to_owned())
    })
    .await?;
    let apply = async |file: &str| {
        let text = fs::read_to_string(example("manifests").join(file))?
            .replace(
                "example: greeting",
                &format!("example: {}", stage.namespace),
            )
            .replace("name: greetings\n", &format!("name: {}\n", stage.namespace))
            .replace(
                "name: neighbours\n",
                &format!("name: neighbours\n  namespace: {}\n", stage.namespace),
            )
            .replace("127.0.0.1:8080", &format!("127.0.0.1:{port}"));
        // A kind is served some time after its CRD is there.
        eventually(file, async || cluster.apply_yaml(&text).await).await
    };

    for file in ["crd.yaml", "controller.yaml", "sample.yaml"] {
        apply(file).await?;
    }

    let child = stage.objects(CONFIG_MAP).appears("neighbours").await?;
    assert_eq!(data_of(&child)["text"], "Hello, neighbours!");
    let knows = |it: &Value| it["status"]["text"] == "Hello, neighbours!";
    stage
        .objects(GREETING)
        .becomes("neighbours", "to know its child", knows)
        .await?;
    Ok(())
}

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/greeting")
        .join(path)
}

/// Whether `program` is missing, which is said, and is a failure where all tools have to be there.
pub(crate) fn is_missing(program: &str, version: &str, test: &str) -> anyhow::Result<bool> {
    let has = Command::new(program)
        .arg(version)
        .output()
        .is_ok_and(|it| it.status.success());
    if has {
        return Ok(false);
    }
    skip(test, &format!("there is no {program} on the PATH"))?;
    Ok(true)
}
