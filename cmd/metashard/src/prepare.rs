//! What has to be there before a replica can take part: the API server, the namespace, the CRDs, an address.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context, bail};
use metashard_api::{crd, id::Incarnation, shard_map::ShardMapSpec};
use metashard_fleet::{map, record::Written};
use metashard_kube::{
    access::{Rights, lacking},
    client::Clients,
    crd::{Installed, Missing, install, missing},
    placement::Placements,
    shard_map::ShardMaps,
    system::ensure_namespace,
};
use metashard_runtime::{clock::Clock, log::chain};
use tracing::{info, warn};
use uuid::Uuid;

/// Attempts to reach the API server, and the pause between two: the peer's, made for service meshes whose proxy starts
/// later than the process.
const ATTEMPTS: (u32, Duration) = (6, Duration::from_secs(5));

/// API group of controllers.
const PEER_GROUP: &str = "metacontroller.k8s.io";

/// Waits until the API server answers.
pub(crate) async fn reach(clients: &Clients, clock: &Clock) -> anyhow::Result<()> {
    for attempt in 1..=ATTEMPTS.0 {
        match clients.version().await {
            Ok(version) => {
                info!(version, "Communication with K8s API server successful");
                return Ok(());
            }
            Err(error) => warn!(attempt, error = chain(&error), "API server not reached"),
        }
        if attempt < ATTEMPTS.0 {
            clock.sleep(ATTEMPTS.1).await;
        }
    }
    bail!(
        "the API server at {} does not answer: check --kubeconfig and the network",
        clients.host()
    )
}

/// Makes what this version brings along, the two namespaces among it, and says what only an administrator can make.
/// `leader` is the namespace of the leader's Lease.
pub(crate) async fn cluster(clients: &Clients, system: &str, leader: &str) -> anyhow::Result<()> {
    let controllers = [crd::composite_controllers(), crd::decorator_controllers()];
    let absent = missing(clients, &controllers)
        .await
        .context("look for the CRDs of controllers")?;
    if !absent.is_empty() {
        return Err(Missing(absent).into());
    }
    rights(clients, system, leader).await?;
    let is_new = namespace(clients, system).await?;
    if leader != system {
        namespace(clients, leader).await?;
    }
    let shard_maps = crd::shard_maps();
    let installed = install(clients, &shard_maps)
        .await
        .context("install the CRD of ShardMaps")?;
    if installed == Installed::NotAllowed {
        let name = shard_maps.metadata.name.unwrap_or_default();
        return Err(Missing(vec![name]).into());
    }
    if is_new || installed == Installed::Created {
        empty_map(clients, system).await;
    }
    Ok(())
}

/// Where people can ask something of placement, if this process can see it. An installation without does as well.
pub(crate) async fn placements(clients: &Clients, system: &str) -> Option<Placements> {
    match install(clients, &crd::placements()).await {
        Ok(Installed::Already | Installed::Created) => {}
        Ok(Installed::NotAllowed) => {
            info!(
                "the CRD of Placements is not installed: no replica can be cordoned, no shard pinned; install it with `kubectl apply --server-side -f deploy/crds/placements.yaml` and restart"
            );
            return None;
        }
        Err(error) => {
            warn!(
                error = chain(&error),
                "no Placement is looked at: its CRD was not installed"
            );
            return None;
        }
    }
    let rights = |verbs: &[&'static str], resource| Rights {
        verbs: verbs.to_vec(),
        group: "metashard.io",
        resource,
        namespace: Some(system.to_owned()),
    };
    let looking = vec![rights(&["list", "watch"], "placements")];
    if let Some(lacking) = named(&lacking(clients, looking).await) {
        warn!("no Placement is looked at: the user of this process lacks rights: {lacking}");
        return None;
    }
    let answering = vec![rights(&["update"], "placements/status")];
    if let Some(lacking) = named(&lacking(clients, answering).await) {
        warn!("a Placement gets no status: the user of this process lacks rights: {lacking}");
    }
    Some(Placements::new(clients, system))
}

/// Makes a namespace unless it is there; true if it was made.
async fn namespace(clients: &Clients, name: &str) -> anyhow::Result<bool> {
    ensure_namespace(clients, name).await.with_context(|| {
        format!("create namespace {name}; make it with `kubectl create namespace {name}`")
    })
}

/// Says in one line which rights are missing without which a replica can do nothing, and in another those to the records of
/// finalizers. Rights to parents, children and events are not among them: each controller tells of its own.
async fn rights(clients: &Clients, system: &str, leader: &str) -> anyhow::Result<()> {
    let rights = |verbs: &[&'static str], group, resource, namespace: Option<&str>| Rights {
        verbs: verbs.to_vec(),
        group,
        resource,
        namespace: namespace.map(str::to_owned),
    };
    let here = Some(system);
    let all = ["get", "list", "watch", "create", "update", "delete"];
    let maps = ["get", "list", "watch", "create", "update"];
    let watched = ["list", "watch"];
    let mut needed = vec![
        rights(&all, "coordination.k8s.io", "leases", here),
        rights(&["get", "create"], "", "secrets", here),
        rights(&maps, "metashard.io", "shardmaps", here),
        rights(&watched, PEER_GROUP, "compositecontrollers", None),
        rights(&watched, PEER_GROUP, "decoratorcontrollers", None),
    ];
    if leader != system {
        let there = Some(leader);
        needed.push(rights(&all, "coordination.k8s.io", "leases", there));
    }
    let records = vec![rights(&all, "", "configmaps", here)];
    if let Some(lacking) = named(&lacking(clients, records).await) {
        warn!(
            "the user of this process lacks rights: {lacking}; the finalizer of a controller that is deleted while no replica runs stays on its parents"
        );
    }
    match named(&lacking(clients, needed).await) {
        None => Ok(()),
        Some(lacking) => bail!(
            "the user of this process lacks rights: {lacking}; grant them by a Role or ClusterRole, and a binding of it"
        ),
    }
}

/// What is lacking, for people; `None` if nothing is.
fn named(lacking: &[Rights]) -> Option<String> {
    let lacking: Vec<_> = lacking.iter().map(ToString::to_string).collect();
    (!lacking.is_empty()).then(|| lacking.join("; "))
}

/// Makes the empty map that the manifests bring along as well. There can have been none before, so the first leader need
/// not wait as it does where a map was deleted.
async fn empty_map(clients: &Clients, namespace: &str) {
    let write = map::Write {
        base: None,
        spec: ShardMapSpec::default(),
    };
    // Without it the first leader waits longer, no more.
    if ShardMaps::new(clients, namespace).write(&write).await == Written::Unknown {
        warn!("the empty ShardMap was not made");
    }
}

/// The address that others reach this replica at: the one given, or the one it listens on, or, if that is all
/// interfaces, the one that it reaches the API server from.
pub(crate) fn advertised(
    given: Option<&str>,
    bound: SocketAddr,
    api_server: &str,
) -> anyhow::Result<String> {
    let port = bound.port();
    if let Some(given) = given {
        return Ok(match given.parse::<IpAddr>() {
            Ok(host) => SocketAddr::new(host, port).to_string(),
            Err(_) if given.contains(':') => given.to_owned(),
            Err(_) => format!("{given}:{port}"),
        });
    }
    let host = if bound.ip().is_unspecified() {
        route_to(api_server).context("find the own address; give it with --advertise-address")?
    } else {
        bound.ip()
    };
    Ok(SocketAddr::new(host, port).to_string())
}

/// The local address of the route to `host`. Connecting a datagram socket sends nothing.
fn route_to(host: &str) -> std::io::Result<IpAddr> {
    let host = if host.contains(':') {
        host.to_owned()
    } else {
        format!("{host}:443")
    };
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(host)?;
    Ok(socket.local_addr()?.ip())
}

/// A number that no other replica has, for the jitter of its retries.
pub(crate) fn seed() -> u64 {
    Uuid::new_v4().as_u64_pair().0
}

/// A name for this run of the process in the certificate of its server.
pub(crate) fn incarnation() -> Incarnation {
    Incarnation::new(Uuid::new_v4().to_string())
}

#[cfg(test)]
mod tests {
    use std::{fs, time::SystemTime};

    use metashard_fleet::time::Now;
    use metashard_kube::{client, metrics::Metrics};
    use metashard_runtime::{clock::ManualClock, tls};
    use prometheus::Registry;
    use tokio::net::TcpListener;

    use super::*;

    /// Clients of an API server at this port.
    async fn clients(port: u16, clock: Clock) -> Clients {
        tls::install_provider();
        let path = std::env::temp_dir().join(format!("metashard-prepare-{port}"));
        let kubeconfig = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}], users: [{{name: u, user: {{}}}}]}}"
        );
        fs::write(&path, kubeconfig).unwrap();
        let options = client::Options {
            kubeconfig: Some(path.clone()),
            ..client::Options::default()
        };
        let metrics = Metrics::register(&Registry::new()).unwrap();
        let clients = Clients::connect(options, clock, metrics).await.unwrap();
        fs::remove_file(path).unwrap();
        clients
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_is_tried_six_times_five_seconds_apart() {
        let manual = ManualClock::new(Now::default(), SystemTime::UNIX_EPOCH);
        let clock = manual.clock();
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let clients = clients(server.local_addr().unwrap().port(), clock.clone()).await;
        let reached = reach(&clients, &clock);
        tokio::pin!(reached);
        let mut tries = Vec::new();

        let error = loop {
            tokio::select! {
                biased;
                reached = &mut reached => break reached.unwrap_err(),
                Ok(_hung_up) = server.accept() => tries.push(clock.now().mono),
                () = tokio::task::yield_now() => manual.advance(Duration::from_millis(50)),
            }
        };

        assert_eq!(tries.len(), 6);
        let is_apart = |pair: &[_]| matches!(pair, [a, b] if *a + Duration::from_secs(5) <= *b);
        assert!(tries.windows(2).all(is_apart), "{tries:?}");
        assert!(error.to_string().contains("does not answer"), "{error}");
    }

    #[test]
    fn the_advertised_address_is_given_or_listened_on_or_the_way_to_the_api_server() {
        let bound: SocketAddr = "127.0.0.1:9443".parse().unwrap();
        let all: SocketAddr = "[::]:9443".parse().unwrap();
        let advertised =
            |given: Option<&str>, bound| advertised(given, bound, "127.0.0.1:6443").unwrap();

        assert_eq!(advertised(Some("10.0.0.7"), all), "10.0.0.7:9443");
        assert_eq!(advertised(Some("fd00::7"), all), "[fd00::7]:9443");
        assert_eq!(advertised(Some("[fd00::7]:1"), all), "[fd00::7]:1");
        assert_eq!(advertised(Some("pod-0.svc"), all), "pod-0.svc:9443");
        assert_eq!(advertised(Some("pod-0.svc:1"), all), "pod-0.svc:1");
        assert_eq!(advertised(None, bound), "127.0.0.1:9443");
        assert_eq!(advertised(None, all), "127.0.0.1:9443");
    }
}
