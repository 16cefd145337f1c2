//! Flags as Metacontroller's Deployments give them, and ours.

use std::{ffi::OsString, time::Duration};

use metashard_worker::Strategy;

use super::*;
use crate::argv;

fn environment() -> Environment {
    Environment {
        host_name: Some("node-7".to_owned()),
        service_account_namespace: None,
        suffix: "abcde".to_owned(),
    }
}

fn check_in(environment: &Environment, args: &[&str]) -> Result<Config, Error> {
    let args = std::iter::once("metashard")
        .chain(args.iter().copied())
        .map(OsString::from);
    argv::parse(args).unwrap().check(environment)
}

fn check(args: &[&str]) -> Result<Config, Error> {
    check_in(&environment(), args)
}

#[test]
fn defaults_are_metacontrollers_where_it_has_the_flag() {
    let config = check(&[]).unwrap();

    let printed = config.to_string();
    let expected = "\
kubeconfig: found
client-go-qps: unlimited
client-go-burst: unlimited
discovery-interval: 30s
events-qps: 0.0033333333333333335
events-burst: 25
workers: 5
cache-flush-interval: 1800s
target-label-selector: 
observe: false
apply-strategy: dynamic-apply
apply-strategy-ssa-field-manager: metacontroller
replica-name: node-7-abcde
system-namespace: metashard-system
leader-election-namespace: metashard-system
leader-election-id: metashard-leader
grpc-address: :9443
advertise-address: found
role: all
shards: 1024
lease-duration: 4s
drain-hook-grace: 2s
shutdown-grace-period: 25s
metrics-address: :9999
health-probe-bind-address: :8081
pprof-address: 0
log: ";
    assert!(printed.starts_with(expected), "{printed}");
    assert!(config.warnings.is_empty());
}

#[test]
fn every_flag_of_metacontroller_is_taken() {
    let config = check(&[
        "--discovery-interval=20s",
        "--cache-flush-interval=1h30m",
        "-metrics-address",
        ":1",
        "--client-go-qps=5",
        "--client-go-burst=10",
        "--workers=20",
        "--events-qps=0.5",
        "--events-burst=3",
        "--pprof-address=:6060",
        "--leader-election",
        "--leader-election-resource-lock=leases",
        "--leader-election-namespace=ns",
        "--leader-election-id=metacontroller",
        "--health-probe-bind-address=127.0.0.1:2",
        "--target-label-selector=app in (a,b),!x",
        "--apply-strategy=server-side-apply",
        "--apply-strategy-ssa-field-manager=m",
        "--kubeconfig=/etc/k",
        "--zap-devel=false",
        "--zap-encoder=json",
        "--zap-log-level=4",
        "--zap-stacktrace-level=panic",
        "--zap-time-encoding=iso8601",
    ])
    .unwrap();

    assert_eq!(config.kube.discovery_interval, Duration::from_secs(20));
    assert_eq!(config.worker.flush_interval, Duration::from_mins(90));
    assert_eq!((config.kube.qps, config.kube.burst), (Some(5.0), Some(10)));
    assert_eq!(config.worker.target_selector.to_string(), "app in (a,b),!x");
    assert_eq!(config.fleet.system_namespace, "ns");
    assert_eq!(config.fleet.leader_namespace, "ns");
    assert_eq!(config.fleet.leader_lease, "metacontroller");
    assert_eq!(config.status.pprof.map(|it| it.port()), Some(6060));
    let warned: Vec<_> = config
        .warnings
        .iter()
        .filter_map(|it| it.split([' ', '=']).next())
        .collect();
    assert_eq!(warned, [""; 0]);
    assert_eq!(config.worker.apply.strategy, Strategy::ServerSide);
    assert_eq!(&*config.worker.apply.manager, "m");
}

#[test]
fn the_limit_on_requests_is_read_as_client_go_reads_it() {
    let qps = |args: &[&str]| check(args).unwrap().kube.qps;

    assert_eq!(qps(&[]), None);
    assert_eq!(qps(&["--client-go-qps=0"]), Some(5.0));
    assert_eq!(qps(&["--client-go-qps=-1"]), None);
    assert_eq!(qps(&["--client-go-qps=7.5"]), Some(7.5));
}

#[test]
fn the_system_namespace_is_the_first_that_is_known() {
    let in_pod = Environment {
        service_account_namespace: Some("sa".to_owned()),
        ..environment()
    };
    let namespace =
        |env: &Environment, args: &[&str]| check_in(env, args).unwrap().fleet.system_namespace;

    assert_eq!(
        namespace(
            &in_pod,
            &["--system-namespace=a", "--leader-election-namespace=b"]
        ),
        "a"
    );
    assert_eq!(
        namespace(
            &in_pod,
            &["--leader-election-namespace=b", "--pod-namespace=c"]
        ),
        "b"
    );
    assert_eq!(namespace(&in_pod, &["--pod-namespace=c"]), "c");
    assert_eq!(namespace(&in_pod, &[]), "sa");
    assert_eq!(namespace(&environment(), &[]), "metashard-system");
}

#[test]
fn values_that_cannot_be_used_are_refused_with_their_flag() {
    for (arg, flag) in [
        (
            "--target-label-selector=a in b",
            "--target-label-selector: ",
        ),
        (
            "--apply-strategy=odd",
            "--apply-strategy: unknown apply strategy: odd",
        ),
        (
            "--leader-election-resource-lock=configmaps",
            "--leader-election-resource-lock: ",
        ),
        (
            "--apply-strategy-ssa-field-manager=",
            "--apply-strategy-ssa-field-manager: ",
        ),
        ("--replica-name=a b", "--replica-name: "),
        ("--system-namespace=A", "--system-namespace: "),
        ("--leader-election-id=", "--leader-election-id: "),
        ("--metrics-address=9999", "--metrics-address: "),
        (
            "--health-probe-bind-address=x",
            "--health-probe-bind-address: ",
        ),
        ("--advertise-address=http://x", "--advertise-address: "),
        ("--pprof-address=x", "--pprof-address: "),
        ("--client-go-qps=nan", "--client-go-qps: "),
        ("--events-qps=-1", "--events-qps: "),
    ] {
        let error = check(&[arg]).unwrap_err().to_string();
        assert!(error.starts_with(flag), "{arg}: {error}");
    }
}

#[test]
fn numbers_and_durations_out_of_range_are_refused() {
    for arg in [
        "--workers=0",
        "--workers=x",
        "--shards=0",
        "--shards=4097",
        "--lease-duration=500ms",
        "--lease-duration=1s",
        "--lease-duration=4500ms",
        "--lease-duration=2h",
        "--discovery-interval=0",
        "--discovery-interval=5",
        "--cache-flush-interval=-1m",
        "--grpc-address=9443",
        "--role=both",
        "--zap-log-level=loud",
        "--events-burst=-1",
    ] {
        let args = ["metashard", arg].map(OsString::from);
        assert!(argv::parse(args.into_iter()).is_err(), "{arg}");
    }
}

#[test]
fn a_long_or_odd_host_name_still_gives_a_name() {
    let long = Environment {
        host_name: Some("x".repeat(100)),
        ..environment()
    };
    let odd = Environment {
        host_name: None,
        ..environment()
    };
    let name = |env: &Environment| check_in(env, &[]).unwrap().fleet.replica.to_string();

    assert_eq!(name(&long).len(), 56);
    assert_eq!(name(&odd), "replica-abcde");
    assert!(
        check_in(
            &Environment {
                host_name: Some("ü".to_owned()),
                ..environment()
            },
            &[]
        )
        .is_err()
    );
}

#[test]
fn replicas_that_only_observe_share_nothing_with_those_that_act() {
    let acting = check(&["--leader-election-id=metacontroller"]).unwrap();
    let observing = check(&["--observe", "--leader-election-id=metacontroller"]).unwrap();

    assert!(observing.worker.observe && !acting.worker.observe);
    assert_eq!(observing.fleet.system_namespace, "metashard-system-observe");
    assert_eq!(observing.fleet.leader_lease, "metacontroller-observe");
    assert_eq!(acting.fleet.leader_lease, "metacontroller");
    assert!(!check(&["--observe=false"]).unwrap().worker.observe);
}
