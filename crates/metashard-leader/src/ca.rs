//! The certificate authority of the replicas, kept in a Secret of the system namespace.
//!
//! Whoever comes first makes it; the create decides between several. Every replica issues its own certificate from it.

use std::sync::Arc;

use metashard_kube::{
    client::Clients,
    system::{SecretData, create_secret, read_secret},
};
use metashard_runtime::{
    clock::Clock,
    tls::{Authority, DEFAULT_TRUST_DOMAIN},
};

/// Name of the Secret.
pub const SECRET: &str = "metashard-ca";

/// Key of the certificate, as in Secrets of type `kubernetes.io/tls`.
const CERTIFICATE: &str = "tls.crt";

/// Key of the private key.
const PRIVATE_KEY: &str = "tls.key";

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server could not be asked.
    #[error("obtain Secret {namespace}/{SECRET}")]
    Secret {
        /// The system namespace.
        namespace: String,
        /// What it said.
        source: metashard_kube::error::Error,
    },
    /// The Secret is there and its content is not.
    #[error(
        "read Secret {namespace}/{SECRET}: key {key} is missing or no text; delete the Secret to have it made anew"
    )]
    Content {
        /// The system namespace.
        namespace: String,
        /// The key.
        key: &'static str,
    },
    /// The content is no authority, or none could be made.
    #[error("use the authority of Secret {namespace}/{SECRET}")]
    Authority {
        /// The system namespace.
        namespace: String,
        /// Why not.
        source: metashard_runtime::tls::Error,
    },
}

/// Reads the authority, or makes it.
///
/// # Errors
///
/// When the Secret can be neither read nor created, or holds something else. Worth another try only if the API server
/// was away.
pub async fn obtain(
    clients: &Clients,
    namespace: &str,
    clock: &Clock,
) -> Result<Arc<Authority>, Error> {
    if let Some(authority) = read(clients, namespace).await? {
        return Ok(authority);
    }
    let made = Authority::generate(DEFAULT_TRUST_DOMAIN, clock.wall())
        .map_err(|source| broken(namespace, source))?;
    let pem = made.to_pem();
    let data = SecretData::from([
        (CERTIFICATE.to_owned(), pem.cert_pem.into_bytes()),
        (PRIVATE_KEY.to_owned(), pem.key_pem.into_bytes()),
    ]);
    let ours = create_secret(clients, namespace, SECRET, data)
        .await
        .map_err(|source| asked(namespace, source))?;
    if ours {
        return Ok(Arc::new(made));
    }
    read(clients, namespace).await?.ok_or(Error::Content {
        namespace: namespace.to_owned(),
        key: CERTIFICATE,
    })
}

async fn read(clients: &Clients, namespace: &str) -> Result<Option<Arc<Authority>>, Error> {
    let data = read_secret(clients, namespace, SECRET)
        .await
        .map_err(|source| asked(namespace, source))?;
    let Some(data) = data else {
        return Ok(None);
    };
    let text = |key: &'static str| {
        let bytes = data.get(key).map(Vec::as_slice).unwrap_or_default();
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.is_empty() => Ok(text),
            Ok(_) | Err(_) => Err(Error::Content {
                namespace: namespace.to_owned(),
                key,
            }),
        }
    };
    Authority::from_pem(text(CERTIFICATE)?, text(PRIVATE_KEY)?)
        .map(|authority| Some(Arc::new(authority)))
        .map_err(|source| broken(namespace, source))
}

fn asked(namespace: &str, source: metashard_kube::error::Error) -> Error {
    Error::Secret {
        namespace: namespace.to_owned(),
        source,
    }
}

fn broken(namespace: &str, source: metashard_runtime::tls::Error) -> Error {
    Error::Authority {
        namespace: namespace.to_owned(),
        source,
    }
}
