//! Hooks, where they are reached, and with which certificates and credentials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::empty_as_absent;

/// Time that a call may take where `timeout` is absent, not readable or not above zero.
pub const DEFAULT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Port of a Service where none is given, unless the protocol is https.
pub const DEFAULT_SERVICE_PORT: i32 = 80;

/// One hook.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Hook {
    /// Version of the request and response bodies.
    #[serde(
        default,
        deserialize_with = "empty_as_absent",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(extend("default" = "v1"))]
    pub version: Option<HookVersion>,
    /// Where it is reached. Absent: the hook is not called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
}

/// Version of the request and response bodies.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum HookVersion {
    /// Objects are keyed by name; loose answers.
    V1,
    /// Objects are keyed by `namespace/name`; strict answers.
    V2,
    /// A word that no version of the API knows.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// An HTTP endpoint: `url`, or `service` with `path`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// The whole URL, used as it is. Wins over `service` and `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Time that a call may take, as `10s` or `1m30s`. Absent, or not above zero: 10 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "duration"))]
    pub timeout: Option<String>,
    /// Re-use of former answers by entity tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<Etag>,
    /// Path and query on the Service; appended as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The Service that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceReference>,
    /// Whether an answer with unknown or repeated fields is refused. Absent: `loose` for v1, `strict` for v2.
    #[serde(
        default,
        rename = "responseUnMarshallMode",
        deserialize_with = "empty_as_absent",
        skip_serializing_if = "Option::is_none"
    )]
    pub response_unmarshal_mode: Option<ResponseUnmarshalMode>,
    /// Certificates and credentials. If any is set here, `endpointConfigs` are not looked at.
    #[serde(flatten)]
    pub security: EndpointSecurity,
}

/// Whether an answer with unknown or repeated fields is refused. Absent: `loose` for v1, `strict` for v2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ResponseUnmarshalMode {
    /// Taken, with a warning.
    Loose,
    /// Refused.
    Strict,
    /// A word that no version of the API knows.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// Re-use of former answers by entity tags.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Etag {
    /// Whether tags are kept and sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enabled: bool,
    /// Seconds that an answer is kept. Absent: without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_timeout_seconds: Option<i32>,
    /// Seconds between two clean-ups of what is kept too long. Absent: chosen by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_cleanup_seconds: Option<i32>,
}

/// A Service in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ServiceReference {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its port. Absent: 80, or 443 for https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Scheme of the URL. Absent: http.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// Certificates and credentials of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSecurity {
    /// Authorities that the endpoint's certificate is checked against, in place of the system's. Exactly one source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<CaBundle>,
    /// The certificate to show to the endpoint.
    #[serde(default, rename = "clientTLS", skip_serializing_if = "Option::is_none")]
    pub client_tls: Option<ClientTls>,
    /// A token for the `Authorization` header. Not together with `basicAuth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// A name and password for the `Authorization` header. Not together with `authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuth>,
}

impl EndpointSecurity {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Certificates and credentials for every hook at one host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EndpointConfig {
    /// `host` or `host:port` of the hooks' URLs.
    pub host: String,
    /// What to use there.
    #[serde(flatten)]
    pub security: EndpointSecurity,
}

/// A source of PEM certificates; exactly one of the three.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaBundle {
    /// The PEM text itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
    /// A key of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<CaBundleRef>,
    /// A key of a ConfigMap's `data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<CaBundleRef>,
}

/// A key of a Secret or ConfigMap that holds PEM certificates.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CaBundleRef {
    /// Name of the object.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The key. Absent: `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "ca.crt"))]
    pub key: Option<String>,
}

/// A client certificate in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientTls {
    /// The Secret.
    pub secret_ref: SecretRef,
    /// Key of the certificate. Absent: `tls.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "tls.crt"))]
    pub cert_key: Option<String>,
    /// Key of the private key. Absent: `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "tls.key"))]
    pub private_key_key: Option<String>,
}

/// A token in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// First word of the header. Absent or blank: `Bearer`. Not `Basic`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Bearer"))]
    pub type_: Option<String>,
    /// The key that holds the token.
    pub secret_ref: SecretKeyRef,
}

/// A name and password in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuth {
    /// The Secret.
    pub secret_ref: SecretRef,
    /// Key of the name. Absent: `username`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "username"))]
    pub username_key: Option<String>,
    /// Key of the password. Absent: `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "password"))]
    pub password_key: Option<String>,
}

/// A Secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// A key of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyRef {
    /// Name of the Secret.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The key.
    pub key: String,
}

/// What the API server checks of a hook that is called: exactly what Metacontroller refuses when it starts a
/// controller, so that nothing which it runs is refused.
pub(super) fn called_hook_rules() -> Value {
    let rule = |rule: &str, message: &str| json!({ "rule": format!("!has(self.webhook) || {rule}"), "message": message });
    json!([
        rule(
            "has(self.webhook.url) || (has(self.webhook.service) && has(self.webhook.path))",
            "give webhook.url, or both webhook.service and webhook.path",
        ),
        rule(
            "has(self.webhook.url) || !has(self.webhook.service) || (self.webhook.service.name != '' && self.webhook.service.namespace != '')",
            "webhook.service needs a name and a namespace",
        ),
        rule(
            "!(has(self.webhook.authorization) && has(self.webhook.basicAuth))",
            "webhook.authorization and webhook.basicAuth exclude each other",
        ),
        rule(
            "!has(self.webhook.authorization) || !has(self.webhook.authorization.type) || self.webhook.authorization.type.trim().lowerAscii() != 'basic'",
            "webhook.authorization.type must not be Basic: use webhook.basicAuth",
        ),
        rule(
            "!has(self.webhook.caBundle) || [has(self.webhook.caBundle.inline) && self.webhook.caBundle.inline != '', has(self.webhook.caBundle.secretRef), has(self.webhook.caBundle.configMapRef)].exists_one(given, given)",
            "webhook.caBundle needs exactly one of inline, secretRef and configMapRef",
        ),
    ])
}
