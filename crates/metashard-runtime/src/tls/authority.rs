//! The certificate authority of an installation, and what it issues.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType,
    date_time_ymd,
};

use super::{
    Error,
    identity::{SpiffeId, Subject, authority_uri, check_name, trust_domain_of},
    pem,
};

/// How long a new authority is valid.
pub const ROOT_LIFETIME: Duration = Duration::from_hours(365 * 24);
/// How long an issued certificate is valid: short, since there is no revocation.
pub const LEAF_LIFETIME: Duration = Duration::from_hours(24);
/// Certificates are valid from so long before they were made, for peers whose clocks are behind, or whose maker's is ahead:
/// by a few minutes, or by hours where one is set to local time. Their keys are new, so their past tells nothing.
const BACKDATE: Duration = Duration::from_hours(24);

const CA_CERTIFICATE: &str = "CA certificate";
const CA_KEY: &str = "CA private key";

/// Issues certificates for replicas. Holds the secret that makes a process a member of the fleet.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    cert_pem: String,
    trust_domain: String,
    validity: Validity,
}

/// A certificate and its private key, as PEM texts. `Debug` does not show the key.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate.
    pub cert_pem: String,
    /// The private key, as PKCS #8. A secret.
    pub key_pem: String,
}

/// From when until when a certificate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Not before this time.
    pub not_before: SystemTime,
    /// Not after this time.
    pub not_after: SystemTime,
}

impl Authority {
    /// Makes a new authority for `trust_domain` (a DNS name), valid for [`ROOT_LIFETIME`] from `now`.
    ///
    /// # Errors
    ///
    /// If `trust_domain` cannot be one, or there is no randomness to make a key.
    pub fn generate(trust_domain: &str, now: SystemTime) -> Result<Self, Error> {
        check_name("trust domain", trust_domain)?;
        let make = |source| Error::Make {
            what: CA_CERTIFICATE,
            source,
        };
        let key = KeyPair::generate().map_err(make)?;
        let mut params = params(now, now + ROOT_LIFETIME);
        params.distinguished_name = common_name("metashard CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.subject_alt_names = vec![SanType::URI(
            authority_uri(trust_domain).try_into().map_err(make)?,
        )];
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName(trust_domain.to_owned())],
            excluded_subtrees: Vec::new(),
        });
        let cert_pem = params.self_signed(&key).map_err(make)?.pem();
        Self::from_pem(&cert_pem, &key.serialize_pem())
    }

    /// Reads an authority that [`Authority::to_pem`] wrote.
    ///
    /// # Errors
    ///
    /// If a text holds no such PEM block, certificate and key do not belong together, or the certificate is not one
    /// of ours.
    pub fn from_pem(cert_pem: &str, key_pem: &str) -> Result<Self, Error> {
        let ders = pem::certificates(CA_CERTIFICATE, cert_pem)?;
        let der = ders.first().ok_or(Error::PemMissing {
            what: CA_CERTIFICATE,
            block: "CERTIFICATE",
        })?;
        let key = pem::private_key(CA_KEY, key_pem)?;
        let key = KeyPair::try_from(&key).map_err(|source| Error::ReadKey {
            what: CA_KEY,
            source,
        })?;
        let parsed = pem::parse(CA_CERTIFICATE, der)?;
        if *parsed.public_key().subject_public_key.data != *key.public_key_raw() {
            return Err(Error::KeyMismatch {
                what: "certificate authority",
            });
        }
        if !parsed.is_ca() {
            return Err(Error::Identify {
                what: CA_CERTIFICATE,
                why: "it may not issue certificates",
            });
        }
        let uri = pem::only_uri(CA_CERTIFICATE, &parsed)?;
        Ok(Self {
            trust_domain: trust_domain_of(CA_CERTIFICATE, uri)?,
            validity: Validity::of(&parsed),
            cert_pem: cert_pem.to_owned(),
            issuer: Issuer::from_ca_cert_der(der, key).map_err(|source| Error::ReadKey {
                what: CA_CERTIFICATE,
                source,
            })?,
        })
    }

    /// The authority as PEM texts, secret included: for the Secret that it is kept in.
    pub fn to_pem(&self) -> Certificate {
        Certificate {
            cert_pem: self.cert_pem.clone(),
            key_pem: self.issuer.key().serialize_pem(),
        }
    }

    /// The certificate alone, which is public: what [`super::Roots`] are made of.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// The trust domain of everything that it issues.
    pub fn trust_domain(&self) -> &str {
        &self.trust_domain
    }

    /// How long it counts.
    pub const fn validity(&self) -> Validity {
        self.validity
    }

    /// Issues a certificate for `subject`, good for both ends of a connection, valid for [`LEAF_LIFETIME`] from `now`
    /// and never longer than the authority itself.
    ///
    /// # Errors
    ///
    /// If a name of `subject` cannot be part of a SPIFFE id, or there is no randomness to make a key.
    pub fn issue(&self, subject: &Subject, now: SystemTime) -> Result<Certificate, Error> {
        subject.check()?;
        let make = |source| Error::Make {
            what: "replica certificate",
            source,
        };
        let id = SpiffeId {
            trust_domain: &self.trust_domain,
            subject,
        };
        let mut params = params(now, (now + LEAF_LIFETIME).min(self.validity.not_after));
        params.distinguished_name = common_name(subject.replica.as_str());
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        // The DNS name is the same in all of them: whom it is for is in the URI.
        params.subject_alt_names = vec![
            SanType::URI(id.to_string().try_into().map_err(make)?),
            SanType::DnsName(self.trust_domain.clone().try_into().map_err(make)?),
        ];
        let key = KeyPair::generate().map_err(make)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(make)?;
        Ok(Certificate {
            cert_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("trust_domain", &self.trust_domain)
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

impl Certificate {
    /// How long the certificate counts.
    ///
    /// # Errors
    ///
    /// If it is damaged.
    pub fn validity(&self) -> Result<Validity, Error> {
        const WHAT: &str = "certificate";
        let ders = pem::certificates(WHAT, &self.cert_pem)?;
        let der = ders.first().ok_or(Error::PemMissing {
            what: WHAT,
            block: "CERTIFICATE",
        })?;
        Ok(Validity::of(&pem::parse(WHAT, der)?))
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("cert_pem", &self.cert_pem)
            .finish_non_exhaustive()
    }
}

impl Validity {
    /// When to replace the certificate: at two thirds of its life, which leaves a third for trying again.
    pub fn renew_at(&self) -> SystemTime {
        let life = self
            .not_after
            .duration_since(self.not_before)
            .unwrap_or_default();
        self.not_before + life * 2 / 3
    }

    fn of(certificate: &x509_parser::certificate::X509Certificate<'_>) -> Self {
        let at = |time: x509_parser::time::ASN1Time| {
            let seconds = u64::try_from(time.timestamp()).unwrap_or_default();
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
        };
        Self {
            not_before: at(certificate.validity.not_before),
            not_after: at(certificate.validity.not_after),
        }
    }
}

/// Parameters with nothing but the validity: from a while before `now` until `not_after`.
fn params(now: SystemTime, not_after: SystemTime) -> CertificateParams {
    let since_epoch = |time: SystemTime| {
        time.duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
    };
    let mut params = CertificateParams::default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch(now).saturating_sub(BACKDATE);
    params.not_after = epoch + since_epoch(not_after);
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}
