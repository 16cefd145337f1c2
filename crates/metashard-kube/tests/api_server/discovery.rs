//! What the process needs to find on a cluster before it starts.

use metashard_kube::system::{SecretData, create_secret, ensure_namespace, read_secret};
use metashard_testkit::Cluster;

use crate::kit::{Kit, connect};

#[tokio::test]
async fn a_namespace_is_made_if_it_is_absent() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let name = format!("{}-new", kit.namespace);

    ensure_namespace(&kit.clients, &name).await?;
    ensure_namespace(&kit.clients, &name).await?;

    assert!(create_secret(&kit.clients, &name, "ca", SecretData::new()).await?);
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_may_not_be_made_is_an_error_that_says_so() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let clients = connect(cluster.kubeconfig("nobody")?, &prometheus::Registry::new()).await?;
    // Not allowed to look either: whatever is done there will tell.
    ensure_namespace(&clients, "absent").await?;

    let error = read_secret(&clients, "absent", "ca").await.unwrap_err();

    assert!(error.is_forbidden());
    assert_eq!(
        error.to_string(),
        "GET /api/v1/namespaces/absent/secrets/ca"
    );
    Ok(())
}

#[tokio::test]
async fn of_two_who_create_a_secret_one_does() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let data = |text: &str| SecretData::from([("tls.key".to_owned(), text.as_bytes().to_vec())]);
    assert_eq!(read_secret(&kit.clients, &kit.namespace, "ca").await?, None);

    let first = data("first");
    let second = data("second");
    let (one, two) = tokio::try_join!(
        create_secret(&kit.clients, &kit.namespace, "ca", first.clone()),
        create_secret(&kit.clients, &kit.namespace, "ca", second.clone()),
    )?;

    assert!(one != two);
    let expected = if one { first } else { second };
    assert_eq!(
        read_secret(&kit.clients, &kit.namespace, "ca").await?,
        Some(expected)
    );
    Ok(())
}
