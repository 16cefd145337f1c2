//! Hook of the kind Website: its pages become a ConfigMap, its servers a Deployment that mounts it.

mod site;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    metashard_examples::serve(site::sync).await
}
