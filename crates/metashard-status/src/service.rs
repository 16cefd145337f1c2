//! The listeners and what runs on them.

use std::{io, net::SocketAddr, sync::Arc};

use axum::{Router, serve::ListenerExt};
use metashard_runtime::{shutdown::Token, task::Tasks};
use prometheus::Registry;
use tokio::net::TcpListener;

use crate::{
    address::{Address, BindError},
    answers::{self, Answers},
    check::Check,
    health, metrics, pprof,
};

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// For `/metrics`; `None`: not at all.
    pub metrics: Option<Address>,
    /// For `/healthz`, `/livez` and `/readyz`; `None`: not at all.
    pub health: Option<Address>,
    /// For `/debug/pprof`; `None`: not at all.
    pub pprof: Option<Address>,
}

/// Open listeners. Nothing is answered on them yet.
#[derive(Debug)]
pub struct Listeners {
    metrics: Option<TcpListener>,
    health: Option<TcpListener>,
    pprof: Option<TcpListener>,
}

/// What the endpoints say.
#[derive(Debug)]
pub struct Parts {
    /// What `/metrics` shows.
    pub registry: Registry,
    /// What `/healthz` and `/livez` ask: whether the process should go on living.
    pub live: Vec<Check>,
    /// What `/readyz` asks: whether the process does its work.
    pub ready: Vec<Check>,
    /// From when this is requested on, `/readyz` fails.
    pub draining: Token,
    /// What the replica remembers, served beside the health to those who may know it; `None`: nothing.
    pub answers: Option<Answers>,
}

impl Config {
    /// Opens the listeners.
    ///
    /// # Errors
    ///
    /// Where one cannot be opened.
    pub async fn bind(&self) -> Result<Listeners, BindError> {
        let Self {
            metrics,
            health,
            pprof,
        } = self;
        Ok(Listeners {
            metrics: bind(metrics.as_ref()).await?,
            health: bind(health.as_ref()).await?,
            pprof: bind(pprof.as_ref()).await?,
        })
    }
}

impl Listeners {
    /// Each listener by what it is for, with its address: for the log.
    ///
    /// # Errors
    ///
    /// Where the system does not tell.
    pub fn addresses(&self) -> io::Result<Vec<(&'static str, SocketAddr)>> {
        let Self {
            metrics,
            health,
            pprof,
        } = self;
        [("metrics", metrics), ("health", health), ("pprof", pprof)]
            .into_iter()
            .filter_map(|(what, listener)| Some((what, listener.as_ref()?)))
            .map(|(what, listener)| Ok((what, listener.local_addr()?)))
            .collect()
    }

    /// Answers until `stop` is requested, which comes last of all: while the others drain, probes and scrapes go on.
    ///
    /// # Errors
    ///
    /// Where a listener breaks.
    pub async fn serve(self, parts: Parts, stop: Token) -> io::Result<()> {
        let Self {
            metrics,
            health,
            pprof,
        } = self;
        let Parts {
            registry,
            live,
            ready,
            draining,
            answers,
        } = parts;
        let mut running = Tasks::new();
        if let Some(listener) = pprof {
            running.spawn("pprof", serve(listener, pprof::router(registry.clone())));
        }
        if let Some(listener) = metrics {
            running.spawn("metrics", serve(listener, metrics::router(registry)));
        }
        if let Some(listener) = health {
            let checks = Arc::new(health::Checks {
                live,
                ready,
                draining,
            });
            let mut router = health::router(checks);
            if let Some(answers) = answers {
                router = router.merge(answers::router(answers));
            }
            running.spawn("health", serve(listener, router));
        }
        tokio::select! {
            () = stop.requested() => Ok(()),
            Some(ended) = running.join_next() => ended.result.map_err(io::Error::other)?,
        }
    }
}

async fn bind(address: Option<&Address>) -> Result<Option<TcpListener>, BindError> {
    match address {
        Some(address) => address.bind().await.map(Some),
        None => Ok(None),
    }
}

async fn serve(listener: TcpListener, router: Router) -> io::Result<()> {
    // Answers are small: waiting to fill a packet only delays them.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "set TCP_NODELAY");
        }
    });
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await
}

#[cfg(test)]
mod tests;
