//! TLS configurations for hooks at https URLs: whom to trust and what to show.
//!
//! A hook's certificate and name are always checked: there is no way to leave that out.

use std::sync::Arc;

use metashard_api::validate::Finding;
use metashard_runtime::tls::provider;
use rustls::{ClientConfig, RootCertStore};
use tracing::warn;

use crate::{
    Error,
    security::{Authority, Identity},
};

/// Trusts `authority`, or the system's certificates if there is none, and shows `client`.
///
/// # Errors
///
/// When the client's certificate cannot be used.
pub(crate) fn config(
    authority: Option<Authority>,
    client: Option<Identity>,
    system: &SystemRoots,
) -> Result<Arc<ClientConfig>, Finding> {
    let broken = |field: &str, error: &dyn std::fmt::Display| {
        Finding::invalid(
            field,
            format!("set up TLS: {error}"),
            "use other certificates",
        )
    };
    let (field, roots) = match authority {
        Some(authority) => (authority.field, Arc::new(authority.roots)),
        None => (String::new(), system.roots()),
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| broken(&field, &error))?
        .with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(Identity {
            field,
            place,
            chain,
            key,
            ..
        }) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => Finding::invalid(
                    &field,
                    format!("{place} and the private key beside it do not belong together"),
                    "replace both at once",
                ),
                // Of other errors the text is left out: it may quote what was read.
                _ => Finding::invalid(
                    &field,
                    format!("{place} and the private key beside it cannot be used"),
                    "use an RSA key of 2048 bits or more, an ECDSA key, or an Ed25519 key",
                ),
            })?,
    };
    config.alpn_protocols = protocols();
    Ok(Arc::new(config))
}

/// HTTP/2 where the hook can.
fn protocols() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}

/// The certificates of the system, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name, as Go has it. They are read when
/// the first https hook needs them: they cost memory that plain hooks never use.
#[derive(Debug, Default)]
pub(crate) struct SystemRoots(parking_lot::Mutex<Loaded>);

#[derive(Debug, Default)]
struct Loaded {
    roots: Option<Arc<RootCertStore>>,
    config: Option<Arc<ClientConfig>>,
}

impl SystemRoots {
    /// Trusts them and shows no certificate. TLS 1.2 or 1.3.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut loaded = self.0.lock();
        if let Some(config) = &loaded.config {
            return Ok(Arc::clone(config));
        }
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|source| Error::Tls { source })?
            .with_root_certificates(loaded.roots())
            .with_no_client_auth();
        config.alpn_protocols = protocols();
        Ok(Arc::clone(loaded.config.insert(Arc::new(config))))
    }

    fn roots(&self) -> Arc<RootCertStore> {
        self.0.lock().roots()
    }
}

impl Loaded {
    fn roots(&mut self) -> Arc<RootCertStore> {
        Arc::clone(self.roots.get_or_insert_with(|| Arc::new(load())))
    }
}

fn load() -> RootCertStore {
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
    roots
}
