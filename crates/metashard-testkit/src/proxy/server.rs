//! The proxy's two sides: it ends TLS with a certificate of the cluster, and opens it anew to the API server.

use std::{convert::Infallible, net::TcpListener, path::Path, sync::Arc};

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, Uri, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::json;
use tokio::{net::TcpStream, sync::oneshot, task::JoinSet, time::Instant};
use tokio_rustls::TlsAcceptor;

use super::{Exchange, Fault, Request, Shared};
use crate::Cluster;

/// Names the event of a request in the API server's audit log.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

type Body = BoxBody<Bytes, hyper::Error>;
type Upstream = Client<HttpsConnector<HttpConnector>, Body>;

/// Why a connection is cut: the test wants it, or the API server is not there.
#[derive(Debug)]
struct Cut;

pub(super) struct Server {
    acceptor: TlsAcceptor,
    /// URL of the API server.
    url: String,
    tls: ClientConfig,
    shared: Arc<Shared>,
}

/// The way of one connection's requests.
struct Route {
    upstream: Upstream,
    url: String,
    shared: Arc<Shared>,
}

impl Server {
    /// `user`: who asks the API server; `None`: whoever the request says.
    pub(super) fn new(
        cluster: &Cluster,
        user: Option<&str>,
        shared: Arc<Shared>,
    ) -> anyhow::Result<Self> {
        let files = cluster.server_files();
        let chain = certificates(&files.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&files.key).context("read a private key")?;
        let mut server = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .context("use the cluster's certificate")?;
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&cluster.authority())? {
            roots
                .add(certificate)
                .context("trust the cluster's authority")?;
        }
        let tls = ClientConfig::builder().with_root_certificates(roots);
        let tls = match user {
            None => tls.with_no_client_auth(),
            Some(user) => {
                let files = cluster.user_files(user)?;
                let key = PrivateKeyDer::from_pem_file(&files.key).context("read a private key")?;
                tls.with_client_auth_cert(certificates(&files.certificate)?, key)
                    .context("use a user's certificate")?
            }
        };
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            url: cluster.url().to_owned(),
            tls,
            shared,
        })
    }

    /// Serves until `stopped` says so or its sender is gone; open connections are dropped then.
    pub(super) async fn serve(self, listener: TcpListener, mut stopped: oneshot::Receiver<()>) {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
            return;
        };
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(_) => continue,
                },
                _ = &mut stopped => return,
            };
            let route = Arc::new(self.route());
            connections.spawn(connection(stream, self.acceptor.clone(), route));
            while connections.try_join_next().is_some() {}
        }
    }

    /// Each connection has upstream connections of its own: cutting one does not reach into others.
    fn route(&self) -> Route {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(self.tls.clone())
            .https_only()
            .enable_http1()
            .build();
        Route {
            upstream: Client::builder(TokioExecutor::new()).build(connector),
            url: self.url.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, route: Arc<Route>) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request| {
        let route = Arc::clone(&route);
        async move { route.answer(request).await }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    // Err: the caller went away, or the connection is cut.
    drop(
        builder
            .serve_connection(TokioIo::new(stream), service)
            .await,
    );
}

impl Route {
    async fn answer(&self, request: http::Request<Incoming>) -> Result<Response<Body>, Cut> {
        let seen = Request {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            headers: request.headers().clone(),
            received: Instant::now().into_std(),
        };
        let is_write = seen.is_write();
        let fault = self.shared.judge(seen);
        if fault == Fault::Cut {
            return Err(Cut);
        }
        if is_write {
            return self.write(request, fault).await;
        }
        match fault {
            Fault::Answer(code) => return Ok(refusal(code)),
            Fault::Delay(delay) => tokio::time::sleep(delay).await,
            Fault::Cut | Fault::Pass | Fault::LoseAnswer => {}
        }
        let request = directed(request, &self.url)?.map(BodyExt::boxed);
        let response = self.upstream.request(request).await.map_err(|_| Cut)?;
        match fault {
            Fault::LoseAnswer => Err(Cut),
            _ => Ok(response.map(BodyExt::boxed)),
        }
    }

    /// A request whose body and answer are taken whole, and recorded.
    async fn write(
        &self,
        request: http::Request<Incoming>,
        fault: Fault,
    ) -> Result<Response<Body>, Cut> {
        let (mut head, body) = directed(request, &self.url)?.into_parts();
        let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
        let audit_id = match fault {
            Fault::Answer(_) => String::new(),
            _ => uuid::Uuid::new_v4().to_string(),
        };
        if let Ok(id) = HeaderValue::from_str(&audit_id) {
            head.headers.insert(AUDIT_ID, id);
        }
        let number = self.shared.sends(Exchange {
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            headers: head.headers.clone(),
            body: body.clone(),
            audit_id,
            status: 0,
            answer: Bytes::new(),
        });
        match fault {
            Fault::Answer(code) => {
                self.shared.answered(number, code, Bytes::new());
                return Ok(refusal(code));
            }
            Fault::Delay(delay) => tokio::time::sleep(delay).await,
            Fault::Cut | Fault::Pass | Fault::LoseAnswer => {}
        }
        let request = http::Request::from_parts(head, whole(body));
        let response = self.upstream.request(request).await.map_err(|_| Cut)?;
        let (head, answer) = response.into_parts();
        let answer = answer.collect().await.map_err(|_| Cut)?.to_bytes();
        self.shared
            .answered(number, head.status.as_u16(), answer.clone());
        if fault == Fault::LoseAnswer {
            return Err(Cut);
        }
        Ok(Response::from_parts(head, whole(answer)))
    }
}

fn whole(body: Bytes) -> Body {
    Full::from(body)
        .map_err(|never: Infallible| match never {})
        .boxed()
}

/// The same request for the API server.
fn directed(request: http::Request<Incoming>, url: &str) -> Result<http::Request<Incoming>, Cut> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |it| it.as_str());
    head.uri = format!("{url}{path}").parse::<Uri>().map_err(|_| Cut)?;
    head.version = http::Version::HTTP_11;
    head.headers.remove(header::HOST);
    Ok(http::Request::from_parts(head, body))
}

/// What the API server answers when it is overloaded or broken.
fn refusal(code: u16) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "message": "refused by the test's proxy", "code": code,
    });
    let mut response = Response::new(whole(status.to_string().into()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    let fields = response.headers_mut();
    fields.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if code == 429 {
        fields.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .with_context(|| format!("read {}", path.display()))
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut")
    }
}

impl std::error::Error for Cut {}
