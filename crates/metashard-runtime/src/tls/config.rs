//! TLS configurations for both ends of a connection between replicas.
//!
//! The chain, the dates and the usage of a peer's certificate are checked by rustls; on top of that its SPIFFE URI has
//! to name a replica of our trust domain, and for a client the replica that it means to talk to.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore,
    ServerConfig, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::TLS13,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::{
    Error,
    authority::Certificate,
    identity::{Subject, trust_domain_of},
    pem, provider,
};

/// gRPC is HTTP/2 and nothing else.
const ALPN: &[u8] = b"h2";

/// Whose certificates are believed: one authority, or several while one replaces another.
#[derive(Debug, Clone)]
pub struct Roots {
    store: Arc<RootCertStore>,
    trust_domain: Arc<str>,
}

impl Roots {
    /// Reads the certificates of one or more authorities, all of one trust domain.
    ///
    /// # Errors
    ///
    /// If there is none, one is damaged or not an authority of ours, or their trust domains differ.
    pub fn from_pem(text: &str) -> Result<Self, Error> {
        const WHAT: &str = "CA certificate";
        let mut store = RootCertStore::empty();
        let mut trust_domain = None;
        for der in pem::certificates(WHAT, text)? {
            let parsed = pem::parse(WHAT, &der)?;
            let domain = trust_domain_of(WHAT, pem::only_uri(WHAT, &parsed)?)?;
            if *trust_domain.get_or_insert_with(|| domain.clone()) != domain {
                return Err(Error::Identify {
                    what: WHAT,
                    why: "its trust domain is not that of the others",
                });
            }
            store
                .add(der)
                .map_err(|source| Error::Configure { source })?;
        }
        Ok(Self {
            store: Arc::new(store),
            trust_domain: trust_domain.unwrap_or_default().into(),
        })
    }

    /// The trust domain of all of them.
    pub fn trust_domain(&self) -> &str {
        &self.trust_domain
    }

    /// The server name that a client asks for; the same for all replicas, since their URIs tell them apart.
    ///
    /// # Errors
    ///
    /// If the trust domain is no DNS name.
    pub fn server_name(&self) -> Result<ServerName<'static>, Error> {
        ServerName::try_from(self.trust_domain.to_string()).map_err(|_| Error::BadName {
            what: "trust domain",
            text: self.trust_domain.to_string(),
        })
    }
}

/// Configures the listening end: shows `own`, and lets in only replicas with a certificate from `roots`.
///
/// TLS 1.3, ALPN `h2`. Who it is that came in, [`peer_subject`] tells.
///
/// # Errors
///
/// If `own` is damaged or its key does not belong to it.
pub fn server_config(roots: &Roots, own: &Certificate) -> Result<ServerConfig, Error> {
    let chain_check =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots.store), provider())
            .build()
            .map_err(|source| Error::ConfigureVerifier { source })?;
    let verifier = Arc::new(OnlyReplicasIn {
        chain_check,
        trust_domain: Arc::clone(&roots.trust_domain),
    });
    let (chain, key) = chain_and_key(own)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|source| Error::Configure { source })?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|source| Error::Configure { source })?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

/// Configures the calling end: shows `own`, and talks only to a replica with a certificate from `roots`;
/// with `expected` only to that one.
///
/// TLS 1.3, ALPN `h2`. The server name given when connecting should be [`Roots::server_name`]; what counts is the URI.
///
/// # Errors
///
/// If `own` is damaged or its key does not belong to it.
pub fn client_config(
    roots: &Roots,
    own: &Certificate,
    expected: Option<Subject>,
) -> Result<ClientConfig, Error> {
    let chain_check =
        WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots.store), provider())
            .build()
            .map_err(|source| Error::ConfigureVerifier { source })?;
    let verifier = Arc::new(OnlyExpectedReplica {
        chain_check,
        server_name: roots.server_name()?,
        trust_domain: Arc::clone(&roots.trust_domain),
        expected,
    });
    let (chain, key) = chain_and_key(own)?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|source| Error::Configure { source })?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(chain, key)
        .map_err(|source| Error::Configure { source })?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

/// Who the peer of an established connection is, by the chain that it showed (`peer_certificates()` of rustls).
///
/// # Errors
///
/// If there is no certificate, or it names no replica of the trust domain of `roots`.
pub fn peer_subject(roots: &Roots, chain: &[CertificateDer<'_>]) -> Result<Subject, Error> {
    let leaf = chain.first().ok_or(Error::Identify {
        what: PEER,
        why: "it showed none",
    })?;
    subject_of(leaf, &roots.trust_domain)
}

const PEER: &str = "peer certificate";

/// Lets in clients of the trust domain, once rustls has checked the chain.
#[derive(Debug)]
struct OnlyReplicasIn {
    chain_check: Arc<dyn ClientCertVerifier>,
    trust_domain: Arc<str>,
}

impl ClientCertVerifier for OnlyReplicasIn {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain_check.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self
            .chain_check
            .verify_client_cert(end_entity, intermediates, now)?;
        subject_of(end_entity, &self.trust_domain).map_err(refusal)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain_check.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain_check.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain_check.supported_verify_schemes()
    }
}

/// Talks to one replica, once rustls has checked the chain.
#[derive(Debug)]
struct OnlyExpectedReplica {
    chain_check: Arc<WebPkiServerVerifier>,
    /// The name in all certificates, whatever name or address was connected to.
    server_name: ServerName<'static>,
    trust_domain: Arc<str>,
    expected: Option<Subject>,
}

impl ServerCertVerifier for OnlyExpectedReplica {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.chain_check.verify_server_cert(
            end_entity,
            intermediates,
            &self.server_name,
            ocsp_response,
            now,
        )?;
        let subject = subject_of(end_entity, &self.trust_domain).map_err(refusal)?;
        match &self.expected {
            Some(expected) if *expected != subject => Err(refusal(Error::Identify {
                what: PEER,
                why: "it is of another replica or incarnation",
            })),
            _ => Ok(verified),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain_check.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain_check.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain_check.supported_verify_schemes()
    }
}

fn subject_of(leaf: &CertificateDer<'_>, trust_domain: &str) -> Result<Subject, Error> {
    let parsed = pem::parse(PEER, leaf)?;
    Subject::from_uri(PEER, pem::only_uri(PEER, &parsed)?, trust_domain)
}

/// Our reason, in the form in which rustls passes it on.
fn refusal(error: Error) -> rustls::Error {
    let reason = rustls::OtherError(Arc::new(error));
    rustls::Error::InvalidCertificate(CertificateError::Other(reason))
}

type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn chain_and_key(own: &Certificate) -> Result<ChainAndKey, Error> {
    Ok((
        pem::certificates("own certificate", &own.cert_pem)?,
        pem::private_key("own private key", &own.key_pem)?,
    ))
}
