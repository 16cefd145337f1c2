//! A hook at an https URL, with certificates that are made on the spot.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{Request, Response, header::AUTHORIZATION};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use metashard_api::endpoint::Demand;
use metashard_runtime::{task, tls::provider};
use parking_lot::Mutex;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::sleep};
use tokio_rustls::TlsAcceptor;

use super::*;

/// An authority that signs certificates.
pub(super) struct Ca {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// PEM of a certificate and its key.
pub(super) struct Pair(pub(super) String, pub(super) String);

impl Ca {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self {
            pem: params.self_signed(&key).unwrap().pem(),
            issuer: Issuer::new(params, key),
        }
    }

    pub(super) fn signs(&self, usage: ExtendedKeyUsagePurpose, last_year: i32) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        params.not_after = date_time_ymd(last_year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair(certificate.pem(), key.serialize_pem())
    }

    pub(super) fn server(&self) -> Pair {
        self.signs(ExtendedKeyUsagePurpose::ServerAuth, 2100)
    }

    pub(super) fn client(&self) -> Pair {
        self.signs(ExtendedKeyUsagePurpose::ClientAuth, 2100)
    }
}

/// A server configuration that shows `pair`, and wants certificates of any of `clients`, unless there are none.
pub(super) fn showing(pair: &Pair, clients: &[&Ca]) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if clients.is_empty() {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for ca in clients {
            let der = CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap();
            roots.add(der).unwrap();
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        builder.with_client_cert_verifier(verifier.build().unwrap())
    };
    let chain = vec![CertificateDer::from_pem_slice(pair.0.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(pair.1.as_bytes()).unwrap();
    builder.with_single_cert(chain, key).unwrap()
}

/// A hook at an https URL whose answer says which `Authorization` came, and whether a certificate did.
pub(super) struct Hook {
    pub(super) port: u16,
    config: Mutex<Arc<ServerConfig>>,
    connections: AtomicUsize,
}

impl Hook {
    pub(super) async fn start(config: ServerConfig) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hook = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            config: Mutex::new(Arc::new(config)),
            connections: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&hook);
        drop(task::spawn("hook", async move {
            while let Ok((tcp, _)) = listener.accept().await {
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                let acceptor = TlsAcceptor::from(Arc::clone(&accepting.config.lock()));
                drop(task::spawn("connection", async move {
                    let Ok(tls) = acceptor.accept(tcp).await else {
                        return;
                    };
                    let has_shown = tls.get_ref().1.peer_certificates().is_some();
                    let service = service_fn(move |request| report(request, has_shown));
                    drop(
                        http1::Builder::new()
                            .serve_connection(TokioIo::new(tls), service)
                            .await,
                    );
                }));
            }
        }));
        hook
    }

    pub(super) fn replace(&self, config: ServerConfig) {
        *self.config.lock() = Arc::new(config);
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn caller(&self, demand: &Value) -> Caller {
        caller(&format!("https://localhost:{}/sync", self.port), demand)
    }
}

/// A caller of the hook at `url` with what `demand` asks for.
pub(super) fn caller(url: &str, demand: &Value) -> Caller {
    let target = Target {
        security: Some(Demand {
            field: "spec.hooks.sync.webhook".to_owned(),
            security: serde_json::from_value(demand.clone()).unwrap(),
        }),
        ..target(url)
    };
    Caller::with(target, Clock::system())
}

async fn report(
    request: Request<Incoming>,
    has_shown: bool,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let value = request.headers().get(AUTHORIZATION).cloned();
    let wait = request.uri().query().is_some();
    drop(request.into_body().collect().await);
    if wait {
        sleep(Duration::from_millis(300)).await;
    }
    let value = value.map(|value| value.to_str().unwrap().to_owned());
    let text = format!("{} {has_shown}", value.unwrap_or_default());
    Ok(Response::new(Full::from(text)))
}

/// The JSON of a Secret.
pub(super) fn secret(data: &[(&str, &str)]) -> Vec<u8> {
    let encoded = data
        .iter()
        .map(|(key, value)| (*key, STANDARD.encode(value)));
    let data: BTreeMap<_, _> = encoded.collect();
    json!({ "data": data }).to_string().into_bytes()
}
