//! How the API server is reached, and what is told to it.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::value::{self, Error};
use crate::config;

/// How the API server is reached, and what is told to it.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Path of a kubeconfig. Default: $KUBECONFIG, else the Pod's ServiceAccount, else ~/.kube/config.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) kubeconfig: String,
    /// Most requests per second to the API server; negative: no limit, 0: 5. Default: no limit.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) client_go_qps: Option<f64>,
    /// Requests that may go out at once before --client-go-qps counts. Default: 10.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) client_go_burst: Option<u32>,
    /// How often the API server is asked which resources it serves.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = value::duration)]
    pub(crate) discovery_interval: Duration,
    /// Events about one object per second, once --events-burst is used up. Default: one in 5 minutes.
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0 / 300.0, hide_default_value = true)]
    pub(crate) events_qps: f64,
    /// Events about one object that may be written at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 25)]
    pub(crate) events_burst: u32,
}

/// What client-go makes of 0.
const DEFAULT_QPS: f64 = 5.0;

impl Options {
    pub(super) fn check(self) -> Result<config::Kube, Error> {
        let Self {
            kubeconfig,
            client_go_qps,
            client_go_burst,
            discovery_interval,
            events_qps,
            events_burst,
        } = self;
        Ok(config::Kube {
            kubeconfig: if kubeconfig.is_empty() {
                None
            } else {
                Some(PathBuf::from(kubeconfig))
            },
            qps: match client_go_qps {
                Some(0.0) => Some(DEFAULT_QPS),
                Some(qps) if qps > 0.0 => Some(number("client-go-qps", qps)?),
                Some(qps) if qps.is_nan() => return Err(not_a_number("client-go-qps")),
                _ => None,
            },
            burst: client_go_burst,
            discovery_interval,
            events_qps: number("events-qps", events_qps)?,
            events_burst,
        })
    }
}

/// A number that is zero or more, and not endless.
fn number(flag: &'static str, number: f64) -> Result<f64, Error> {
    if number.is_finite() && number >= 0.0 {
        Ok(number)
    } else {
        Err(not_a_number(flag))
    }
}

fn not_a_number(flag: &'static str) -> Error {
    Error::new(flag, "must be a number that is not negative")
}
