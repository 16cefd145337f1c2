//! What the defaults of some flags are taken from.

use std::fs;

/// Where a Pod finds the namespace of its ServiceAccount.
const SERVICE_ACCOUNT_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Facts about the machine, environment variables aside, which are read with the flags.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    /// The host's name.
    pub(crate) host_name: Option<String>,
    /// Namespace of the Pod's ServiceAccount.
    pub(crate) service_account_namespace: Option<String>,
    /// Drawn at each start, to tell processes of one host apart.
    pub(crate) suffix: String,
}

impl Environment {
    /// Looks around.
    pub(crate) fn read() -> Self {
        let mut suffix = uuid::Uuid::new_v4().simple().to_string();
        suffix.truncate(5);
        Self {
            host_name: first_line("/proc/sys/kernel/hostname"),
            service_account_namespace: first_line(SERVICE_ACCOUNT_NAMESPACE),
            suffix,
        }
    }
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    if line.is_empty() {
        None
    } else {
        Some(line.to_owned())
    }
}
