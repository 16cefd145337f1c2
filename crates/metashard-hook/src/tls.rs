//! Certificates that hooks at https URLs are checked against, where a controller names none of its own.

use std::sync::Arc;

use metashard_runtime::tls::provider;
use rustls::{ClientConfig, RootCertStore};
use tracing::warn;

use crate::Error;

/// Trusts the certificates of the system, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name, as Go does.
///
/// TLS 1.2 or 1.3; HTTP/2 where the hook can.
pub(crate) fn system_config() -> Result<ClientConfig, Error> {
    let loaded = rustls_native_certs::load_native_certs();
    for error in &loaded.errors {
        warn!(
            error = error as &dyn std::error::Error,
            "read system certificates"
        );
    }
    let mut roots = RootCertStore::empty();
    let (n_added, n_ignored) = roots.add_parsable_certificates(loaded.certs);
    if n_added == 0 {
        warn!(
            ignored = n_ignored,
            "no system certificates: every https hook will be refused"
        );
    }
    trusting(roots)
}

/// Trusts `roots` and nothing else.
pub(crate) fn trusting(roots: RootCertStore) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|source| Error::Tls { source })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// [`system_config`], made when the first https hook needs it: it costs memory that plain hooks never use.
#[derive(Debug, Default)]
pub(crate) struct SystemRoots(parking_lot::Mutex<Option<Arc<ClientConfig>>>);

impl SystemRoots {
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut config = self.0.lock();
        match &*config {
            Some(config) => Ok(Arc::clone(config)),
            None => Ok(Arc::clone(config.insert(Arc::new(system_config()?)))),
        }
    }
}
