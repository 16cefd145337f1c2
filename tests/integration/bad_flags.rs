//! A replica that cannot start, or must not: it says why in one clear line, and ends as scripts expect. And how it ends
//! when it is told to.

use std::{
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context, ensure};
use metashard_api::names::PEER_LEADER_LEASE;
use metashard_testkit::{
    Cluster, Replica,
    proxy::{Fault, Proxy},
    replica::{self, binary},
    wait,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::support::{LEASE, Objects, WITHIN, eventually, shared, throughout};

/// Exit code of a command that was used incorrectly, as in `sysexits.h`.
const EX_USAGE: i32 = 64;

/// Within this time a replica that has nothing to hand over ends: far less than any Lease or grace period.
const QUICKLY: Duration = Duration::from_secs(3);

/// Selects no controller: such a replica stays out of the shared one's way.
const NOBODY: &str = "--target-label-selector=served-by=nobody";

/// A replica on the shared cluster with a system namespace of its own, which serves no controllers.
struct Idle {
    cluster: &'static Cluster,
    client: kube::Client,
    namespace: String,
    options: replica::Options,
}

impl Idle {
    async fn new(claim: &str) -> anyhow::Result<Self> {
        let cluster = &shared().await?.cluster;
        let namespace = cluster.namespace(claim).await?;
        let options = replica::Options::new(cluster, &namespace, &namespace)?;
        Ok(Self {
            cluster,
            client: cluster.admin().await?,
            options: options.flags([NOBODY]),
            namespace,
        })
    }

    fn start(&self) -> anyhow::Result<Replica> {
        Replica::start(self.cluster.group(), &self.options)
    }

    fn leases(&self) -> Objects {
        Objects::new(&self.client, LEASE, &self.namespace)
    }

    /// Starts a replica that must not come up. Returns its exit code, and the lines of its log that say an error.
    async fn fails(&self) -> anyhow::Result<(Option<i32>, Vec<String>)> {
        let mut replica = self.start()?;
        let status = replica.ended(WITHIN).await?;
        let log = replica.whole_log();
        let errors = log.lines().filter_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["level"] == "error").then(|| line["msg"].as_str().unwrap_or_default().to_owned())
        });
        Ok((status.code(), errors.collect()))
    }
}

/// The program with these arguments, run to its end.
fn run(arguments: &[&str]) -> anyhow::Result<Output> {
    Command::new(binary()?)
        .args(arguments)
        .output()
        .context("run metashard")
}

#[test]
fn a_bad_flag_is_told_with_the_usage_and_exit_code_64() -> anyhow::Result<()> {
    for (arguments, told) in [
        (&["--no-such-flag"][..], "--no-such-flag"),
        (&["word"], "word"),
        (&["--workers"], "--workers"),
        (&["--workers=many"], "--workers"),
        (&["--lease-duration=soon"], "--lease-duration"),
        (&["-cache-flush-interval", "soon"], "--cache-flush-interval"),
        (
            &["--target-label-selector=app in ("],
            "--target-label-selector",
        ),
        (&["--metrics-address=nowhere"], "--metrics-address"),
        (&["--role=boss"], "--role"),
    ] {
        let output = run(arguments)?;
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        ensure!(
            output.status.code() == Some(EX_USAGE),
            "{arguments:?}: {output:?}"
        );
        ensure!(stdout.is_empty(), "{arguments:?}: {stdout}");
        let first = stderr.lines().next().unwrap_or_default();
        ensure!(
            first.starts_with("error: ") && first.contains(told),
            "{arguments:?}: {stderr}"
        );
        ensure!(
            stderr.contains("Usage: metashard [OPTIONS]"),
            "{arguments:?}: {stderr}"
        );
    }
    Ok(())
}

#[test]
fn a_kubeconfig_that_is_missing_is_told_in_one_line() -> anyhow::Result<()> {
    let output = run(&[
        "--kubeconfig=/no/such/kubeconfig",
        "--metrics-address=0",
        "--health-probe-bind-address=0",
        "--grpc-address=127.0.0.1:0",
    ])?;

    let all = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&all);
    let errors: Vec<_> = text
        .lines()
        .filter(|line| line.contains(r#""level":"error""#))
        .collect();
    ensure!(output.status.code() == Some(1), "{:?}", output.status);
    ensure!(
        errors.len() == 1 && errors[0].contains("/no/such/kubeconfig"),
        "{text}"
    );
    Ok(())
}

/// As client-go looks for it; each place named here holds nothing, so that the error tells which one counted.
#[test]
fn the_api_server_is_looked_for_by_flag_then_kubeconfig_then_pod_then_home() -> anyhow::Result<()> {
    let flag = ("--kubeconfig=/no/such/flag", "/no/such/flag");
    let env = ("KUBECONFIG", "/no/such/env");
    let pod = ("KUBERNETES_SERVICE_HOST", "127.0.0.1");
    for (flag, variables, told) in [
        (Some(flag.0), &[env, pod][..], flag.1),
        (None, &[env, pod], "load kubeconfig of $KUBECONFIG"),
        (None, &[pod], "load the Pod's service account"),
        (None, &[], "no usable ~/.kube/config"),
    ] {
        let output = Command::new(binary()?)
            .args(flag)
            .args(["--metrics-address=0", "--health-probe-bind-address=0"])
            .arg("--grpc-address=127.0.0.1:0")
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env("KUBERNETES_SERVICE_PORT", "1")
            .env("HOME", "/no/such/home")
            .envs(variables.iter().copied())
            .output()
            .context("run metashard")?;

        let log = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{:?}", output.status);
        ensure!(log.contains(told), "{variables:?}: no {told:?} in {log}");
    }
    Ok(())
}

#[tokio::test]
async fn an_address_that_is_taken_is_told_in_one_line() -> anyhow::Result<()> {
    let mut idle = Idle::new("taken").await?;
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    let address = taken.local_addr()?;
    // A flag given twice counts with its last value.
    idle.options = idle
        .options
        .flags([format!("--metrics-address={address}").as_str()]);

    let (code, errors) = idle.fails().await?;

    ensure!(code == Some(1), "{code:?}");
    ensure!(
        errors.len() == 1 && errors[0].contains(&address.to_string()),
        "{errors:?}"
    );
    Ok(())
}

#[tokio::test]
async fn missing_crds_are_told_in_one_line_that_says_how_to_install_them() -> anyhow::Result<()> {
    let mut idle = Idle::new("no-crds").await?;
    let proxy = Proxy::start(idle.cluster)?;
    proxy.fail(|request| {
        let of_controllers = request.path.ends_with("controllers.metacontroller.k8s.io");
        if of_controllers {
            Fault::Answer(404)
        } else {
            Fault::Pass
        }
    });
    idle.options.kubeconfig = proxy.kubeconfig();

    let (code, errors) = idle.fails().await?;

    ensure!(code == Some(1), "{code:?}");
    let told = "CRDs are not installed: compositecontrollers.metacontroller.k8s.io, decoratorcontrollers.metacontroller.k8s.io; \
                install them with `kubectl apply --server-side -f deploy/crds/`";
    ensure!(errors == [told], "{errors:?}");
    Ok(())
}

#[tokio::test]
async fn missing_rights_are_told_in_one_line_that_names_verb_and_resource() -> anyhow::Result<()> {
    let mut idle = Idle::new("no-rights").await?;
    idle.options.kubeconfig = idle.cluster.kubeconfig("stranger")?;

    let (code, errors) = idle.fails().await?;

    ensure!(code == Some(1), "{code:?}");
    ensure!(errors.len() == 1, "{errors:?}");
    let lacks = format!(
        "lacks rights: get, list, watch, create, update, delete leases.coordination.k8s.io in namespace {}",
        idle.namespace
    );
    ensure!(errors[0].contains(&lacks), "{errors:?}");
    Ok(())
}

#[tokio::test]
async fn a_replica_with_nothing_to_hand_over_ends_at_once_when_it_is_told_to() -> anyhow::Result<()>
{
    let idle = Idle::new("idle").await?;
    let mut replica = idle.start()?;
    replica.ready(WITHIN).await?;

    replica.signal(Signal::TERM)?;
    let status = replica.ended(QUICKLY).await?;

    ensure!(status.code() == Some(0), "{status:?}");
    ensure!(
        replica.log().contains("everything was handed over"),
        "{}",
        replica.log()
    );
    let held: Vec<Value> = idle.leases().list().await?;
    let held: Vec<&Value> = held.iter().filter(|it| is_held(it)).collect();
    ensure!(held.is_empty(), "{held:#?}");
    Ok(())
}

fn is_held(lease: &Value) -> bool {
    lease["spec"]["holderIdentity"]
        .as_str()
        .is_some_and(|it| !it.is_empty())
}

#[tokio::test]
async fn a_second_signal_ends_a_replica_that_still_hands_over() -> anyhow::Result<()> {
    let mut idle = Idle::new("hurry").await?;
    let proxy = Proxy::start(idle.cluster)?;
    idle.options.kubeconfig = proxy.kubeconfig();
    let mut replica = idle.start()?;
    replica.ready(WITHIN).await?;

    // It cannot tell anybody that it leaves.
    proxy.fail(|_| Fault::Delay(WITHIN));
    replica.signal(Signal::TERM)?;
    eventually("the beginning of the hand-over", async || {
        ensure!(replica.log().contains("shutting down"), "it has not begun");
        Ok(())
    })
    .await?;
    throughout("it hands over", async || {
        ensure!(replica.is_running(), "it has ended");
        Ok(())
    })
    .await?;
    replica.signal(Signal::TERM)?;
    let status = replica.ended(QUICKLY).await?;

    ensure!(status.code() == Some(1), "{status:?}");
    Ok(())
}

/// Holds the Lease of a Metacontroller.
struct Peer<'a> {
    idle: &'a Idle,
    renewals: u32,
}

impl<'a> Peer<'a> {
    /// It holds the Lease for `seconds` from each renewal on.
    async fn acquire(idle: &'a Idle, seconds: u32) -> anyhow::Result<Self> {
        let spec =
            json!({ "holderIdentity": "metacontroller-0_1", "leaseDurationSeconds": seconds });
        let lease = json!({ "metadata": { "name": PEER_LEADER_LEASE }, "spec": spec });
        idle.leases().create(lease).await?;
        Ok(Self { idle, renewals: 0 })
    }

    async fn renew(&mut self) -> anyhow::Result<()> {
        self.renewals += 1;
        let patch = json!({ "spec": { "leaseTransitions": self.renewals } });
        self.idle.leases().patch(PEER_LEADER_LEASE, patch).await?;
        Ok(())
    }
}

#[tokio::test]
async fn nothing_is_done_while_a_metacontroller_is_live() -> anyhow::Result<()> {
    const LEASE_SECONDS: u32 = 3;
    let mut idle = Idle::new("peer").await?;
    let proxy = Proxy::start(idle.cluster)?;
    idle.options.kubeconfig = proxy.kubeconfig();
    let mut peer = Peer::acquire(&idle, LEASE_SECONDS).await?;
    let mut replica = idle.start()?;
    let says =
        "a Metacontroller may be live: nothing is done until its Lease metacontroller has ended";
    eventually("the replica to wait", async || {
        ensure!(replica.log().contains(says), "it does not say so");
        Ok(())
    })
    .await?;

    // Longer than the Lease would last without renewals.
    let renewed = Instant::now();
    wait::throughout(Duration::from_secs(5), "it waits", async || {
        if renewed.elapsed().as_secs() >= u64::from(peer.renewals) {
            peer.renew().await?;
        }
        ensure!(replica.is_running(), "it has ended");
        ensure!(replica.health("/readyz").await?.0 != 200, "it is ready");
        let (_, reasons) = replica.health("/readyz?verbose").await?;
        ensure!(reasons.contains("Metacontroller"), "{reasons}");
        let mut writes = proxy.requests();
        // Asking what one may do is written as one, too.
        writes.retain(|it| it.is_write() && !it.path.starts_with("/apis/authorization.k8s.io/"));
        ensure!(writes.is_empty(), "{writes:#?}");
        Ok(())
    })
    .await?;

    replica.ready(WITHIN).await
}

#[tokio::test]
async fn a_replica_that_waits_for_a_metacontroller_to_end_can_be_stopped() -> anyhow::Result<()> {
    let idle = Idle::new("peer-stop").await?;
    Peer::acquire(&idle, 60).await?;
    let mut replica = idle.start()?;
    eventually("the replica to wait", async || {
        ensure!(
            replica.log().contains("a Metacontroller may be live"),
            "it does not say so"
        );
        Ok(())
    })
    .await?;

    replica.signal(Signal::TERM)?;
    let status = replica.ended(QUICKLY).await?;

    ensure!(status.code() == Some(0), "{status:?}");
    Ok(())
}

#[tokio::test]
async fn a_metacontroller_that_starts_later_has_the_cluster_to_itself() -> anyhow::Result<()> {
    let idle = Idle::new("peer-late").await?;
    let mut replica = idle.start()?;
    replica.ready(WITHIN).await?;

    let mut peer = Peer::acquire(&idle, 15).await?;
    let status = wait::eventually(WITHIN, "the replica to give way", async || {
        peer.renew().await?;
        replica.ended(Duration::from_millis(500)).await
    })
    .await?;

    ensure!(status.code() == Some(1), "{status:?}");
    ensure!(
        replica.log().contains("a Metacontroller has started"),
        "{}",
        replica.log()
    );
    Ok(())
}
