//! Flags of this service.

use clap::Args;

use crate::{
    address::{Address, ParseError},
    service::Config,
};

/// Flags of this service.
#[derive(Debug, Clone, Args)]
#[group(skip)]
#[expect(
    clippy::struct_field_names,
    reason = "the fields have the names of the flags"
)]
pub struct Options {
    /// Address of /metrics; 0: none.
    #[arg(long, value_name = "ADDRESS", default_value = ":9999")]
    pub metrics_address: String,
    /// Address of /healthz, /livez and /readyz; 0: none.
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: String,
    /// Address of /debug/pprof/heap and /debug/pprof/profile, for `go tool pprof`; 0: none.
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub pprof_address: String,
}

impl Options {
    /// Checks the flags.
    ///
    /// # Errors
    ///
    /// Where one of them is no address; the flag's name comes with it.
    pub fn check(&self) -> Result<Config, (&'static str, ParseError)> {
        let Self {
            metrics_address,
            health_probe_bind_address,
            pprof_address,
        } = self;
        Ok(Config {
            metrics: Address::parse_optional(metrics_address)
                .map_err(|error| ("metrics-address", error))?,
            health: Address::parse_optional(health_probe_bind_address)
                .map_err(|error| ("health-probe-bind-address", error))?,
            pprof: Address::parse_optional(pprof_address)
                .map_err(|error| ("pprof-address", error))?,
        })
    }
}
