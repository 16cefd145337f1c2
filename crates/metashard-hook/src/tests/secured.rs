//! Certificates and credentials of hooks: what is sent, what is refused, and how it is replaced.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::SystemTime,
};

use metashard_api::endpoint::Source;
use metashard_runtime::{task, tls::provider};
use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};
use rustls::{ServerConfig, version::TLS12};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{
    secure_hook::{Ca, Hook, Pair, caller, secret, showing},
    *,
};

fn all_of_it() -> Value {
    json!({
        "caBundle": { "secretRef": { "name": "s", "namespace": "ns" } },
        "clientTLS": { "secretRef": { "name": "s", "namespace": "ns" } },
        "authorization": { "secretRef": { "name": "s", "namespace": "ns", "key": "token" } },
    })
}

fn give(caller: &Caller, secret: &[u8]) -> Result<(), String> {
    let find = |_: &Source| Found::Object(secret);
    caller
        .endpoint
        .secure(&find)
        .map_err(|finding| finding.to_string())
}

fn give_all(caller: &Caller, authority: &str, Pair(chain, key): &Pair, token: &str) {
    let all = [
        ("ca.crt", authority),
        ("tls.crt", chain),
        ("tls.key", key),
        ("token", token),
    ];
    give(caller, &secret(&all)).unwrap();
}

#[tokio::test]
async fn a_hook_that_asks_for_all_of_it_gets_all_of_it() {
    let ca = Ca::new();
    let hook = Hook::start(showing(&ca.server(), &[&ca])).await;
    let caller = hook.caller(&all_of_it());
    let client = ca.client();
    assert!(failure(caller.call().await).contains("have not been read yet"));

    give_all(&caller, &ca.pem, &client, "t");

    assert_eq!(caller.call().await, good("Bearer t true"));
    assert!(!format!("{:?}", caller.endpoint).contains("Bearer"));
}

#[tokio::test]
async fn a_client_certificate_that_the_hook_does_not_accept_is_a_failure() {
    let (ca, stranger) = (Ca::new(), Ca::new());
    let hook = Hook::start(showing(&ca.server(), &[&ca])).await;
    let client = stranger.client();
    let with_wrong = hook.caller(&all_of_it());
    give_all(&with_wrong, &ca.pem, &client, "t");
    let without = hook.caller(&json!({ "caBundle": { "inline": ca.pem } }));

    for caller in [with_wrong, without] {
        let text = failure(caller.call().await);

        assert!(
            text.starts_with("http error: ") && text.contains("alert"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_certificate_that_has_ended_is_refused() {
    let ca = Ca::new();
    let over = ca.signs(ExtendedKeyUsagePurpose::ServerAuth, 2001);
    let hook = Hook::start(showing(&over, &[])).await;
    let caller = hook.caller(&json!({ "caBundle": { "inline": ca.pem } }));

    let text = failure(caller.call().await);

    assert!(
        text.contains("invalid peer certificate: certificate expired"),
        "{text}"
    );
}

#[tokio::test]
async fn the_system_is_not_trusted_beside_a_bundle_nor_a_bundle_by_others() {
    let ca = Ca::new();
    let hook = Hook::start(showing(&ca.server(), &[])).await;
    let system = hook.caller(&json!({ "authorization": all_of_it()["authorization"] }));
    give(&system, &secret(&[("token", "t")])).unwrap();

    let text = failure(system.call().await);

    assert!(
        text.contains("invalid peer certificate: UnknownIssuer"),
        "{text}"
    );
}

#[tokio::test]
async fn a_hook_that_speaks_tls_1_2_is_called_and_one_that_speaks_less_is_refused() {
    let ca = Ca::new();
    let Pair(chain, key) = ca.server();
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    let hook = Hook::start(config).await;
    let demand = json!({ "caBundle": { "inline": ca.pem } });
    assert_eq!(hook.caller(&demand).call().await, good(" false"));

    // It answers the ClientHello by a ServerHello of TLS 1.1.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(task::spawn("old", async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            drop(tcp.read(&mut [0; 4096]).await);
            let mut hello = vec![2, 0, 0, 38, 3, 2];
            hello.extend([7; 32]);
            hello.extend([0, 0x2f, 0x35, 0]);
            let length = u8::try_from(hello.len()).unwrap();
            hello.splice(0..0, [22, 3, 2, 0, length]);
            drop(tcp.write_all(&hello).await);
            drop(tcp.read(&mut [0; 64]).await);
        }
    }));
    let old = caller(&format!("https://localhost:{port}/sync"), &demand);

    let text = failure(old.call().await);

    assert!(
        text.starts_with("http error: TLS handshake with localhost: "),
        "{text}"
    );
}

#[tokio::test]
async fn what_is_broken_leaves_the_last_good_in_use() {
    let ca = Ca::new();
    let hook = Hook::start(showing(&ca.server(), &[])).await;
    let demand = json!({
        "caBundle": { "secretRef": { "name": "s", "namespace": "ns" } },
        "authorization": all_of_it()["authorization"],
    });
    let caller = hook.caller(&demand);
    give(&caller, &secret(&[("ca.crt", &ca.pem), ("token", "1")])).unwrap();

    let missing = caller.endpoint.secure(&|_| Found::Missing).unwrap_err();
    assert_eq!(missing.message, "Secret ns/s not found");
    give(&caller, &secret(&[("ca.crt", "no"), ("token", "2")])).unwrap_err();
    assert_eq!(caller.call().await, good("Bearer 1 false"));

    give(&caller, &secret(&[("ca.crt", &ca.pem), ("token", "2")])).unwrap();
    assert_eq!(caller.call().await, good("Bearer 2 false"));
    // A token needs no other connection.
    assert_eq!(hook.connections(), 1);
}

/// Calls again and again, until it is told to stop.
struct Load {
    /// Of each caller, the calls that have ended.
    ended: Vec<AtomicUsize>,
    is_over: AtomicUsize,
}

impl Load {
    async fn run(&self, caller: &Caller, own: usize) {
        while self.is_over.load(Ordering::Relaxed) == 0 {
            match caller.call().await {
                HookResult::Answer(_) => self.ended[own].fetch_add(1, Ordering::Relaxed),
                other => panic!("{other:?}"),
            };
        }
    }

    /// Returns once every call that has begun by now has ended.
    async fn turned_over(&self) {
        for ended in &self.ended {
            let before = ended.load(Ordering::Relaxed);
            while ended.load(Ordering::Relaxed) == before {
                tokio::task::yield_now().await;
            }
        }
    }
}

#[tokio::test]
async fn no_call_fails_while_authorities_certificates_and_tokens_are_replaced() {
    let mut old = Ca::new();
    let hook = Hook::start(showing(&old.server(), &[&old])).await;
    let caller = Arc::new(hook.caller(&all_of_it()));
    let mut client = old.client();
    give_all(&caller, &old.pem, &client, "0");
    let load = Arc::new(Load {
        ended: (0..4).map(|_| AtomicUsize::new(0)).collect(),
        is_over: AtomicUsize::new(0),
    });
    let mut calls = task::Tasks::new();
    for own in 0..load.ended.len() {
        let (caller, load) = (Arc::clone(&caller), Arc::clone(&load));
        calls.spawn("calls", async move { load.run(&caller, own).await });
    }

    for round in 1..=20 {
        let token = round.to_string();
        let new = Ca::new();
        // Both authorities are trusted before the certificates change, on either side.
        give_all(&caller, &format!("{}{}", old.pem, new.pem), &client, &token);
        load.turned_over().await;
        hook.replace(showing(&new.server(), &[&old, &new]));
        client = new.client();
        give_all(&caller, &new.pem, &client, &token);
        load.turned_over().await;
        hook.replace(showing(&new.server(), &[&new]));
        assert_eq!(caller.call().await, good(&format!("Bearer {token} true")));
        old = new;
    }

    load.is_over.store(1, Ordering::Relaxed);
    while let Some(call) = calls.join_next().await {
        call.result.unwrap();
    }
    assert!(hook.connections() > 20);
}

#[tokio::test]
async fn a_call_under_way_ends_as_it_began_when_certificates_are_replaced() {
    let ca = Ca::new();
    let hook = Hook::start(showing(&ca.server(), &[])).await;
    let demand = json!({ "caBundle": { "secretRef": { "name": "s", "namespace": "ns" } } });
    let slow = format!("https://localhost:{}/sync?wait", hook.port);
    let caller = Arc::new(caller(&slow, &demand));
    give(&caller, &secret(&[("ca.crt", &ca.pem)])).unwrap();
    let calling = Arc::clone(&caller);
    let mut calls = task::Tasks::new();
    calls.spawn("call", async move { calling.call().await });
    while hook.connections() == 0 {
        tokio::task::yield_now().await;
    }

    let both = format!("{}{}", Ca::new().pem, ca.pem);
    give(&caller, &secret(&[("ca.crt", &both)])).unwrap();

    let ended = calls.join_next().await.unwrap().result.unwrap();
    assert_eq!(ended, good(" false"));
    assert_eq!(caller.call().await, good(" false"));
    assert_eq!(
        hook.connections(),
        2,
        "the old connection is not used again"
    );
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_server() {
    let stranger = Server::start(|_| Reply::Keep(ok("{}"))).await;
    let elsewhere = stranger.url("/there");
    let server = Server::start(move |request| {
        let to = if request.line.contains("/sync") {
            "/here".to_owned()
        } else {
            elsewhere.clone()
        };
        Reply::Keep(answer(
            "307 Temporary Redirect",
            &format!("location: {to}\r\n"),
            "",
        ))
    })
    .await;
    let demand = json!({ "authorization": all_of_it()["authorization"] });
    let caller = caller(&server.url("/sync"), &demand);
    give(&caller, &secret(&[("token", "t")])).unwrap();

    assert_eq!(caller.call().await, good("{}"));

    let sent = |server: &Server| -> Vec<bool> {
        let requests = server.requests();
        requests
            .iter()
            .map(|it| it.header("authorization") == Some("Bearer t"))
            .collect()
    };
    assert_eq!(sent(&server), [true, true]);
    assert_eq!(sent(&stranger), [false]);
}

#[tokio::test]
async fn the_days_that_certificates_have_left_are_shown_while_there_is_an_endpoint() {
    let ca = Ca::new();
    let hook = Hook::start(showing(&ca.server(), &[])).await;
    let caller = hook.caller(&all_of_it());
    let client = ca.client();
    give_all(&caller, &ca.pem, &client, "t");
    let text = |registry: &Registry| {
        let encoder = prometheus::TextEncoder::new();
        encoder.encode_to_string(&registry.gather()).unwrap()
    };

    let wall = SystemTime::from(date_time_ymd(2099, 12, 22));
    caller.endpoint.show_days_left(wall);

    let line = "metashard_hook_certificate_days_left{certificate=\"client\",controller_name=\"web\",controller_type=\"CompositeController\",hook=\"sync\"} 10";
    let shown = text(&caller.registry);
    assert!(shown.contains(line), "{shown}");
    let (registry, endpoint) = (caller.registry, caller.endpoint);
    drop(endpoint);
    assert!(!text(&registry).contains("days_left"));
}
