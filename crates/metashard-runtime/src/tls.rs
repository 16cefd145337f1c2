//! Mutual TLS between replicas: one certificate authority, a certificate for each membership of a replica,
//! and configurations that let nobody else in.

mod authority;
mod config;
mod identity;
mod pem;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

pub use self::{
    authority::{Authority, Certificate, LEAF_LIFETIME, ROOT_LIFETIME, Validity},
    config::{Roots, client_config, peer_subject, server_config},
    identity::Subject,
};

/// Trust domain of an installation that was given no other.
pub const DEFAULT_TRUST_DOMAIN: &str = "metashard.local";

/// Why certificates could not be made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Text that has to hold PEM blocks holds none of the kind that is needed.
    #[error("read {what}: no PEM block `{block}` in it")]
    PemMissing {
        /// What was read, such as "CA certificate".
        what: &'static str,
        /// Label of the missing block.
        block: &'static str,
    },
    /// PEM text is damaged.
    #[error("read {what} from PEM")]
    ReadPem {
        /// What was read.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// PEM text is longer, or holds more certificates, than any honest one.
    #[error("read {what}: over 64 KiB or 50 certificates")]
    PemTooLarge {
        /// What was read.
        what: &'static str,
    },
    /// A PEM block holds no certificate that can be understood.
    #[error("parse {what}")]
    ParseCertificate {
        /// What was read.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: x509_parser::error::X509Error,
    },
    /// A private key cannot be used.
    #[error("read {what}")]
    ReadKey {
        /// What was read.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: rcgen::Error,
    },
    /// Certificate and private key do not belong together.
    #[error("use {what}: certificate and private key do not belong together")]
    KeyMismatch {
        /// What was read.
        what: &'static str,
    },
    /// A certificate names no peer of ours.
    #[error("identify {what}: {why}")]
    Identify {
        /// Whose certificate.
        what: &'static str,
        /// What its SPIFFE URI lacks.
        why: &'static str,
    },
    /// A name cannot be part of a SPIFFE URI.
    #[error(
        "use {text:?} as {what}: only letters, digits, `-`, `.` and `_` are allowed, and not nothing"
    )]
    BadName {
        /// What the name is for.
        what: &'static str,
        /// The name.
        text: String,
    },
    /// A key or a certificate could not be made.
    #[error("make {what}")]
    Make {
        /// What was to be made.
        what: &'static str,
        /// Why it was not.
        #[source]
        source: rcgen::Error,
    },
    /// Certificates, keys and protocol versions do not add up to a TLS configuration.
    #[error("configure TLS")]
    Configure {
        /// Why not.
        #[source]
        source: rustls::Error,
    },
    /// The roots cannot check client certificates.
    #[error("configure the check of client certificates")]
    ConfigureVerifier {
        /// Why not.
        #[source]
        source: rustls::server::VerifierBuilderError,
    },
}

/// Makes aws-lc-rs the process's provider of cryptography. Call it first in `main`; calling it again does nothing.
pub fn install_provider() {
    // An error means that one is installed already, which is what was asked for.
    drop(aws_lc_rs::default_provider().install_default());
}

/// The one provider of cryptography, for configurations that do not depend on `main` having installed it.
pub fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()))
}

#[cfg(test)]
mod tests;
