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
}

impl Options {
    /// One warning for each flag that was given and does nothing.
    pub(super) fn check(self) -> Result<Vec<String>, Error> {
        let Self {
            leader_election,
            leader_election_resource_lock,
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
        Ok(warnings)
    }
}
