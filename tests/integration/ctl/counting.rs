//! How much the tool asks of the API server: each thing once, however many controllers and parents there are.

use anyhow::ensure;
use metashard_testkit::proxy::Proxy;
use serde_json::json;

use super::{User, ours};
use crate::support::{CONFIG_MAP, CONTROLLER, OWN_REPLICA, SECRET, Stage, THING, config_map};

/// The lists and reads that went through, what is served left out.
fn asked(proxy: &Proxy) -> Vec<String> {
    let requests = proxy.requests();
    let paths = requests.iter().map(|it| it.path.clone());
    let served = ["/version", "/api", "/apis"];
    paths.filter(|it| !served.contains(&it.as_str())).collect()
}

#[tokio::test]
async fn status_and_diff_ask_for_each_kind_once() -> anyhow::Result<()> {
    let stage = Stage::new("ctl-counting").await?;
    let name = stage.namespace.as_str();
    let controller = stage.controller().child(CONFIG_MAP, "InPlace");
    let controller = controller.child(SECRET, "InPlace").edit(ours(&stage));
    let mut made = controller.apply().await?;
    // Two more with the same parents.
    made["metadata"] = json!({ "labels": made["metadata"]["labels"] });
    for other in ["two", "three"] {
        let mut other_one = made.clone();
        other_one["metadata"]["name"] = format!("{name}-{other}").into();
        stage.objects(CONTROLLER).create(other_one).await?;
    }
    for parent in ["p", "q", "r"] {
        let spec = json!({ "children": [config_map(parent, json!({}))] });
        stage.parent(THING, parent, spec).await?;
    }
    let proxy = Proxy::start(&stage.shared.cluster)?;
    let user = User::with(proxy.kubeconfig());

    let selector = format!("{OWN_REPLICA}={name}");
    let status = user.runs(["status", "-l", &selector]).await?;
    ensure!(status.text.lines().count() == 4, "{status:#?}");
    let paths = asked(&proxy);
    // Both kinds of controllers, and the parents that all three share.
    ensure!(paths.len() == 3, "{paths:#?}");

    proxy.forget();
    let diff = user.runs(["diff", name, "-n", name]).await?;
    ensure!(diff.text.contains("3 creates"), "{diff:#?}");
    let paths = asked(&proxy);
    // Both kinds of controllers, the parents, and two kinds of children.
    ensure!(paths.len() == 5, "{paths:#?}");
    Ok(())
}
