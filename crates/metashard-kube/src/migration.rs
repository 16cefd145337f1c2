//! What the record of a move from Metacontroller says to replicas: `metashardctl migrate` keeps it, as a ConfigMap of the
//! system namespace.

use metashard_api::{
    endpoint::SourceKind,
    names::{MIGRATION_HOLD, MIGRATION_RECORD},
};
use serde_json::Value;

use crate::{client::Clients, error::Error, identity::Identity};

/// What the record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// A Metacontroller may act: nothing is to be written.
    Hold,
    /// Nothing against it; so too where there is no record.
    Act,
}

/// Reads the record in the namespace `system`.
///
/// # Errors
///
/// When the API server cannot be reached or refuses: then it is not known what it says.
pub async fn read(clients: &Clients, system: &str) -> Result<Says, Error> {
    let (identity, resource) = (Identity::process(), SourceKind::ConfigMap.resource());
    let record = clients.read(&identity, &resource, Some(system), MIGRATION_RECORD);
    Ok(record
        .await?
        .map_or(Says::Act, |record| says(record.bytes())))
}

/// Only what plainly says that nothing holds lets act.
fn says(record: &[u8]) -> Says {
    let record: Value = serde_json::from_slice(record).unwrap_or_default();
    if record["data"][MIGRATION_HOLD] == "false" {
        Says::Act
    } else {
        Says::Hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_does_not_plainly_let_act_holds() {
        assert_eq!(says(br#"{"data": {"hold": "false"}}"#), Says::Act);
        for held in [
            r#"{"data": {"hold": "true"}}"#,
            r#"{"data": {"hold": "no"}}"#,
            "{}",
            "nonsense",
        ] {
            assert_eq!(says(held.as_bytes()), Says::Hold, "{held}");
        }
    }
}
