//! How replicas share the work.

use std::{fmt, time::Duration};

use clap::{Args, ValueEnum};
use metashard_api::{
    id::ReplicaId,
    names,
    shard_map::{DEFAULT_SHARDS, MAX_SHARDS},
};
use metashard_status::address::Address;

use super::{
    Environment,
    value::{self, Error},
};
use crate::config;

/// How replicas share the work.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Name of this replica, unique among the running ones. Default: $POD_NAME, else the host's name and a random suffix.
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAME",
        default_value = "",
        hide_default_value = true
    )]
    replica_name: String,
    /// Namespace of Leases, ShardMap and certificates. Default: --leader-election-namespace, else $POD_NAMESPACE,
    /// else that of the Pod's ServiceAccount, else metashard-system.
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "",
        hide_default_value = true
    )]
    system_namespace: String,
    /// Namespace of the leader's Lease. Default: as --system-namespace.
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "",
        hide_default_value = true
    )]
    leader_election_namespace: String,
    /// Namespace of this Pod.
    #[arg(long, env = "POD_NAMESPACE", default_value = "", hide = true)]
    pod_namespace: String,
    /// Name of the leader's Lease.
    #[arg(long, value_name = "NAME", default_value = names::LEADER_LEASE)]
    leader_election_id: String,
    /// Address that this replica takes calls of others on.
    #[arg(long, value_name = "ADDRESS", default_value = ":9443")]
    grpc_address: Address,
    /// Host, or host:port, that others reach it at. Default: $POD_IP, else found on the way to the API server.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "POD_IP",
        default_value = "",
        hide_default_value = true
    )]
    advertise_address: String,
    /// What this replica does.
    #[arg(long, value_name = "ROLE", default_value_t = Role::All, value_enum)]
    role: Role,
    /// Number of shards; counts when the first leader of an installation makes the map, never after.
    #[arg(long, value_name = "NUMBER", default_value_t = DEFAULT_SHARDS,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_SHARDS)))]
    shards: u16,
    /// How long a Lease holds without a renewal, in whole seconds: after a crash others wait as long.
    #[arg(long, value_name = "DURATION", default_value = "4s", value_parser = lease_duration)]
    lease_duration: Duration,
    /// How long running hook calls may go on when a shard is handed over.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = value::grace)]
    drain_hook_grace: Duration,
    /// How long a shutdown may take. Keep it below the Pod's terminationGracePeriodSeconds.
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = value::grace)]
    shutdown_grace_period: Duration,
}

/// Ends the names of what a fleet that writes nothing keeps for itself.
const OBSERVE: &str = "-observe";

/// What a replica does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Works, and is a candidate for the lead.
    All,
    /// Is a candidate for the lead only.
    Leader,
    /// Works only.
    Worker,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Leader => "leader",
            Self::Worker => "worker",
        })
    }
}

impl Options {
    /// `observe`: a fleet that writes nothing must not be joined to one that does, which would leave its share undone.
    pub(super) fn check(
        self,
        environment: &Environment,
        observe: bool,
    ) -> Result<config::Fleet, Error> {
        let Self {
            replica_name,
            system_namespace,
            leader_election_namespace,
            pod_namespace,
            leader_election_id,
            grpc_address,
            advertise_address,
            role,
            shards,
            lease_duration,
            drain_hook_grace,
            shutdown_grace_period,
        } = self;
        let leader_namespace = leader_election_namespace.clone();
        let apart = |name: String| if observe { name + OBSERVE } else { name };
        let namespace = [system_namespace, leader_election_namespace, pod_namespace]
            .into_iter()
            .chain(environment.service_account_namespace.clone())
            .find(|namespace| !namespace.is_empty())
            .unwrap_or_else(|| names::SYSTEM_NAMESPACE.to_owned());
        let namespace = apart(namespace);
        Ok(config::Fleet {
            replica: replica(replica_name, environment)?,
            leader_namespace: if leader_namespace.is_empty() {
                namespace.clone()
            } else {
                object_name("leader-election-namespace", leader_namespace)?
            },
            system_namespace: object_name("system-namespace", namespace)?,
            leader_lease: object_name("leader-election-id", apart(leader_election_id))?,
            grpc_address,
            advertise_address: advertised(advertise_address)?,
            role,
            shards,
            lease_duration,
            drain_hook_grace,
            shutdown_grace: shutdown_grace_period,
        })
    }
}

/// The name is a label's value and part of a Lease's holder.
fn replica(given: String, environment: &Environment) -> Result<ReplicaId, Error> {
    let name = if given.is_empty() {
        let mut host = environment
            .host_name
            .clone()
            .unwrap_or_else(|| "replica".to_owned());
        host.truncate(host.floor_char_boundary(50));
        format!(
            "{}-{}",
            host.trim_end_matches(['.', '-', '_']),
            environment.suffix
        )
    } else {
        given
    };
    let at_ends = |c: char| c.is_ascii_alphanumeric();
    let is_label = name.len() <= 63
        && name.starts_with(at_ends)
        && name.ends_with(at_ends)
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if is_label {
        Ok(ReplicaId::new(name))
    } else {
        let problem =
            format!("{name:?} is no name of at most 63 letters, digits, '-', '_' and '.'");
        Err(Error::new("replica-name", problem))
    }
}

fn object_name(flag: &'static str, name: String) -> Result<String, Error> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_name = name.len() <= 253
        && name.starts_with(is_plain)
        && name.ends_with(is_plain)
        && name.chars().all(|c| is_plain(c) || matches!(c, '-' | '.'));
    if is_name {
        Ok(name)
    } else {
        Err(Error::new(
            flag,
            format!("{name:?} is no name of an object"),
        ))
    }
}

fn advertised(text: String) -> Result<Option<String>, Error> {
    if text.contains(|c: char| c.is_whitespace() || c == '/') {
        let problem = format!("{text:?} is neither a host nor host:port");
        return Err(Error::new("advertise-address", problem));
    }
    Ok(if text.is_empty() { None } else { Some(text) })
}

fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = value::duration(text)?;
    let is_whole = duration.subsec_nanos() == 0;
    if is_whole && (2..=3600).contains(&duration.as_secs()) {
        Ok(duration)
    } else {
        Err("must be whole seconds, from 2s to 1h".to_owned())
    }
}
