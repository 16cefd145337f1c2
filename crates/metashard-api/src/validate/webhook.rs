//! What is wrong with a hook that is called.

use super::{Finding, security};
use crate::{
    duration,
    hook::{Mode, Version},
    v1alpha1::webhook::{Hook, ServiceReference, Webhook},
};

pub(super) fn check(field: &str, hook: &Hook, findings: &mut Vec<Finding>) {
    if Version::of(hook).is_none() {
        findings.push(Finding::invalid(
            format!("{field}.version"),
            "not a version of hooks",
            "use v1 or v2",
        ));
    } else if Mode::of(hook).is_none() {
        findings.push(Finding::invalid(
            format!("{field}.webhook.responseUnMarshallMode"),
            "not a mode",
            "use loose or strict",
        ));
    }
    if let Some(webhook) = &hook.webhook {
        let field = format!("{field}.webhook");
        place(&field, webhook, findings);
        timeout(&field, webhook, findings);
        etag(&field, webhook, findings);
        security::check(&field, &webhook.security, findings);
    }
}

fn place(field: &str, webhook: &Webhook, findings: &mut Vec<Finding>) {
    match (&webhook.url, &webhook.service, &webhook.path) {
        (Some(url), _, _) => {
            if !is_url(url) {
                findings.push(Finding::invalid(
                    format!("{field}.url"),
                    format!("{url:?} is no URL of a hook"),
                    "write http://host/path or https://host/path",
                ));
            }
        }
        (None, Some(service), Some(path)) => service_place(field, service, path, findings),
        (None, _, _) => findings.push(Finding::invalid(
            field,
            "invalid webhook config: must specify either a full 'url', or both 'service' and 'path'",
            "give one of them",
        )),
    }
}

fn service_place(field: &str, service: &ServiceReference, path: &str, findings: &mut Vec<Finding>) {
    if service.name.is_empty() || service.namespace.is_empty() {
        findings.push(Finding::invalid(
            format!("{field}.service"),
            "invalid webhook config: 'service' must specify both 'name' and 'namespace'",
            "give both",
        ));
    }
    if !service
        .port
        .is_none_or(|port| u16::try_from(port).is_ok_and(|port| port > 0))
    {
        findings.push(Finding::invalid(
            format!("{field}.service.port"),
            "not a port",
            "use 1 to 65535",
        ));
    }
    let protocol = service.protocol.as_deref().unwrap_or("http");
    if !protocol.eq_ignore_ascii_case("http") && !protocol.eq_ignore_ascii_case("https") {
        findings.push(Finding::invalid(
            format!("{field}.service.protocol"),
            format!("{protocol:?} is no protocol of hooks"),
            "use http or https",
        ));
    }
    if !path.is_empty() && !path.starts_with(['/', '?']) {
        findings.push(Finding::invalid(
            format!("{field}.path"),
            format!("{path:?} does not start with a slash"),
            "put a slash in front",
        ));
    }
}

fn timeout(field: &str, webhook: &Webhook, findings: &mut Vec<Finding>) {
    if let Some(text) = &webhook.timeout
        && let Err(error) = duration::parse_nanos(text)
    {
        findings.push(Finding::invalid(
            format!("{field}.timeout"),
            error.to_string(),
            "write a number with a unit, as 10s or 1m30s",
        ));
    }
}

fn etag(field: &str, webhook: &Webhook, findings: &mut Vec<Finding>) {
    let Some(etag) = webhook.etag.as_ref().filter(|etag| etag.enabled) else {
        return;
    };
    let expires = etag.cache_timeout_seconds.is_some_and(|it| it > 0);
    if etag.cache_cleanup_seconds.is_some() && !expires {
        findings.push(Finding::no_effect(
            format!("{field}.etag.cacheCleanupSeconds"),
            "answers are kept without end, so there is nothing to clean up",
            "give cacheTimeoutSeconds, or remove it",
        ));
    }
}

/// Only whether it can be a URL; the caller of hooks reads it.
fn is_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
        && !host.is_empty()
        && !text.contains(char::is_whitespace)
}
