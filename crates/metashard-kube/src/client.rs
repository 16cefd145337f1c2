//! Connections to the API server: one general pool, one for watches, writes and Leases.
//!
//! All of them speak HTTP/1.1: a call there costs less than over HTTP/2, and a busy API server closes watches that share
//! an HTTP/2 connection with a burst of writes.

mod call;
mod config;
mod edits;
mod limit;
mod pool;
mod reads;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Uri;
use hyper_util::client::legacy::connect::Connect;
use metashard_api::resource::Resource;
use metashard_reconcile::object::Object;
use metashard_runtime::clock::Clock;
use serde::Deserialize;

pub(crate) use self::{
    call::{Answer, Call, encode_query},
    limit::Limit,
    pool::{Pool, USER_AGENT},
};
pub use self::{
    config::{Error as ConnectError, Options},
    reads::PodPort,
};
use crate::{
    error::{Cause, Error},
    identity::Identity,
    metrics::Metrics,
};

/// A read of one object that takes longer is given up.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The connections to one API server. Cheap to clone.
#[derive(Clone)]
pub struct Clients(Arc<Inner>);

struct Inner {
    host: String,
    namespace: String,
    general: Pool,
    watches: Pool,
    writes: Pool,
    leases: Pool,
    limit: Limit,
    clock: Clock,
    metrics: Metrics,
}

impl Clients {
    /// Finds the API server and the credentials, and prepares the connections; opens none yet.
    ///
    /// Looked up in this order, as the peer does: [`Options::kubeconfig`], `$KUBECONFIG`, the Pod's service account,
    /// `~/.kube/config`.
    ///
    /// # Errors
    ///
    /// When there is no usable configuration. It does not help to try again without a change of it.
    pub async fn connect(
        options: Options,
        clock: Clock,
        metrics: Metrics,
    ) -> Result<Self, ConnectError> {
        let limit = Limit::new(options.qps, options.burst);
        let config = config::load(options.kubeconfig, options.context).await?;
        let pools = pool::Pools::new(&config, &metrics)?;
        let namespace = config.default_namespace;
        Ok(Self::of(pools, namespace, limit, clock, metrics))
    }

    /// Prepares connections to the API server at `url`, which `connector` opens, without credentials: how a simulated
    /// one is reached.
    ///
    /// # Errors
    ///
    /// When `url` has no scheme or host.
    pub fn over<C>(
        connector: &C,
        url: &Uri,
        clock: Clock,
        metrics: Metrics,
    ) -> Result<Self, ConnectError>
    where
        C: Connect + Clone + Send + Sync + 'static,
    {
        let pools = pool::Pools::over(connector, url, &metrics)?;
        let limit = Limit::new(None, None);
        Ok(Self::of(pools, "default".to_owned(), limit, clock, metrics))
    }

    fn of(
        pools: pool::Pools,
        namespace: String,
        limit: Limit,
        clock: Clock,
        metrics: Metrics,
    ) -> Self {
        Self(Arc::new(Inner {
            host: pools.host,
            namespace,
            general: pools.general,
            watches: pools.watches,
            writes: pools.writes,
            leases: pools.leases,
            limit,
            clock,
            metrics,
        }))
    }

    /// Host and port of the API server, for people.
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// The namespace that the configuration names, or `default`.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Asks the API server for its version, such as `v1.36.3`.
    ///
    /// # Errors
    ///
    /// When it cannot be reached or refuses.
    pub async fn version(&self) -> Result<String, Error> {
        let identity = Identity::process();
        let call = Call::get(&identity, "/version".to_owned()).within(READ_TIMEOUT);
        let answer = self.0.general.call(call).await?;
        let version = serde_json::from_slice::<Version>(&answer.body).map_err(|error| Error {
            method: answer.method,
            path: answer.path,
            cause: Cause::Answer(error.to_string()),
        })?;
        Ok(version.git_version)
    }

    /// Reads one object from the API server, past all caches; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// When the API server cannot be reached or refuses. A missing *resource* (its CRD is gone) reads as `None` too.
    pub async fn read(
        &self,
        identity: &Identity,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<Object>>, Error> {
        let call = Call::get(identity, resource.object_path(namespace, name)).within(READ_TIMEOUT);
        self.0.limit.admit(&self.0.clock).await;
        match self.0.general.call(call).await {
            Ok(answer) => object(&answer).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn general(&self) -> &Pool {
        &self.0.general
    }

    pub(crate) fn watches(&self) -> &Pool {
        &self.0.watches
    }

    pub(crate) fn writes(&self) -> &Pool {
        &self.0.writes
    }

    pub(crate) fn leases(&self) -> &Pool {
        &self.0.leases
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.0.limit
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }
}

/// The answer of `/version`, as far as it matters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients")
            .field("host", &self.0.host)
            .finish_non_exhaustive()
    }
}

/// The object that an answer carries.
pub(crate) fn object(answer: &Answer) -> Result<Arc<Object>, Error> {
    Object::parse(Bytes::clone(&answer.body))
        .map(Arc::new)
        .map_err(|error| Error {
            method: answer.method.clone(),
            path: answer.path.clone(),
            cause: Cause::Answer(error.to_string()),
        })
}
