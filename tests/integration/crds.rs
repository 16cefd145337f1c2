//! The CRDs as they are shipped, on a real API server.

use anyhow::Context;
use metashard_api::v1alpha1::composite::CompositeController;
use serde_json::{Value, json};

use crate::support::{CONTROLLER, OWN_REPLICA, Objects, shared};

const FULL: &str =
    include_str!("../../crates/metashard-api/tests/cases/composite_controller_full.json");

#[tokio::test]
async fn a_controller_with_every_field_comes_back_as_it_was_written() -> anyhow::Result<()> {
    let shared = shared().await?;
    let client = shared.cluster.admin().await?;
    let controllers = Objects::new(&client, CONTROLLER, "");
    let full: Value = serde_json::from_str(FULL).context("read the case")?;
    let name = full["metadata"]["name"].as_str().unwrap();
    let mut object = full.clone();
    object["metadata"]["labels"] = json!({ OWN_REPLICA: "nobody" });

    controllers.create(object).await?;
    controllers
        .patch_status(name, full["status"].clone())
        .await?;
    let stored = controllers.get(name).await?;

    assert_eq!(stored["spec"], full["spec"]);
    assert_eq!(stored["status"], full["status"]);
    let typed: CompositeController = serde_json::from_value(stored)?;
    let again = serde_json::to_value(&typed)?;
    assert_eq!(again["spec"], full["spec"]);
    assert_eq!(again["status"], full["status"]);
    Ok(())
}
