//! One pool of HTTP/1.1 connections with the process's credentials.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connect, HttpConnector},
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::{Config, client::ConfigExt};
use tower::{BoxError, Layer, ServiceExt, util::BoxCloneSyncService};

use super::{
    call::{Answer, Call},
    config,
};
use crate::{
    error::{Cause, Error, Refusal},
    metrics::Metrics,
};

/// First word of every User-Agent. The API server takes it as the field manager of writes that name none.
pub(crate) const USER_AGENT: &str = concat!("metashard/", env!("CARGO_PKG_VERSION"));

/// A connection attempt that takes longer is given up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Sent data that stays unacknowledged for so long ends the connection.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(20);
/// An idle connection is probed after this time, so that NAT tables remember it and a dead peer is noticed.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// An idle connection is closed after this time, well before load balancers usually forget it.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// No answer is larger: a page of 500 objects of the largest size that etcd takes would be.
const MAX_ANSWER: usize = 1 << 30;
/// A refusal's body is read up to here.
const MAX_REFUSAL: usize = 64 << 10;

type Service = BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, BoxError>;

/// Sends calls over connections of its own.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    service: Service,
    base: String,
    host: String,
    metrics: Metrics,
}

/// The pools of one API server. They share credentials, so that a credential plug-in runs once for all of them.
pub(super) struct Pools {
    pub(super) host: String,
    pub(super) general: Pool,
    pub(super) watches: Pool,
    pub(super) writes: Pool,
    pub(super) leases: Pool,
}

impl Pools {
    pub(super) fn new(config: &Config, metrics: &Metrics) -> Result<Self, config::Error> {
        install_crypto();
        let address = address(&config.cluster_url)?;
        let prepare = |source| config::Error::Prepare {
            host: address.1.clone(),
            source: Box::new(source),
        };
        let connector = config
            .rustls_https_connector_with_connector(http_connector())
            .map_err(prepare)?;
        let auth = config.auth_layer().map_err(prepare)?;
        let extra = config.extra_headers_layer().map_err(prepare)?;
        Ok(Self::of(
            &connector,
            address,
            metrics,
            |client| match &auth {
                Some(auth) => boxed(extra.layer(auth.layer(client.map_err(BoxError::from)))),
                None => boxed(extra.layer(client)),
            },
        ))
    }

    /// Without credentials, over connections of `connector`.
    pub(super) fn over<C>(
        connector: &C,
        url: &Uri,
        metrics: &Metrics,
    ) -> Result<Self, config::Error>
    where
        C: Connect + Clone + Send + Sync + 'static,
    {
        Ok(Self::of(connector, address(url)?, metrics, boxed))
    }

    fn of<C>(
        connector: &C,
        (base, host): (String, String),
        metrics: &Metrics,
        layered: impl Fn(Client<C, Full<Bytes>>) -> Service,
    ) -> Self
    where
        C: Connect + Clone + Send + Sync + 'static,
    {
        let pool = || {
            let client = Client::builder(TokioExecutor::new())
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_timer(TokioTimer::new())
                .build(connector.clone());
            Pool(Arc::new(Inner {
                service: layered(client),
                base: base.clone(),
                host: host.clone(),
                metrics: metrics.clone(),
            }))
        };
        Self {
            general: pool(),
            watches: pool(),
            writes: pool(),
            leases: pool(),
            host: host.clone(),
        }
    }
}

impl Pool {
    /// Sends `call` and reads the whole answer.
    pub(crate) async fn call(&self, call: Call<'_>) -> Result<Answer, Error> {
        let (method, path, timeout) = (call.method.clone(), call.path().to_owned(), call.timeout);
        match tokio::time::timeout(timeout, self.exchange(call)).await {
            Ok(Ok((etag, body))) => Ok(Answer {
                method,
                path,
                etag,
                body,
            }),
            Ok(Err(cause)) => Err(Error {
                method,
                path,
                cause,
            }),
            Err(_) => Err(Error {
                method,
                path,
                cause: Cause::TimedOut(timeout),
            }),
        }
    }

    /// Sends `call` and returns the body of its answer as it comes. Its time-out ends with the answer's head.
    pub(crate) async fn stream(&self, call: Call<'_>) -> Result<Incoming, Error> {
        let (method, path, timeout) = (call.method.clone(), call.path().to_owned(), call.timeout);
        match tokio::time::timeout(timeout, self.head(call)).await {
            Ok(Ok(response)) => Ok(response.into_body()),
            Ok(Err(cause)) => Err(Error {
                method,
                path,
                cause,
            }),
            Err(_) => Err(Error {
                method,
                path,
                cause: Cause::TimedOut(timeout),
            }),
        }
    }

    async fn exchange(&self, call: Call<'_>) -> Result<(Option<String>, Bytes), Cause> {
        let response = self.head(call).await?;
        let etag = response
            .headers()
            .get(header::ETAG)
            .and_then(|etag| etag.to_str().ok())
            .map(str::to_owned);
        Ok((etag, read(response.into_body(), MAX_ANSWER).await?))
    }

    /// Sends `call`; an answer without a status of success is a refusal.
    async fn head(&self, call: Call<'_>) -> Result<Response<Incoming>, Cause> {
        let method = call.method.clone();
        let request = self.request(call)?;
        let sent = self.0.service.clone().oneshot(request).await;
        let code = sent.as_ref().ok().map(Response::status);
        self.0.metrics.request(code, &self.0.host, &method);
        let response = sent.map_err(Cause::Unreachable)?;
        let code = response.status();
        if code.is_success() {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers());
        let body = read(response.into_body(), MAX_REFUSAL)
            .await
            .unwrap_or_default();
        Err(Cause::Refused(Box::new(Refusal::read(
            code,
            retry_after,
            &body,
        ))))
    }

    fn request(&self, call: Call<'_>) -> Result<Request<Full<Bytes>>, Cause> {
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("{}{}", self.0.base, call.target))
            .header(header::ACCEPT, call.accept)
            .header(
                header::USER_AGENT,
                call.user_agent
                    .unwrap_or(HeaderValue::from_static(USER_AGENT)),
            );
        if !call.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, call.content_type);
        }
        if let Some(etag) = call.unless_etag {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        if let Some((name, value)) = call.header {
            request = request.header(name, value);
        }
        let mut request = request
            .body(Full::new(call.body))
            .map_err(|error| Cause::Answer(error.to_string()))?;
        call.identity.sign(request.headers_mut());
        Ok(request)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("host", &self.0.host)
            .finish_non_exhaustive()
    }
}

fn boxed<S>(service: S) -> Service
where
    S: tower::Service<Request<Full<Bytes>>, Response = Response<Incoming>>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    BoxCloneSyncService::new(service.map_err(Into::into))
}

fn http_connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    // TLS is put on top of it.
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIMEOUT));
    connector
}

/// `main` installs it first; tests and tools may not have.
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // It fails only if another thread was faster, with the same one.
        _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

/// The part of every URL before the path, and the host with its port.
fn address(url: &Uri) -> Result<(String, String), config::Error> {
    match (url.scheme_str(), url.authority()) {
        (Some(scheme), Some(authority)) => {
            let path = url.path().trim_end_matches('/');
            Ok((
                format!("{scheme}://{authority}{path}"),
                authority.to_string(),
            ))
        }
        _ => Err(config::Error::Address(url.to_string())),
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

/// Reads a body into an allocation of its own size.
async fn read(mut body: Incoming, most: usize) -> Result<Bytes, Cause> {
    let expected = usize::try_from(body.size_hint().lower())
        .unwrap_or(0)
        .min(most);
    let mut whole = Vec::with_capacity(expected);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Cause::Unreachable(error.into()))?;
        if let Some(chunk) = frame.data_ref() {
            if whole.len() + chunk.len() > most {
                return Err(Cause::Answer(format!("it is longer than {most} bytes")));
            }
            whole.extend_from_slice(chunk);
        }
    }
    whole.shrink_to_fit();
    Ok(Bytes::from(whole))
}
