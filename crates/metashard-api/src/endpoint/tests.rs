//! Which endpoint configuration is for which hook.

use serde_json::{Value, json};

use super::*;

fn webhook(value: Value) -> Webhook {
    serde_json::from_value(value).unwrap()
}

fn configs(value: Value) -> Vec<EndpointConfig> {
    serde_json::from_value(value).unwrap()
}

/// The host of an endpoint configuration, a URL, and whether the one is for the other.
const HOSTS: &[(&str, &str, bool)] = &[
    ("hooks.example", "https://hooks.example/sync", true),
    ("HOOKS.example", "https://hooks.EXAMPLE/sync", true),
    (
        "hooks.example:8443",
        "https://hooks.example:8443/sync",
        true,
    ),
    ("hooks.example", "https://hooks.example:8443/sync", false),
    ("hooks.example:8443", "https://hooks.example/sync", false),
    // The scheme's own port.
    ("hooks.example:443", "https://hooks.example/sync", true),
    ("hooks.example", "https://hooks.example:443/sync", true),
    ("hooks.example:80", "http://hooks.example?x=1", true),
    ("hooks.example", "http://hooks.example:80", true),
    ("hooks.example:80", "https://hooks.example/", false),
    ("hooks.example", "https://hooks.example:80/", false),
    ("hooks.example:443", "HTTPS://hooks.example/", true),
    // No other scheme has one.
    ("hooks.example:443", "ws://hooks.example/", false),
    ("hooks.example", "ws://hooks.example/", true),
    ("example", "https://hooks.example/", false),
    ("[::1]:443", "https://[::1]/", true),
    ("[::1]", "https://[::1]:443/", true),
    ("::1", "https://[::1]:443/", true),
    ("[::1]", "https://[::1]:8443/", false),
    ("", "https:///sync", false),
    ("", "no url", false),
];

#[test]
fn hosts_match_as_in_the_peer() {
    for (host, url, expected) in HOSTS {
        assert_eq!(is_for(host, url), *expected, "{host} for {url}");
    }
}

#[test]
fn a_service_is_matched_by_its_name_and_port() {
    let service = |service: Value| webhook(json!({ "service": service, "path": "/sync" }));
    let plain = service(json!({ "name": "hooks", "namespace": "ns" }));
    let secure = service(json!({ "name": "hooks", "namespace": "ns", "protocol": "https" }));
    let other = service(json!({ "name": "hooks", "namespace": "ns", "port": 8080 }));
    for (webhook, host, expected) in [
        (&plain, "hooks.ns", Some(0)),
        (&plain, "hooks.ns:80", Some(0)),
        (&plain, "hooks", None),
        (&secure, "hooks.ns", Some(0)),
        // the peer calls port 80.
        (&secure, "hooks.ns:443", Some(0)),
        (&other, "hooks.ns:8080", Some(0)),
        (&other, "hooks.ns", None),
    ] {
        let configs = configs(json!([{ "host": host }]));

        assert_eq!(config_for(webhook, &configs), expected, "{host}");
    }
}

fn token(name: &str) -> Value {
    json!({ "secretRef": { "name": name, "namespace": "ns", "key": "token" } })
}

#[test]
fn the_first_config_for_the_host_counts() {
    let configs = configs(json!([
        { "host": "elsewhere", "authorization": token("a") },
        { "host": "hooks", "authorization": token("b") },
        { "host": "hooks", "authorization": token("c") },
    ]));
    let webhook = webhook(json!({ "url": "https://hooks/sync" }));

    let demand = Demand::of("spec.hooks.sync.webhook", &webhook, &configs).unwrap();

    assert_eq!(demand.field, "spec.endpointConfigs[1]");
    assert_eq!(
        demand.sources(),
        BTreeSet::from([Source::secret("ns", "b")])
    );
}

#[test]
fn the_security_of_a_webhook_is_used_alone() {
    let configs = configs(json!([{ "host": "hooks", "caBundle": { "inline": "x" } }]));
    let webhook = webhook(json!({ "url": "https://hooks/sync", "authorization": token("own") }));

    let demand = Demand::of("spec.hooks.sync.webhook", &webhook, &configs).unwrap();

    assert_eq!(demand.field, "spec.hooks.sync.webhook");
    assert!(demand.security.ca_bundle.is_none());
}

#[test]
fn nothing_is_asked_for_without_a_match_or_a_place() {
    let configs =
        configs(json!([{ "host": "hooks", "authorization": token("b") }, { "host": "bare" }]));
    for value in [
        json!({ "url": "https://elsewhere/sync" }),
        json!({ "path": "/sync" }),
        json!({ "url": "http://bare/" }),
    ] {
        assert_eq!(Demand::of("f", &webhook(value), &configs), None);
    }
}

#[test]
fn every_object_that_is_named_is_a_source_once() {
    let webhook = webhook(json!({
        "url": "https://hooks/",
        "caBundle": { "configMapRef": { "name": "ca", "namespace": "ns" } },
        "clientTLS": { "secretRef": { "name": "pair", "namespace": "ns" } },
        "basicAuth": { "secretRef": { "name": "pair", "namespace": "ns" } },
    }));

    let sources = Demand::of("f", &webhook, &[]).unwrap().sources();

    let texts: Vec<_> = sources.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["Secret ns/pair", "ConfigMap ns/ca"]);
}
