//! An API server without streaming lists.

use anyhow::Context;
use metashard_testkit::{Cluster, cluster::Options};

use crate::kit::{Kit, SOON, seen};

#[tokio::test]
async fn without_streaming_lists_a_view_lists_in_pages_whose_items_carry_their_kind()
-> anyhow::Result<()> {
    let cluster = Cluster::start(Options {
        api_server_args: vec!["--feature-gates=WatchList=false".to_owned()],
        ..Options::default()
    })
    .await?;
    let kit = Kit::on(&cluster).await?;
    for n in 0..501 {
        kit.create(&format!("map-{n:03}"), &[]).await?;
    }

    let (view, recorder) = kit.open().await?;
    assert_eq!(recorder.take().len(), 502);
    let last = view
        .get(Some(&kit.namespace), "map-500")
        .context("the second page")?;
    assert_eq!((last.api_version(), last.kind()), ("v1", "ConfigMap"));
    kit.create("late", &[]).await?;
    seen(&view, &kit.namespace, "late").await?;
    kit.delete("map-000").await?;
    tokio::time::timeout(SOON, view.refresh()).await?;

    assert_eq!(recorder.take(), ["+late", "-map-000"]);
    assert!((kit.metric("metashard_kube_lists_total", "paged") - 2.0).abs() < 0.1);
    Ok(())
}
