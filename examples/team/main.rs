//! Hook of the kind Team: what a namespace needs so that a team can work in it: a quota, roles, and who has them.

mod access;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    metashard_examples::serve(access::sync).await
}
