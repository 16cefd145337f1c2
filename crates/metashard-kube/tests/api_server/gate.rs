//! The write gate.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use bytes::Bytes;
use metashard_kube::{gate::WriteGate, identity::Identity};
use metashard_reconcile::{
    object::Object,
    write::{Aim, NO_VERSION, Op, Propagation, Purpose, Write, WriteError},
};
use metashard_runtime::task;
use metashard_testkit::{
    Cluster,
    wait::{eventually, throughout},
};
use serde_json::{Value, json};

use crate::{
    authority::{self, CLAIM},
    kit::{Kit, SOON, config_maps},
    proxy::Proxy,
};

fn write(kit: &Kit, name: &str, op: Op) -> Write {
    Write {
        resource: Arc::new(config_maps()),
        namespace: Some(kit.namespace.as_str().into()),
        name: name.into(),
        op,
        purpose: Purpose::CreateChild,
        why: "a test".into(),
    }
}

fn create(kit: &Kit, name: &str) -> Write {
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "x": "y" }, "metadata": { "namespace": kit.namespace, "name": name } });
    write(
        kit,
        name,
        Op::Create {
            body: Bytes::from(body.to_string()),
        },
    )
}

fn update(kit: &Kit, name: &str, uid: &str, version: &str) -> Write {
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "b" },
        "metadata": { "namespace": kit.namespace, "name": name, "uid": uid, "resourceVersion": version },
    });
    write(
        kit,
        name,
        Op::Update {
            body: Bytes::from(body.to_string()),
        },
    )
}

fn open(kit: &Kit) -> WriteGate {
    let gate = WriteGate::new(&kit.clients);
    gate.open(CLAIM);
    gate
}

async fn exists(kit: &Kit, name: &str) -> anyhow::Result<bool> {
    Ok(kit.config_maps.get_opt(name).await?.is_some())
}

#[tokio::test]
async fn a_write_needs_authority_and_an_open_gate() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let gate = open(&kit);
    let (me, write) = (Identity::process(), create(&kit, "one"));

    assert_eq!(
        gate.write(&me, &authority::expired()?, &write).await.err(),
        Some(WriteError::NoAuthority)
    );
    gate.close(CLAIM);
    assert_eq!(
        gate.write(&me, &authority::fresh()?, &write).await.err(),
        Some(WriteError::NoAuthority)
    );
    assert!(!exists(&kit, "one").await?);
    gate.open(CLAIM);
    let created = gate
        .write(&me, &authority::fresh()?, &write)
        .await?
        .context("an object")?;

    assert_eq!((created.kind(), created.name()), ("ConfigMap", "one"));
    Ok(())
}

#[tokio::test]
async fn a_write_goes_out_under_the_name_of_the_program() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let created = open(&kit)
        .write(
            &Identity::process(),
            &authority::fresh()?,
            &create(&kit, "one"),
        )
        .await?;

    let object: Value = serde_json::from_slice(created.context("an object")?.bytes())?;

    assert_eq!(
        object["metadata"]["managedFields"][0]["manager"],
        "metashard"
    );
    Ok(())
}

#[tokio::test]
async fn each_refusal_is_told_apart() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let gate = open(&kit);
    let me = Identity::process();
    // One for each write: how long they take together on a busy machine is not asked here.
    let try_write = async |write: Write| {
        let authority = authority::fresh().unwrap();
        gate.write(&me, &authority, &write).await
    };
    let first = try_write(create(&kit, "one")).await?.context("an object")?;
    let second = try_write(update(&kit, "one", first.uid(), first.resource_version()))
        .await?
        .context("an object")?;

    assert_eq!(
        try_write(create(&kit, "one")).await.err(),
        Some(WriteError::AlreadyExists)
    );
    let stale = update(&kit, "one", first.uid(), first.resource_version());
    assert_eq!(try_write(stale).await.err(), Some(WriteError::Conflict));
    let other_uid = update(
        &kit,
        "one",
        "00000000-0000-4000-8000-000000000000",
        second.resource_version(),
    );
    assert_eq!(try_write(other_uid).await.err(), Some(WriteError::Conflict));
    let misnamed = create(&kit, "Not A Name");
    assert!(matches!(
        try_write(misnamed).await,
        Err(WriteError::Invalid(_))
    ));
    let delete = |uid: &str, version: &str| {
        let op = Op::Delete {
            uid: uid.into(),
            resource_version: version.into(),
            propagation: Propagation::Background,
        };
        write(&kit, "one", op)
    };
    assert_eq!(
        try_write(delete(first.uid(), first.resource_version()))
            .await
            .err(),
        Some(WriteError::Conflict)
    );
    assert!(
        try_write(delete(second.uid(), second.resource_version()))
            .await?
            .is_none()
    );
    assert_eq!(
        try_write(delete(second.uid(), second.resource_version()))
            .await
            .err(),
        Some(WriteError::NotFound)
    );
    let gone = update(&kit, "one", second.uid(), second.resource_version());
    assert_eq!(try_write(gone).await.err(), Some(WriteError::NotFound));
    assert!(!exists(&kit, "one").await?);
    Ok(())
}

#[tokio::test]
async fn a_missing_right_is_told_in_the_api_servers_words() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let kit = Kit::with(cluster, cluster.kubeconfig("nobody")?).await?;

    let result = open(&kit)
        .write(
            &Identity::process(),
            &authority::fresh()?,
            &create(&kit, "one"),
        )
        .await;

    let Err(WriteError::Forbidden(message)) = result else {
        anyhow::bail!("{result:?}")
    };
    assert!(
        message.contains("cannot create resource \"configmaps\""),
        "{message}"
    );
    Ok(())
}

#[tokio::test]
async fn an_apply_creates_what_is_not_there_and_changes_only_what_it_was_made_for()
-> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let gate = open(&kit);
    let me = Identity::process();
    let apply = |metadata: Value, data: &str, aim: Aim| {
        let mut body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "x": data }, "metadata": metadata });
        body["metadata"]["namespace"] = kit.namespace.as_str().into();
        body["metadata"]["name"] = "one".into();
        let body = Bytes::from(body.to_string());
        let manager = "metacontroller".into();
        write(&kit, "one", Op::Apply { body, manager, aim })
    };
    let try_write = async |write: Write| {
        let authority = authority::fresh().unwrap();
        gate.write(&me, &authority, &write).await
    };
    let new = || json!({ "resourceVersion": NO_VERSION });
    let of = |object: &Object| json!({ "uid": object.uid(), "resourceVersion": object.resource_version() });

    let first = try_write(apply(new(), "1", Aim::Create))
        .await?
        .context("an object")?;

    let object: Value = serde_json::from_slice(first.bytes())?;
    let entry = &object["metadata"]["managedFields"][0];
    assert_eq!(
        (&entry["manager"], &entry["operation"]),
        (&json!("metacontroller"), &json!("Apply"))
    );
    let again = try_write(apply(new(), "2", Aim::Create)).await;
    assert_eq!(again.err(), Some(WriteError::AlreadyExists));
    let tried = try_write(apply(of(&first), "2", Aim::Try))
        .await?
        .context("an object")?;
    assert!(tried.bytes().windows(7).any(|it| it == br#""x":"2""#));
    let same = try_write(apply(of(&first), "1", Aim::Change))
        .await?
        .context("an object")?;
    assert_eq!(
        same.resource_version(),
        first.resource_version(),
        "nothing was stored"
    );
    try_write(apply(of(&first), "2", Aim::Change))
        .await?
        .context("an object")?;
    let stale = try_write(apply(of(&first), "3", Aim::Change)).await;
    assert_eq!(stale.err(), Some(WriteError::Conflict));
    let Op::Create { body } = create(&kit, "one").op else {
        anyhow::bail!("a create")
    };
    let taken = try_write(write(&kit, "one", Op::TryCreate { body })).await;
    assert_eq!(taken.err(), Some(WriteError::AlreadyExists));
    Ok(())
}

#[tokio::test]
async fn a_write_in_flight_outlives_its_caller_and_a_drain_waits_for_it() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let proxy = Proxy::before(cluster).await?;
    let kit = Kit::with(cluster, proxy.kubeconfig.clone()).await?;
    let gate = open(&kit);
    let (me, authority, write) = (
        Identity::process(),
        authority::fresh()?,
        create(&kit, "one"),
    );

    proxy.hold();
    let waited = tokio::time::timeout(
        Duration::from_millis(300),
        gate.write(&me, &authority, &write),
    )
    .await;
    ensure!(waited.is_err(), "a held write was answered");
    assert_eq!(gate.in_flight(CLAIM), 1);
    let draining = task::spawn("drain", {
        let gate = gate.clone();
        async move { gate.drained(CLAIM).await }
    });
    throughout(Duration::from_millis(300), "the drain waits", async || {
        ensure!(!draining.is_finished());
        Ok(())
    })
    .await?;
    proxy.open();

    let written = tokio::time::timeout(SOON, draining).await??;
    let object = kit.config_maps.get("one").await?;
    let [last] = &*written else {
        anyhow::bail!("{written:?}")
    };
    assert_eq!(last.resource, "v1/configmaps");
    assert_eq!(
        Some(&last.resource_version),
        object.metadata.resource_version.as_ref()
    );
    assert_eq!(gate.in_flight(CLAIM), 0);
    assert_eq!(
        gate.write(&me, &authority::fresh()?, &create(&kit, "two"))
            .await
            .err(),
        Some(WriteError::NoAuthority)
    );
    Ok(())
}

#[tokio::test]
async fn a_write_is_given_up_when_the_authority_that_sent_it_ends() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let proxy = Proxy::before(cluster).await?;
    let kit = Kit::with(cluster, proxy.kubeconfig.clone()).await?;
    let gate = open(&kit);

    proxy.hold();
    let (me, authority, write) = (
        Identity::process(),
        authority::fresh()?,
        create(&kit, "one"),
    );
    // An authority of 4 s with a margin of 0.4 s; without it the write would wait for much longer than this.
    let result = tokio::time::timeout(Duration::from_secs(8), gate.write(&me, &authority, &write));

    assert!(matches!(result.await?, Err(WriteError::Unavailable(_))));
    assert_eq!(gate.in_flight(CLAIM), 0);
    assert!(gate.drained(CLAIM).await.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_newer_ownership_has_a_gate_of_its_own() -> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    let gate = open(&kit);
    let newer = metashard_fleet::message::Claim {
        epoch: CLAIM.epoch.next(),
        ..CLAIM
    };

    gate.open(newer);

    let result = gate
        .write(
            &Identity::process(),
            &authority::fresh()?,
            &create(&kit, "one"),
        )
        .await;
    assert_eq!(result.err(), Some(WriteError::NoAuthority));
    eventually(SOON, "an empty drain", async || {
        Ok(gate.drained(newer).await)
    })
    .await?;
    Ok(())
}
