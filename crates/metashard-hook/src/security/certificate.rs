//! Certificates and keys in PEM form, and when they end.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metashard_api::{endpoint::Source, validate::Finding};
use rustls::RootCertStore;
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use super::holder::place;

/// A certificate whose end would be the end of a hook's calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// What it is for.
    pub role: Role,
    /// Field of the controller that asks for it.
    pub field: String,
    /// Where it is: the object and the key.
    pub place: String,
    /// When it ends.
    pub not_after: SystemTime,
}

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The hook's certificate is checked against it. Of several, the one that ends last.
    Authority,
    /// It is shown to the hook. Of its chain, the one that ends first.
    Client,
}

/// Authorities that a hook's certificate is checked against.
pub(crate) struct Authority {
    pub(crate) field: String,
    pub(crate) pem: Vec<u8>,
    pub(crate) roots: RootCertStore,
    /// `None` if no end could be read.
    pub(crate) certificate: Option<Certificate>,
}

/// What we show to a hook.
pub(crate) struct Identity {
    pub(crate) field: String,
    pub(crate) place: String,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) certificate: Option<Certificate>,
    pem: [Vec<u8>; 2],
}

impl Role {
    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Authority => "ca",
            Self::Client => "client",
        }
    }

    /// For people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Authority => "CA certificate",
            Self::Client => "client certificate",
        }
    }
}

impl Authority {
    /// Reads the certificates in `pem`, which is found at `place`. What is no certificate among them is passed over, as in
    /// Metacontroller, if there is at least one.
    pub(super) fn parse(field: &str, place: &str, pem: Vec<u8>) -> Result<Self, Finding> {
        let all: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .filter_map(Result::ok)
            .collect();
        let not_after = all.iter().filter_map(end_of).max();
        let mut roots = RootCertStore::empty();
        let (n_added, _) = roots.add_parsable_certificates(all);
        if n_added == 0 {
            return Err(no_certificate(field, place));
        }
        Ok(Self {
            certificate: not_after.map(|not_after| Certificate {
                role: Role::Authority,
                field: field.to_owned(),
                place: place.to_owned(),
                not_after,
            }),
            field: field.to_owned(),
            pem,
            roots,
        })
    }
}

impl Identity {
    /// Reads a chain and its private key, given with the keys of `source` that hold them.
    pub(super) fn parse(
        field: &str,
        source: &Source,
        (certificate_key, chain_pem): (&str, Vec<u8>),
        (private_key, key_pem): (&str, Vec<u8>),
    ) -> Result<Self, Finding> {
        let at = place(certificate_key, source);
        let chain = CertificateDer::pem_slice_iter(&chain_pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| bad_pem(field, &at, &error))?;
        if chain.is_empty() {
            return Err(no_certificate(field, &at));
        }
        let key = PrivateKeyDer::from_pem_slice(&key_pem)
            .map_err(|error| bad_pem(field, &place(private_key, source), &error))?;
        Ok(Self {
            certificate: chain
                .iter()
                .filter_map(end_of)
                .min()
                .map(|not_after| Certificate {
                    role: Role::Client,
                    field: field.to_owned(),
                    place: at.clone(),
                    not_after,
                }),
            field: field.to_owned(),
            place: at,
            chain,
            key,
            pem: [chain_pem, key_pem],
        })
    }

    /// All that it was read from.
    pub(super) const fn pem(&self) -> &[Vec<u8>; 2] {
        &self.pem
    }
}

fn no_certificate(field: &str, place: &str) -> Finding {
    Finding::invalid(
        field,
        format!("{place} holds no certificate in PEM form"),
        "put PEM blocks `CERTIFICATE` there",
    )
}

/// Names the kind of the fault only: texts of the parser may quote what they read.
fn bad_pem(field: &str, place: &str, error: &pem::Error) -> Finding {
    let (message, fix) = match error {
        pem::Error::NoItemsFound => (
            "holds no private key",
            "put a PEM block `PRIVATE KEY` there",
        ),
        _ => ("is no valid PEM", "write it anew"),
    };
    Finding::invalid(field, format!("{place} {message}"), fix)
}

/// When a certificate ends, if that can be read.
pub(crate) fn end_of(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let seconds = parsed.validity().not_after.timestamp();
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}
