//! `migrate`: what a move from Metacontroller means, and the move itself.

mod act;
mod leases;
mod look;
mod telling;
mod walk;

pub(super) use self::walk::{apply, rollback};

use metashard_api::{names::PEER_LEADER_LEASE, resource::Resource};
use metashard_plan::migrate::{self, Peer};
use serde_json::{Value, json};

use crate::{
    Found,
    argv::{Format, Plan},
    cluster::Cluster,
    output::Output,
};

pub(super) async fn plan(flags: &Plan, output: &mut Output) -> anyhow::Result<Found> {
    let cluster = Cluster::connect(&flags.live).await?;
    let peers = peers(&cluster, flags.live.namespace.as_deref()).await?;
    let controllers = cluster.controllers_with(&flags.live.selector).await?;
    let resources = cluster.resources();
    let mut moves = Vec::new();
    for controller in &controllers {
        let value: Value = serde_json::from_slice(controller.bytes())?;
        moves.push(migrate::plan(&value, &resources, peers.first()));
    }
    let mut leases = Vec::new();
    for peer in &peers {
        leases.push(lease(&cluster, peer).await?);
    }
    let is_served = moves.iter().all(|it| it.refusals.is_empty());
    let is_clean = is_served && peers.iter().all(|it| it.flag_problems().is_empty());
    if flags.output == Format::Name {
        for controller in &controllers {
            output.line(&super::full_name(controller))?;
        }
    } else if matches!(flags.output, Format::Json | Format::Yaml) {
        let told: Vec<_> = peers
            .iter()
            .zip(&leases)
            .map(|(peer, lease)| peer_json(peer, lease.as_deref()))
            .collect();
        let moves: Vec<_> = moves.iter().map(migrate::Move::to_json).collect();
        output.value(
            flags.output,
            &json!({"metacontrollers": told, "controllers": moves}),
        )?;
    } else {
        for (peer, lease) in peers.iter().zip(&leases) {
            tell_peer(peer, lease.as_deref(), output)?;
        }
        if peers.is_empty() {
            output.line("no Metacontroller was found among StatefulSets and Deployments")?;
        }
        for it in &moves {
            tell_move(it, output)?;
        }
        next(&peers, is_served, output)?;
    }
    Ok(if is_clean {
        Found::Same
    } else {
        Found::Differs
    })
}

/// The Metacontrollers of a namespace, or of all.
async fn peers(cluster: &Cluster, namespace: Option<&str>) -> anyhow::Result<Vec<Peer>> {
    let mut workloads = Vec::new();
    for plural in ["statefulsets", "deployments"] {
        let resource = cluster.resource(&format!("{plural}.apps"))?;
        for workload in cluster.list(&resource, namespace, "").await? {
            workloads.push(serde_json::from_slice(workload.bytes())?);
        }
    }
    Ok(migrate::peers(&workloads))
}

/// Who holds its leader Lease; `None` if there is none.
async fn lease(cluster: &Cluster, peer: &Peer) -> anyhow::Result<Option<String>> {
    let resource: &Resource = &*cluster.resource("leases.coordination.k8s.io")?;
    let (namespace, name) = lease_of(peer);
    let all = cluster.list(resource, Some(&namespace), "").await?;
    let found = all.iter().find(|it| it.name() == name);
    let holder = found.and_then(|it| {
        let spec: Value = serde_json::from_slice(it.spec()?).ok()?;
        spec["holderIdentity"].as_str().map(str::to_owned)
    });
    Ok(holder.filter(|it| !it.is_empty()))
}

/// Namespace and name of its leader Lease.
fn lease_of(peer: &Peer) -> (String, String) {
    let namespace = peer
        .flag("leader-election-namespace")
        .filter(|it| !it.is_empty());
    let name = peer.flag("leader-election-id");
    (
        namespace.unwrap_or_else(|| peer.namespace.clone()),
        name.unwrap_or_else(|| PEER_LEADER_LEASE.to_owned()),
    )
}

fn peer_json(peer: &Peer, lease: Option<&str>) -> Value {
    json!({
        "workload": peer.workload,
        "replicas": peer.replicas,
        "image": peer.image,
        "args": peer.args,
        "electsLeader": peer.elects(),
        "leaseHolder": lease,
        "flagProblems": peer.flag_problems(),
    })
}

fn tell_peer(peer: &Peer, lease: Option<&str>, output: &mut Output) -> anyhow::Result<()> {
    output.line(&format!(
        "{}: {} {} of {}",
        peer.workload,
        peer.replicas,
        if peer.replicas == 1 {
            "replica"
        } else {
            "replicas"
        },
        peer.image
    ))?;
    match &peer.args[..] {
        [] => output.line("  without arguments")?,
        args => output.line(&format!("  arguments: {}", args.join(" ")))?,
    }
    match (peer.elects(), lease) {
        _ if peer.replicas == 0 => output.line("  it is stopped")?,
        (true, Some(holder)) => output.line(&format!("  its leader Lease is held by {holder}"))?,
        (true, None) => output.line("  it elects a leader, and nobody holds its Lease now")?,
        (false, _) => output.line(
            "  it elects no leader, so no Lease tells whether it is live: begin with `migrate apply`, before metashard starts",
        )?,
    }
    for problem in peer.flag_problems() {
        output.line(&format!("  {problem}"))?;
    }
    Ok(())
}

fn tell_move(it: &migrate::Move, output: &mut Output) -> anyhow::Result<()> {
    let word = match (it.refusals.is_empty(), it.differences.is_empty()) {
        (false, _) => "would not be served",
        (true, false) => "differs",
        (true, true) => "same",
    };
    output.line(&format!("{}: {word}", it.controller))?;
    for text in it.refusals.iter().chain(&it.differences) {
        output.line(&format!("  {text}"))?;
    }
    Ok(())
}

fn next(peers: &[Peer], is_served: bool, output: &mut Output) -> anyhow::Result<()> {
    output.line("")?;
    if !is_served {
        output
            .line("Correct what would not be served first. Until then nothing should be moved.")?;
        return Ok(());
    }
    output.line("Next: `metashardctl diff CONTROLLER -A` for each controller; `would write nothing` is what to look for.")?;
    if !peers.is_empty() {
        output.line(
            "Then `metashardctl migrate apply --dry-run`, and without it; `metashardctl migrate rollback` goes back.",
        )?;
    }
    Ok(())
}
