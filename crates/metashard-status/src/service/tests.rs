//! The endpoints over real connections.

use metashard_runtime::{shutdown::Shutdown, task};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;
use crate::check::{self, Reporter};

/// A running service with one check of each kind.
struct Running {
    metrics: SocketAddr,
    health: SocketAddr,
    pprof: SocketAddr,
    live: Reporter,
    ready: Reporter,
    draining: Shutdown,
    stop: Shutdown,
    served: tokio::task::JoinHandle<io::Result<()>>,
}

async fn start() -> Running {
    start_on("127.0.0.1:0").await
}

async fn start_on(address: &str) -> Running {
    let any = || Some(address.parse().unwrap());
    let listeners = Config {
        metrics: any(),
        health: any(),
        pprof: any(),
    }
    .bind()
    .await
    .unwrap();
    let addresses = listeners.addresses().unwrap();
    let registry = Registry::new();
    metashard_runtime::metrics::counter(&registry, "things_total", "Things.")
        .unwrap()
        .inc_by(3);
    let (live, live_check) = check::new("dispatcher", "not started");
    let (ready, ready_check) = check::new("caches", "first list not complete");
    let (draining, stop) = (Shutdown::new(), Shutdown::new());
    let parts = Parts {
        registry,
        live: vec![live_check],
        ready: vec![ready_check],
        draining: draining.token(),
        answers: Some(
            Answers::new(|word| word == "incarnation")
                .at("/api/v1/syncs", |query| {
                    Some(serde_json::json!({ "asked": query }).to_string())
                })
                .at("/api/v1/nothing", |_| None),
        ),
    };
    let served = task::spawn("status", listeners.serve(parts, stop.token()));
    Running {
        metrics: addresses[0].1,
        health: addresses[1].1,
        pprof: addresses[2].1,
        live,
        ready,
        draining,
        stop,
        served,
    }
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    exchange(address, path, "").await
}

/// `header`: a further header line with its end.
async fn exchange(address: SocketAddr, path: &str, header: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        body.to_owned(),
    )
}

#[tokio::test]
async fn probes_fail_with_reasons_until_checks_hold() {
    let running = start().await;
    let failed = "[+]readyz ok\n[+]shutdown ok\n[-]caches failed: first list not complete\nreadyz check failed\n";
    assert_eq!(
        get(running.health, "/readyz").await,
        (500, failed.to_owned())
    );
    assert_eq!(get(running.health, "/healthz").await.0, 500);

    running.live.ok();
    running.ready.ok();

    for path in [
        "/readyz",
        "/healthz",
        "/livez",
        "/readyz/caches",
        "/healthz/dispatcher",
        "/healthz/healthz",
        "/readyz/readyz",
    ] {
        assert_eq!(
            get(running.health, path).await,
            (200, "ok".to_owned()),
            "{path}"
        );
    }
    let verbose = "[+]livez ok\n[+]dispatcher ok\nlivez check passed\n";
    assert_eq!(
        get(running.health, "/livez?verbose").await,
        (200, verbose.to_owned())
    );
}

#[tokio::test]
async fn one_check_can_be_asked_for_and_left_out() {
    let running = start().await;

    let one = get(running.health, "/readyz/caches").await;
    let without = get(running.health, "/readyz?exclude=caches").await;
    let shown = get(
        running.health,
        "/readyz?verbose=1&exclude=caches&exclude=nosuch",
    )
    .await;
    let unknown = get(running.health, "/readyz/nosuch").await;

    assert_eq!(one, (500, "first list not complete\n".to_owned()));
    assert_eq!(without, (200, "ok".to_owned()));
    let lines = "[+]readyz ok\n[+]shutdown ok\n[+]caches excluded: ok\nwarn: no check \"nosuch\" to exclude\nreadyz check passed\n";
    assert_eq!(shown, (200, lines.to_owned()));
    assert_eq!(unknown.0, 404);
}

#[tokio::test]
async fn a_draining_process_is_alive_and_not_ready() {
    let running = start().await;
    running.live.ok();
    running.ready.ok();

    running.draining.request();

    assert_eq!(get(running.health, "/healthz").await.0, 200);
    assert_eq!(
        get(running.health, "/readyz/shutdown").await,
        (500, "shutting down\n".to_owned())
    );
}

#[tokio::test]
async fn metrics_show_the_registry_and_nothing_else_is_there() {
    let running = start().await;

    let (status, text) = get(running.metrics, "/metrics").await;

    assert_eq!(status, 200);
    assert!(text.contains("things_total 3"), "{text}");
    assert_eq!(get(running.metrics, "/readyz").await.0, 404);
    assert_eq!(get(running.health, "/metrics").await.0, 404);
}

#[tokio::test]
async fn serving_ends_when_it_is_stopped_even_with_an_idle_connection() {
    let running = start().await;
    let _idle = TcpStream::connect(running.health).await.unwrap();
    let _profiling = TcpStream::connect(running.pprof).await.unwrap();

    running.stop.request();

    running.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn without_addresses_nothing_is_listened_on() {
    let listeners = Config {
        metrics: None,
        health: None,
        pprof: None,
    }
    .bind()
    .await
    .unwrap();
    let stop = Shutdown::new();
    assert!(listeners.addresses().unwrap().is_empty());
    let draining = stop.token();
    let parts = Parts {
        registry: Registry::new(),
        live: vec![],
        ready: vec![],
        draining,
        answers: None,
    };
    let served = task::spawn("status", listeners.serve(parts, stop.token()));

    stop.request();

    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn syncs_are_told_to_callers_on_this_host_that_say_the_header() {
    let running = start().await;
    let path = "/api/v1/syncs?kind=Foo";

    let (refused, text) = get(running.health, path).await;
    let told = exchange(running.health, path, "x-metashard-status: 1\r\n").await;

    assert_eq!(refused, 403);
    assert!(text.contains("x-metashard-status"), "{text}");
    assert_eq!(told, (200, r#"{"asked":[["kind","Foo"]]}"#.to_owned()));
    assert_eq!(get(running.metrics, path).await.0, 404);
}

#[tokio::test]
async fn syncs_are_told_to_callers_from_elsewhere_that_know_the_replicas_incarnation() {
    // Nothing is sent: it only finds the address that others would see.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("192.0.2.1:9").is_err() {
        return;
    }
    let own = socket.local_addr().unwrap().ip();
    let running = start_on(&SocketAddr::new(own, 0).to_string()).await;
    let path = "/api/v1/syncs";

    let (refused, text) = exchange(running.health, path, "x-metashard-status: 1\r\n").await;
    let told = exchange(running.health, path, "x-metashard-status: incarnation\r\n").await;

    assert_eq!(refused, 403);
    assert!(text.contains("incarnation"), "{text}");
    assert_eq!(told, (200, r#"{"asked":[]}"#.to_owned()));
}

#[tokio::test]
async fn what_a_replica_does_not_have_is_not_found() {
    let running = start().await;

    let told = exchange(
        running.health,
        "/api/v1/nothing",
        "x-metashard-status: 1\r\n",
    )
    .await;

    assert_eq!(told, (404, "this replica has none\n".to_owned()));
}
