//! A hook in Python.

use std::{
    fs,
    process::{Child, Command},
};

use anyhow::Context;
use serde_json::{Value, json};

use crate::support::{CONFIG_MAP, Stage, THING, data_of, eventually};

/// Ended when it is dropped.
struct Python(Child);

impl Drop for Python {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
async fn a_hook_of_pythons_http_server_works() -> anyhow::Result<()> {
    if !Command::new("python3")
        .arg("--version")
        .output()
        .is_ok_and(|it| it.status.success())
    {
        skipped();
        return Ok(());
    }
    let stage = Stage::new("python").await?;
    let group = stage.shared.cluster.group();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/integration/python/hook.py");
    let _python = Python(group.spawn(Command::new("python3").arg(script), "python")?);
    let url = eventually("the hook's port", async || {
        let log = fs::read_to_string(group.log("python"))?;
        let port = log.lines().find_map(|line| line.strip_prefix("port "));
        Ok(format!(
            "http://127.0.0.1:{}/sync",
            port.context("not told yet")?
        ))
    })
    .await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .edit(|it| it["spec"]["hooks"]["sync"]["webhook"]["url"] = url.into())
        .apply()
        .await?;

    stage.parent(THING, "p", json!({ "who": "world" })).await?;

    let child = stage.objects(CONFIG_MAP).appears("p").await?;
    assert_eq!(data_of(&child), json!({ "who": "world" }));
    let has_one = |it: &Value| it["status"]["children"] == 1;
    stage
        .objects(THING)
        .becomes("p", "to know its child", has_one)
        .await?;
    Ok(())
}

/// Written to the terminal itself: the test runner keeps what is printed by tests that pass.
fn skipped() {
    let text = "\nSKIPPED: a_hook_of_pythons_http_server_works: there is no python3 on the PATH\n";
    drop(fs::write("/dev/stderr", text));
}
