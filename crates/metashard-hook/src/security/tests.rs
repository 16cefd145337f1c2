//! What is read from Secrets and ConfigMaps, and what is said when it cannot be used.

use std::{collections::BTreeMap, time::SystemTime};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use super::*;

const FIELD: &str = "spec.hooks.sync.webhook";

/// Objects by `Kind/name`, all in the namespace `ns`; what is secret of them has the word `hush` in it.
#[derive(Default)]
struct Objects(BTreeMap<String, Vec<u8>>);

impl Objects {
    fn secret(self, name: &str, data: &[(&str, &str)]) -> Self {
        let encoded = data
            .iter()
            .map(|(key, value)| (*key, STANDARD.encode(value)));
        let data: BTreeMap<_, _> = encoded.collect();
        self.with("Secret", name, &json!({ "data": data }))
    }

    fn map(self, name: &str, body: &Value) -> Self {
        self.with("ConfigMap", name, body)
    }

    fn with(mut self, kind: &str, name: &str, body: &Value) -> Self {
        let bytes = body.to_string().into_bytes();
        self.0.insert(format!("{kind} ns/{name}"), bytes);
        self
    }

    fn read(&self, security: Value) -> Result<Security, String> {
        let demand = Demand {
            field: FIELD.to_owned(),
            security: serde_json::from_value(security).unwrap(),
        };
        let find = |source: &Source| match self.0.get(&source.to_string()) {
            Some(bytes) => Found::Object(bytes),
            None if source.name == "forbidden" => Found::Unreadable("you may not"),
            None => Found::Missing,
        };
        let read = Security::read(&demand, &find, None, &SystemRoots::default());
        let read = read.map_err(|finding| finding.to_string());
        // Whatever happens, nothing secret is shown.
        let shown = format!("{read:?}");
        assert!(!shown.contains("hush"), "{shown}");
        read
    }

    fn refusal(&self, security: Value) -> String {
        self.read(security).unwrap_err()
    }
}

fn reference(name: &str) -> Value {
    json!({ "name": name, "namespace": "ns" })
}

fn bearer(key: &str) -> Value {
    json!({ "authorization": { "secretRef": { "name": "s", "namespace": "ns", "key": key } } })
}

fn value(security: &Security) -> &[u8] {
    security.authorization.as_ref().unwrap().as_bytes()
}

/// PEM of a certificate that ends in `year`, and of its key.
fn pair(year: i32) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["hook".to_owned()]).unwrap();
    params.not_after = date_time_ymd(year, 1, 1);
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[test]
fn a_ca_bundle_comes_from_any_one_source() {
    let (pem, _) = pair(2100);
    let objects = Objects::default()
        .secret("s", &[("ca.crt", &pem), ("other", &pem)])
        .map("m", &json!({ "data": { "ca.crt": pem, "other": pem } }));
    for bundle in [
        json!({ "inline": pem }),
        json!({ "secretRef": reference("s") }),
        json!({ "configMapRef": reference("m") }),
        json!({ "secretRef": { "name": "s", "namespace": "ns", "key": "other" } }),
        json!({ "configMapRef": { "name": "m", "namespace": "ns", "key": "other" } }),
        json!({ "inline": "", "secretRef": reference("s") }),
    ] {
        let security = objects.read(json!({ "caBundle": bundle })).unwrap();

        assert!(security.tls.is_some(), "{bundle}");
        assert_eq!(security.certificates[0].role, Role::Authority);
    }
}

#[test]
fn what_is_wrong_with_a_ca_bundle_is_told_with_object_key_field_and_fix() {
    let objects = Objects::default()
        .secret("empty", &[("ca.crt", " \n")])
        .secret("text", &[("ca.crt", "hush")])
        .map("binary", &json!({ "binaryData": { "ca.crt": "aHVzaA==" } }))
        .with(
            "Secret",
            "damaged",
            &json!({ "data": { "ca.crt": "hush!" } }),
        );
    let secret = |name| json!({ "caBundle": { "secretRef": reference(name) } });
    let at = "spec.hooks.sync.webhook.caBundle.secretRef: ";
    for (security, expected) in [
        (secret("none"), format!("{at}Secret ns/none not found; create it")),
        (secret("forbidden"), format!("{at}Secret ns/forbidden cannot be read: you may not; allow")),
        (secret("empty"), format!("{at}key \"ca.crt\" of Secret ns/empty is empty; give it a value")),
        (secret("text"), format!("{at}key \"ca.crt\" of Secret ns/text holds no certificate in PEM form; put")),
        (secret("damaged"), format!("{at}key \"ca.crt\" of Secret ns/damaged cannot be read; write")),
        (
            json!({ "caBundle": { "configMapRef": reference("binary") } }),
            "spec.hooks.sync.webhook.caBundle.configMapRef: ConfigMap ns/binary has no key \"ca.crt\"; add".to_owned(),
        ),
        (
            json!({ "caBundle": {} }),
            "spec.hooks.sync.webhook.caBundle: not exactly one source of certificates; give one".to_owned(),
        ),
        (
            json!({ "caBundle": { "inline": "hush", "secretRef": reference("text") } }),
            "spec.hooks.sync.webhook.caBundle: not exactly one source of certificates; give one".to_owned(),
        ),
        (
            json!({ "caBundle": { "inline": "hush" } }),
            "spec.hooks.sync.webhook.caBundle.inline: the text holds no certificate in PEM form; put".to_owned(),
        ),
    ] {
        let text = objects.refusal(security);

        assert!(text.starts_with(&expected), "{text}\nis not\n{expected}");
    }
}

#[test]
fn a_bundle_ends_with_its_last_certificate_and_bad_blocks_are_passed_over() {
    let (old, new) = (pair(2030).0, pair(2050).0);
    let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let bundle = format!("# ours\n{new}{bad}{old}");

    let security = Objects::default()
        .read(json!({ "caBundle": { "inline": bundle } }))
        .unwrap();

    let ends: SystemTime = date_time_ymd(2050, 1, 1).into();
    assert_eq!(security.certificates[0].not_after, ends);
}

#[test]
fn a_client_certificate_is_read_from_the_usual_keys_or_those_that_are_named() {
    let (chain, key) = pair(2040);
    let objects = Objects::default()
        .secret("usual", &[("tls.crt", &chain), ("tls.key", &key)])
        .secret("named", &[("c", &chain), ("k", &key)]);
    let named = json!({ "secretRef": reference("named"), "certKey": "c", "privateKeyKey": "k" });
    for client in [json!({ "secretRef": reference("usual") }), named] {
        let security = objects.read(json!({ "clientTLS": client })).unwrap();

        assert!(
            security
                .tls
                .as_ref()
                .unwrap()
                .client_auth_cert_resolver
                .has_certs()
        );
        let certificate = &security.certificates[0];
        assert_eq!(certificate.role, Role::Client);
        let ends: SystemTime = date_time_ymd(2040, 1, 1).into();
        assert_eq!(certificate.not_after, ends);
    }
}

#[test]
fn what_is_wrong_with_a_client_certificate_is_told() {
    let ((chain, key), (_, stranger)) = (pair(2040), pair(2040));
    let hush = "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n";
    let objects = Objects::default()
        .secret("half", &[("tls.crt", &chain)])
        .secret("swapped", &[("tls.crt", &key), ("tls.key", &chain)])
        .secret("cert-only", &[("tls.crt", &chain), ("tls.key", &chain)])
        .secret(
            "damaged",
            &[
                ("tls.crt", &chain),
                ("tls.key", "-----BEGIN PRIVATE KEY-----\nhush"),
            ],
        )
        .secret("no-key", &[("tls.crt", &chain), ("tls.key", hush)])
        .secret("mixed", &[("tls.crt", &chain), ("tls.key", &stranger)]);
    for (name, expected) in [
        ("half", "Secret ns/half has no key \"tls.key\"; "),
        (
            "swapped",
            "key \"tls.crt\" of Secret ns/swapped holds no certificate in PEM form; ",
        ),
        (
            "cert-only",
            "key \"tls.key\" of Secret ns/cert-only holds no private key; ",
        ),
        (
            "damaged",
            "key \"tls.key\" of Secret ns/damaged is no valid PEM; ",
        ),
        (
            "no-key",
            "key \"tls.crt\" of Secret ns/no-key and the private key beside it cannot be used; ",
        ),
        (
            "mixed",
            "key \"tls.crt\" of Secret ns/mixed and the private key beside it do not belong together; ",
        ),
    ] {
        let text = objects.refusal(json!({ "clientTLS": { "secretRef": reference(name) } }));

        let expected = format!("{FIELD}.clientTLS.secretRef: {expected}");
        assert!(text.starts_with(&expected), "{text}\nis not\n{expected}");
    }
}

#[test]
fn a_token_is_sent_as_bearer_unless_another_type_is_named() {
    let objects = Objects::default().secret("s", &[("t", " hush-1\n"), ("none", "")]);
    for (type_, key, expected) in [
        (None, "t", "Bearer hush-1"),
        (Some("  "), "t", "Bearer hush-1"),
        (Some(" ApiKey "), "t", "ApiKey hush-1"),
        (None, "none", "Bearer "),
    ] {
        let mut security = bearer(key);
        if let Some(type_) = type_ {
            security["authorization"]["type"] = type_.into();
        }

        let read = objects.read(security).unwrap();

        assert_eq!(value(&read), expected.as_bytes(), "{type_:?}");
        assert!(read.tls.is_none(), "plain material needs no configuration");
    }
}

#[test]
fn what_is_wrong_with_credentials_is_told() {
    let objects = Objects::default().secret(
        "s",
        &[
            ("broken", "hush\nhush"),
            ("username", "me:hush"),
            ("password", "hush"),
            ("user", "me"),
        ],
    );
    let basic = |user: &str, password: &str| json!({ "basicAuth": { "secretRef": reference("s"), "usernameKey": user, "passwordKey": password } });
    let mut typed = bearer("broken");
    typed["authorization"]["type"] = " bASIC".into();
    let mut both = bearer("user");
    both["basicAuth"] = json!({ "secretRef": reference("s") });
    for (security, expected) in [
        (
            bearer("absent"),
            "authorization.secretRef: Secret ns/s has no key \"absent\"; ",
        ),
        (
            bearer("broken"),
            "authorization.secretRef: key \"broken\" of Secret ns/s has characters that",
        ),
        (
            typed,
            "authorization.type: Basic needs a name and a password; use basicAuth",
        ),
        (
            both,
            "authorization: authorization and basicAuth are mutually exclusive; ",
        ),
        (
            basic("username", "password"),
            "basicAuth.secretRef: basicAuth username must not contain ':', but key \"username\" of Secret ns/s does; ",
        ),
        (
            basic("user", "absent"),
            "basicAuth.secretRef: Secret ns/s has no key \"absent\"; ",
        ),
    ] {
        let text = objects.refusal(security);

        let expected = format!("{FIELD}.{expected}");
        assert!(text.starts_with(&expected), "{text}\nis not\n{expected}");
    }
}

#[test]
fn a_name_and_password_are_sent_in_base64_without_white_space_around_them() {
    let objects = Objects::default()
        .secret(
            "usual",
            &[("username", "Aladdin\n"), ("password", " open sesame ")],
        )
        .secret("named", &[("u", "Aladdin"), ("p", "open sesame")]);
    let named = json!({ "secretRef": reference("named"), "usernameKey": "u", "passwordKey": "p" });
    for basic in [json!({ "secretRef": reference("usual") }), named] {
        let security = objects.read(json!({ "basicAuth": basic })).unwrap();

        assert_eq!(value(&security), b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }
}
