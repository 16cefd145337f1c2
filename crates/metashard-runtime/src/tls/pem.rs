//! Reading PEM text with limits, and with errors that say what was read.

use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};
use x509_parser::{
    certificate::X509Certificate,
    error::X509Error,
    prelude::{FromDer, GeneralName, ParsedExtension},
};

use super::Error;

/// Longest PEM text read. Hostile PEM has cost others minutes of CPU.
const MAX_LENGTH: usize = 64 * 1024;
/// Most certificates in one text.
const MAX_CERTIFICATES: usize = 50;

/// All certificates in `text`, at least one.
pub(super) fn certificates(
    what: &'static str,
    text: &str,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    if text.len() > MAX_LENGTH {
        return Err(Error::PemTooLarge { what });
    }
    let found = CertificateDer::pem_slice_iter(text.as_bytes())
        .take(MAX_CERTIFICATES + 1)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| Error::ReadPem { what, source })?;
    match found.len() {
        0 => Err(Error::PemMissing {
            what,
            block: "CERTIFICATE",
        }),
        1..=MAX_CERTIFICATES => Ok(found),
        _ => Err(Error::PemTooLarge { what }),
    }
}

/// The private key in `text`.
pub(super) fn private_key(what: &'static str, text: &str) -> Result<PrivateKeyDer<'static>, Error> {
    if text.len() > MAX_LENGTH {
        return Err(Error::PemTooLarge { what });
    }
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| match error {
        pem::Error::NoItemsFound => Error::PemMissing {
            what,
            block: "PRIVATE KEY",
        },
        source => Error::ReadPem { what, source },
    })
}

/// Understands one certificate.
pub(super) fn parse<'a>(
    what: &'static str,
    der: &'a CertificateDer<'_>,
) -> Result<X509Certificate<'a>, Error> {
    X509Certificate::from_der(der)
        .map(|(_, certificate)| certificate)
        .map_err(|error| Error::ParseCertificate {
            what,
            source: match error {
                x509_parser::nom::Err::Error(source) | x509_parser::nom::Err::Failure(source) => {
                    source
                }
                x509_parser::nom::Err::Incomplete(_) => X509Error::InvalidCertificate,
            },
        })
}

/// The one URI among the alternative names of a certificate. SPIFFE forbids a second.
pub(super) fn only_uri<'a>(
    what: &'static str,
    certificate: &X509Certificate<'a>,
) -> Result<&'a str, Error> {
    let mut uris = certificate
        .extensions()
        .iter()
        .filter_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
            _ => None,
        })
        .flatten()
        .filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        });
    match (uris.next(), uris.next()) {
        (Some(uri), None) => Ok(uri),
        (None, _) => Err(Error::Identify {
            what,
            why: "no URI among its alternative names",
        }),
        (Some(_), Some(_)) => Err(Error::Identify {
            what,
            why: "more than one URI among its alternative names",
        }),
    }
}
