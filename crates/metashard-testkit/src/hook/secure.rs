//! Certificates for hooks at https URLs and for their callers, made on the spot.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

/// An authority that signs certificates.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// PEM texts of a certificate and its key.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

/// What a hook shows, and whose certificates it asks callers for. Can be replaced while the hook runs.
#[derive(Clone)]
pub struct Tls(Arc<Mutex<Arc<ServerConfig>>>);

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    /// If no certificate can be made.
    pub fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self {
            pem: params.self_signed(&key)?.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// PEM text of its own certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for a hook at `localhost`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn server(&self) -> anyhow::Result<Pair> {
        self.sign(
            ExtendedKeyUsagePurpose::ServerAuth,
            Duration::from_hours(24),
        )
    }

    /// A certificate for a caller that ends after `lifetime`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn client(&self, lifetime: Duration) -> anyhow::Result<Pair> {
        self.sign(ExtendedKeyUsagePurpose::ClientAuth, lifetime)
    }

    fn sign(&self, usage: ExtendedKeyUsagePurpose, lifetime: Duration) -> anyhow::Result<Pair> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(["localhost".to_owned()])?;
        params.extended_key_usages = vec![usage];
        params.not_after = (now() + lifetime).into();
        let certificate = params
            .signed_by(&key, &self.issuer)
            .context("sign a certificate")?;
        Ok(Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl Tls {
    /// Shows `own`. Callers have to show a certificate of one of `clients`, unless there is none.
    ///
    /// # Errors
    /// If `own` cannot be used.
    pub fn new(own: &Pair, clients: &[&Authority]) -> anyhow::Result<Self> {
        let config = config(own, clients)?;
        Ok(Self(Arc::new(Mutex::new(Arc::new(config)))))
    }

    /// The same for connections from now on.
    ///
    /// # Errors
    /// If `own` cannot be used.
    pub fn replace(&self, own: &Pair, clients: &[&Authority]) -> anyhow::Result<()> {
        *self.0.lock() = Arc::new(config(own, clients)?);
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.lock()))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the end of a certificate is judged by the clocks of other processes"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

fn config(own: &Pair, clients: &[&Authority]) -> anyhow::Result<ServerConfig> {
    let provider: Arc<CryptoProvider> = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = if clients.is_empty() {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for authority in clients {
            roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes())?)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build()?)
    };
    let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes())?;
    Ok(builder.with_single_cert(chain, key)?)
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pair")
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}
