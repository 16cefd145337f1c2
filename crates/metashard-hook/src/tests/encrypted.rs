//! Hooks at https URLs.

use std::{convert::Infallible, sync::atomic::AtomicUsize, sync::atomic::Ordering};

use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use metashard_api::endpoint::Demand;
use metashard_runtime::{task, tls::provider};
use rcgen::{CertifiedKey, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

struct TlsServer {
    port: u16,
    connections: Arc<AtomicUsize>,
    /// PEM of the certificate that it shows, which has signed itself.
    authority: String,
}

/// Serves https for `name` with `protocol` (ALPN), and answers with what was posted and the HTTP version.
async fn start(name: &str, protocol: &'static str) -> TlsServer {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let authority = cert.pem();
    let acceptor = acceptor(cert.der().clone(), &signing_key, protocol);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    drop(task::spawn("server", async move {
        while let Ok((tcp, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let acceptor = acceptor.clone();
            drop(task::spawn("connection", async move {
                let Ok(tls) = acceptor.accept(tcp).await else {
                    return;
                };
                let io = TokioIo::new(tls);
                let service = service_fn(echo);
                drop(if protocol == "h2" {
                    conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(io, service)
                        .await
                } else {
                    conn::http1::Builder::new()
                        .serve_connection(io, service)
                        .await
                });
            }));
        }
    }));
    TlsServer {
        port,
        connections,
        authority,
    }
}

fn acceptor(
    certificate: rustls_pki_types::CertificateDer<'static>,
    key: &KeyPair,
    protocol: &str,
) -> TlsAcceptor {
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_http2 = request.version() == Version::HTTP_2;
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body);
    let text = format!("{path} {body} {}", if is_http2 { "h2" } else { "h1" });
    Ok(Response::new(Full::from(text)))
}

fn trusting(authority: &str) -> Demand {
    let security = json!({ "caBundle": { "inline": authority } });
    Demand {
        field: "spec.hooks.sync.webhook".to_owned(),
        security: serde_json::from_value(security).unwrap(),
    }
}

fn caller(server: &TlsServer, authority: &str) -> Caller {
    let target = Target {
        security: Some(trusting(authority)),
        ..target(&format!("https://localhost:{}/sync", server.port))
    };
    Caller::with(target, Clock::system())
}

#[tokio::test]
async fn https_hook_is_called_over_the_protocol_that_it_offers() {
    for (protocol, expected) in [("h2", "/sync abcdef h2"), ("http/1.1", "/sync abcdef h1")] {
        let server = start("localhost", protocol).await;
        let caller = caller(&server, &server.authority);

        for _ in 0..10 {
            let result = caller.call_with(vec!["abc".into(), "def".into()]).await;
            assert_eq!(result, good(expected));
        }

        assert_eq!(server.connections.load(Ordering::Relaxed), 1, "{protocol}");
    }
}

#[tokio::test]
async fn http2_carries_calls_at_a_time_over_one_connection() {
    let server = start("localhost", "h2").await;
    let caller = Arc::new(caller(&server, &server.authority));
    caller.call().await;
    let mut calls = task::Tasks::new();
    for _ in 0..20 {
        let caller = Arc::clone(&caller);
        calls.spawn("call", async move { caller.call().await });
    }

    while let Some(call) = calls.join_next().await {
        assert_eq!(call.result.unwrap(), good("/sync {} h2"));
    }

    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn certificate_of_an_unknown_authority_is_refused() {
    let server = start("localhost", "h2").await;
    let stranger = start("localhost", "h2").await;
    let caller = caller(&server, &stranger.authority);

    let text = failure(caller.call().await);

    assert!(
        text.starts_with("http error: TLS handshake with localhost: invalid peer certificate: "),
        "{text}"
    );
}

#[tokio::test]
async fn certificate_for_another_name_is_refused() {
    let server = start("elsewhere.example", "h2").await;
    let caller = caller(&server, &server.authority);

    let text = failure(caller.call().await);

    assert!(text.contains("not valid for name"), "{text}");
}

#[tokio::test]
async fn hook_that_speaks_no_tls_gets_no_plain_request() {
    let server = Server::start(|_| Reply::Keep(ok("{}"))).await;
    let url = server.url("/sync").replace("http://", "https://");
    let stranger = start("localhost", "h2").await;
    let caller = Caller::with(
        Target {
            security: Some(trusting(&stranger.authority)),
            ..target(&url)
        },
        Clock::system(),
    );

    let text = failure(caller.call().await);

    assert!(
        text.starts_with("http error: TLS handshake with 127.0.0.1: "),
        "{text}"
    );
    assert_eq!(server.counts().requests, 0);
}

#[tokio::test]
async fn metrics_tell_the_steps_of_connecting() {
    let server = start("localhost", "h2").await;
    let caller = caller(&server, &server.authority);

    caller.call().await;

    let text = prometheus::TextEncoder::new()
        .encode_to_string(&caller.registry.gather())
        .unwrap();
    for event in [
        "dns_start",
        "dns_done",
        "tls_handshake_start",
        "tls_handshake_done",
    ] {
        assert!(text.contains(&format!("event=\"{event}\"")), "{text}");
    }
}
