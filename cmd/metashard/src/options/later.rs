//! Flags of Metacontroller that have no effect here, or none yet. They are checked and warned of.

use clap::Args;

use super::value::{self, Error};

/// Flags of Metacontroller that have no effect here, or none yet.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Accepted: metashard always elects a leader, with any number of replicas.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = value::switch)]
    leader_election: Option<bool>,
    /// Accepted: only `leases` exists.
    #[arg(long, value_name = "KIND")]
    leader_election_resource_lock: Option<String>,
    /// dynamic-apply or server-side-apply; the latter has no effect yet. Default: dynamic-apply.
    #[arg(long, value_name = "STRATEGY")]
    apply_strategy: Option<String>,
    /// Field manager of server-side apply. No effect yet.
    #[arg(long, value_name = "NAME")]
    apply_strategy_ssa_field_manager: Option<String>,
}

impl Options {
    /// One warning for each flag that was given and does nothing.
    pub(super) fn check(self) -> Result<Vec<String>, Error> {
        let Self {
            leader_election,
            leader_election_resource_lock,
            apply_strategy,
            apply_strategy_ssa_field_manager,
        } = self;
        let mut warnings = Vec::new();
        if leader_election == Some(false) {
            warnings.push(
                "--leader-election=false has no effect: replicas always elect a leader".to_owned(),
            );
        }
        match leader_election_resource_lock.as_deref() {
            None | Some("leases" | "") => {}
            Some(_) => {
                return Err(Error::new(
                    "leader-election-resource-lock",
                    "must be leases",
                ));
            }
        }
        match apply_strategy.as_deref() {
            None | Some("dynamic-apply" | "") => {}
            Some("server-side-apply") => warnings.push(
                "--apply-strategy=server-side-apply has no effect yet: dynamic-apply is used"
                    .to_owned(),
            ),
            Some(other) => {
                return Err(Error::new(
                    "apply-strategy",
                    format!("unknown apply strategy: {other}"),
                ));
            }
        }
        if apply_strategy_ssa_field_manager.is_some() {
            warnings.push("--apply-strategy-ssa-field-manager has no effect yet".to_owned());
        }
        Ok(warnings)
    }
}
