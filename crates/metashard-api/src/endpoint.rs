//! Which certificates and credentials are for which hook, and which objects hold them.

use std::{collections::BTreeSet, fmt};

use crate::{
    resource::Resource,
    v1alpha1::webhook::{
        DEFAULT_SERVICE_PORT, EndpointConfig, EndpointSecurity, ServiceReference, Webhook,
    },
};

/// Port of an https Service where none is given.
const DEFAULT_HTTPS_PORT: i32 = 443;

/// Certificates and credentials that one hook is called with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Path of the field that asks for them, as `spec.hooks.sync.webhook` or `spec.endpointConfigs[1]`.
    pub field: String,
    /// What it asks for.
    pub security: EndpointSecurity,
}

/// An object that holds certificates or credentials.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// Its kind.
    pub kind: SourceKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Kinds of objects that hold certificates or credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
}

impl Demand {
    /// What the webhook at `field` is called with: its own security if it has any, and nothing else then; else that of
    /// the first of `configs` that is for its host.
    pub fn of(field: &str, webhook: &Webhook, configs: &[EndpointConfig]) -> Option<Self> {
        if !webhook.security.is_empty() {
            return Some(Self {
                field: field.to_owned(),
                security: webhook.security.clone(),
            });
        }
        let index = config_for(webhook, configs)?;
        let security = configs.get(index)?.security.clone();
        (!security.is_empty()).then(|| Self {
            field: format!("spec.endpointConfigs[{index}]"),
            security,
        })
    }

    /// The objects that hold it, each once.
    pub fn sources(&self) -> BTreeSet<Source> {
        let EndpointSecurity {
            ca_bundle,
            client_tls,
            authorization,
            basic_auth,
        } = &self.security;
        let ca_bundle = ca_bundle.as_ref();
        let ca_secret = ca_bundle.and_then(|it| it.secret_ref.as_ref());
        let ca_map = ca_bundle.and_then(|it| it.config_map_ref.as_ref());
        let client = client_tls.as_ref().map(|it| &it.secret_ref);
        let token = authorization.as_ref().map(|it| &it.secret_ref);
        let password = basic_auth.as_ref().map(|it| &it.secret_ref);
        [
            ca_secret.map(|it| Source::secret(&it.namespace, &it.name)),
            ca_map.map(|it| Source::config_map(&it.namespace, &it.name)),
            client.map(|it| Source::secret(&it.namespace, &it.name)),
            token.map(|it| Source::secret(&it.namespace, &it.name)),
            password.map(|it| Source::secret(&it.namespace, &it.name)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Source {
    /// A Secret.
    pub fn secret(namespace: &str, name: &str) -> Self {
        Self {
            kind: SourceKind::Secret,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// A ConfigMap.
    pub fn config_map(namespace: &str, name: &str) -> Self {
        Self {
            kind: SourceKind::ConfigMap,
            ..Self::secret(namespace, name)
        }
    }
}

impl SourceKind {
    /// The kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }

    /// The resource of such objects.
    pub fn resource(self) -> Resource {
        let plural = match self {
            Self::Secret => "secrets",
            Self::ConfigMap => "configmaps",
        };
        Resource {
            group: String::new(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            kind: self.as_str().to_owned(),
            namespaced: true,
            has_status: false,
        }
    }
}

/// `Secret namespace/name`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

/// The URL of a hook as text: `url` as it is, else `<protocol>://<name>.<namespace>:<port><path>`. `None` if the spec has
/// neither. The port of a Service is 80, or 443 for https, unless it is given.
pub fn url_of(webhook: &Webhook) -> Option<String> {
    match (&webhook.url, &webhook.service, &webhook.path) {
        (Some(url), _, _) => Some(url.clone()),
        (None, Some(service), Some(path)) => Some(of_service(service, path)),
        _ => None,
    }
}

/// Index of the first of `configs` that is for the host of `webhook`.
pub(crate) fn config_for(webhook: &Webhook, configs: &[EndpointConfig]) -> Option<usize> {
    if configs.is_empty() {
        return None;
    }
    let url = url_of(webhook)?;
    configs.iter().position(|config| is_for(&config.host, &url))
}

/// Whether a config for `host` (with or without port) is for `url`. A port that is the scheme's own may be left out of
/// either; case does not matter.
fn is_for(host: &str, url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.eq_ignore_ascii_case(authority) {
        return !authority.is_empty();
    }
    let default = match scheme.to_ascii_lowercase().as_str() {
        "https" => "443",
        "http" => "80",
        _ => return false,
    };
    let (name, port) = split_port(authority);
    match port {
        None => host
            .rsplit_once(':')
            .is_some_and(|(name, port)| port == default && name.eq_ignore_ascii_case(authority)),
        Some(port) if port == default => {
            let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
            host.eq_ignore_ascii_case(name) || bare.is_some_and(|it| host.eq_ignore_ascii_case(it))
        }
        Some(_) => false,
    }
}

/// The colons of an IPv6 address, which is in brackets, are not that of the port.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (authority, None),
    }
}

fn of_service(service: &ServiceReference, path: &str) -> String {
    let ServiceReference {
        name,
        namespace,
        port,
        protocol,
    } = service;
    let protocol = protocol.as_deref().unwrap_or("http");
    let port = port.unwrap_or(if protocol.eq_ignore_ascii_case("https") {
        DEFAULT_HTTPS_PORT
    } else {
        DEFAULT_SERVICE_PORT
    });
    format!("{protocol}://{name}.{namespace}:{port}{path}")
}

#[cfg(test)]
mod tests;
