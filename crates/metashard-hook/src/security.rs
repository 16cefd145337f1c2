//! What a hook's connection is secured with: certificates and credentials, read from the objects that hold them.
//!
//! Nothing here shows a secret: errors name objects and keys, and the `Debug` forms name nothing at all.

mod certificate;
mod holder;

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderValue;
use metashard_api::{
    endpoint::{Demand, Source},
    v1alpha1::webhook::{Authorization, BasicAuth, CaBundle, ClientTls},
    validate::Finding,
};
use rustls::ClientConfig;

pub(crate) use self::certificate::{Authority, Identity, end_of};
pub use self::certificate::{Certificate, Role};
pub use self::holder::Found;
use self::holder::Holders;
use crate::tls::{self, SystemRoots};

const DEFAULT_CA_KEY: &str = "ca.crt";
const DEFAULT_CERTIFICATE_KEY: &str = "tls.crt";
const DEFAULT_PRIVATE_KEY: &str = "tls.key";
const DEFAULT_USER_KEY: &str = "username";
const DEFAULT_PASSWORD_KEY: &str = "password";
const DEFAULT_TYPE: &str = "Bearer";

/// What one endpoint is called with.
#[derive(Default)]
pub(crate) struct Security {
    /// `None`: trust the certificates of the system and show none.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// Value of the header `Authorization`.
    pub(crate) authorization: Option<HeaderValue>,
    /// The certificates that matter, for telling when they end.
    pub(crate) certificates: Vec<Certificate>,
    /// Two equal ones: the same TLS material.
    pub(crate) tls_hash: u64,
}

impl Security {
    /// Takes what `demand` asks for from the objects that `find` finds. Of `before` it keeps the TLS configuration if that
    /// is the same, and with it connections and sessions.
    ///
    /// # Errors
    ///
    /// When something is missing or cannot be used, with the field at fault.
    pub(crate) fn read<'a>(
        demand: &Demand,
        find: &dyn Fn(&Source) -> Found<'a>,
        before: Option<&Self>,
        system: &SystemRoots,
    ) -> Result<Self, Finding> {
        let holders = Holders::new(find);
        let field = &demand.field;
        let wanted = &demand.security;
        let authority = wanted
            .ca_bundle
            .as_ref()
            .map(|bundle| authority(&format!("{field}.caBundle"), bundle, &holders))
            .transpose()?;
        let client = wanted
            .client_tls
            .as_ref()
            .map(|client| identity(&format!("{field}.clientTLS"), client, &holders))
            .transpose()?;
        let authorization = match (&wanted.authorization, &wanted.basic_auth) {
            (Some(_), Some(_)) => {
                return Err(Finding::invalid(
                    format!("{field}.authorization"),
                    "authorization and basicAuth are mutually exclusive",
                    "keep one of them",
                ));
            }
            (Some(wanted), None) => {
                Some(token(&format!("{field}.authorization"), wanted, &holders)?)
            }
            (None, Some(wanted)) => {
                Some(password(&format!("{field}.basicAuth"), wanted, &holders)?)
            }
            (None, None) => None,
        };
        let mut hasher = DefaultHasher::new();
        authority.as_ref().map(|it| &it.pem).hash(&mut hasher);
        client.as_ref().map(Identity::pem).hash(&mut hasher);
        let tls_hash = hasher.finish();
        let certificates = [
            authority.as_ref().and_then(|it| it.certificate.clone()),
            client.as_ref().and_then(|it| it.certificate.clone()),
        ];
        let tls = match before {
            Some(before) if before.tls_hash == tls_hash => before.tls.clone(),
            _ if authority.is_none() && client.is_none() => None,
            _ => Some(tls::config(authority, client, system)?),
        };
        Ok(Self {
            tls,
            authorization,
            certificates: certificates.into_iter().flatten().collect(),
            tls_hash,
        })
    }

    /// Whether both are the same, as far as a hook can tell.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.tls_hash == other.tls_hash && self.authorization == other.authorization
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").finish_non_exhaustive()
    }
}

fn authority(
    field: &str,
    bundle: &CaBundle,
    holders: &Holders<'_, '_>,
) -> Result<Authority, Finding> {
    let CaBundle {
        inline,
        secret_ref,
        config_map_ref,
    } = bundle;
    let inline = inline.as_ref().filter(|text| !text.is_empty());
    let (field, origin, pem) = match (inline, secret_ref, config_map_ref) {
        (Some(text), None, None) => (
            format!("{field}.inline"),
            "the text".to_owned(),
            text.clone().into_bytes(),
        ),
        (None, Some(secret), None) => {
            let field = format!("{field}.secretRef");
            let source = Source::secret(&secret.namespace, &secret.name);
            let key = secret.key.as_deref().unwrap_or(DEFAULT_CA_KEY);
            let value = holders.some_value(&field, &source, key)?;
            (field, holder::place(key, &source), value)
        }
        (None, None, Some(map)) => {
            let field = format!("{field}.configMapRef");
            let source = Source::config_map(&map.namespace, &map.name);
            let key = map.key.as_deref().unwrap_or(DEFAULT_CA_KEY);
            let value = holders.some_value(&field, &source, key)?;
            (field, holder::place(key, &source), value)
        }
        _ => {
            return Err(Finding::invalid(
                field,
                "not exactly one source of certificates",
                "give one of inline, secretRef and configMapRef",
            ));
        }
    };
    Authority::parse(&field, &origin, pem)
}

fn identity(
    field: &str,
    client: &ClientTls,
    holders: &Holders<'_, '_>,
) -> Result<Identity, Finding> {
    let source = Source::secret(&client.secret_ref.namespace, &client.secret_ref.name);
    let certificate = client
        .cert_key
        .as_deref()
        .unwrap_or(DEFAULT_CERTIFICATE_KEY);
    let key = client
        .private_key_key
        .as_deref()
        .unwrap_or(DEFAULT_PRIVATE_KEY);
    let field = format!("{field}.secretRef");
    let chain = holders.some_value(&field, &source, certificate)?;
    let private = holders.some_value(&field, &source, key)?;
    Identity::parse(&field, &source, (certificate, chain), (key, private))
}

/// An empty token is sent as one, as Metacontroller does.
fn token(
    field: &str,
    wanted: &Authorization,
    holders: &Holders<'_, '_>,
) -> Result<HeaderValue, Finding> {
    let secret = &wanted.secret_ref;
    let source = Source::secret(&secret.namespace, &secret.name);
    let type_ = wanted.type_.as_deref().unwrap_or_default().trim();
    if type_.eq_ignore_ascii_case("basic") {
        return Err(Finding::invalid(
            format!("{field}.type"),
            "Basic needs a name and a password",
            "use basicAuth",
        ));
    }
    let type_ = if type_.is_empty() {
        DEFAULT_TYPE
    } else {
        type_
    };
    let field = format!("{field}.secretRef");
    let token = holders.value(&field, &source, &secret.key)?;
    let value = [type_.as_bytes(), b" ", token.trim_ascii()].concat();
    header(&field, &holder::place(&secret.key, &source), &value)
}

fn password(
    field: &str,
    wanted: &BasicAuth,
    holders: &Holders<'_, '_>,
) -> Result<HeaderValue, Finding> {
    let secret = &wanted.secret_ref;
    let source = Source::secret(&secret.namespace, &secret.name);
    let user_key = wanted.username_key.as_deref().unwrap_or(DEFAULT_USER_KEY);
    let password_key = wanted
        .password_key
        .as_deref()
        .unwrap_or(DEFAULT_PASSWORD_KEY);
    let field = format!("{field}.secretRef");
    let user = holders.value(&field, &source, user_key)?;
    let password = holders.value(&field, &source, password_key)?;
    let user = user.trim_ascii();
    if user.contains(&b':') {
        return Err(Finding::invalid(
            field,
            format!(
                "basicAuth username must not contain ':', but {} does",
                holder::place(user_key, &source)
            ),
            "use another name",
        ));
    }
    let pair = [user, b":", password.trim_ascii()].concat();
    let value = format!("Basic {}", STANDARD.encode(pair));
    header(
        &field,
        &holder::place(password_key, &source),
        value.as_bytes(),
    )
}

fn header(field: &str, place: &str, value: &[u8]) -> Result<HeaderValue, Finding> {
    let mut value = HeaderValue::from_bytes(value).map_err(|_| {
        Finding::invalid(
            field,
            format!("{place} has characters that no HTTP header may have"),
            "keep line breaks and control characters out of the value",
        )
    })?;
    // It is then left out of `Debug` forms, and of HTTP/2's table of headers.
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;
