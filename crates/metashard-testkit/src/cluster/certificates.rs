//! The keys of a cluster: its authority, the API server's certificate, users' certificates.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Makes certificates and writes them to a folder.
#[derive(Debug)]
pub(crate) struct Certificates {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// Files of one certificate and its key.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificates {
    /// Makes an authority, the API server's certificate and the key that signs ServiceAccount tokens.
    /// `address`: a further one of the API server.
    pub(crate) fn new(folder: &Path, address: Option<&str>) -> anyhow::Result<Self> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        authority
            .distinguished_name
            .push(DnType::CommonName, "metashard-testkit");
        let key = KeyPair::generate()?;
        let certificate = authority.self_signed(&key)?;
        let this = Self {
            folder: folder.to_owned(),
            issuer: Issuer::new(authority, key),
        };
        this.write("authority.crt", &certificate.pem())?;

        let names = [
            "localhost",
            "127.0.0.1",
            "10.0.0.1",
            "kubernetes.default.svc",
        ];
        let names = names.into_iter().chain(address).map(str::to_owned);
        let mut server = CertificateParams::new(names.collect::<Vec<_>>())?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        this.issue("api-server", &server)?;

        let signing = KeyPair::generate()?;
        this.write("service-accounts.key", &signing.serialize_pem())?;
        this.write("service-accounts.pub", &signing.public_key_pem())?;
        Ok(this)
    }

    /// A client certificate: the API server reads the user's name from its common name.
    pub(crate) fn user(&self, name: &str) -> anyhow::Result<Files> {
        let mut user = CertificateParams::default();
        user.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        user.distinguished_name.push(DnType::CommonName, name);
        self.issue(&format!("user-{}", name.replace([':', '/'], "-")), &user)
    }

    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.join("authority.crt")
    }

    pub(crate) fn api_server(&self) -> Files {
        self.files("api-server")
    }

    pub(crate) fn service_accounts_private(&self) -> PathBuf {
        self.folder.join("service-accounts.key")
    }

    pub(crate) fn service_accounts_public(&self) -> PathBuf {
        self.folder.join("service-accounts.pub")
    }

    fn issue(&self, name: &str, params: &CertificateParams) -> anyhow::Result<Files> {
        let key = KeyPair::generate()?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("sign certificate {name}"))?;
        self.write(&format!("{name}.crt"), &certificate.pem())?;
        self.write(&format!("{name}.key"), &key.serialize_pem())?;
        Ok(self.files(name))
    }

    fn files(&self, name: &str) -> Files {
        Files {
            certificate: self.folder.join(format!("{name}.crt")),
            key: self.folder.join(format!("{name}.key")),
        }
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }
}
