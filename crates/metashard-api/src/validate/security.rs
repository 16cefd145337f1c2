//! What is wrong with the certificates and credentials that a hook asks for, before the objects that hold them are read.

use super::Finding;
use crate::{
    endpoint::{SourceKind, config_for},
    v1alpha1::webhook::{
        Authorization, BasicAuth, CaBundle, CaBundleRef, ClientTls, EndpointConfig,
        EndpointSecurity, Webhook,
    },
};

/// Longest name of an object, and of a namespace.
const MAX_NAME: usize = 253;
const MAX_NAMESPACE: usize = 63;

/// Checks `security`, which is given at `field`.
pub(super) fn check(field: &str, security: &EndpointSecurity, findings: &mut Vec<Finding>) {
    let EndpointSecurity {
        ca_bundle,
        client_tls,
        authorization,
        basic_auth,
    } = security;
    if let Some(bundle) = ca_bundle {
        check_bundle(&format!("{field}.caBundle"), bundle, findings);
    }
    if let Some(ClientTls { secret_ref, .. }) = client_tls {
        reference(
            &format!("{field}.clientTLS.secretRef"),
            SourceKind::Secret,
            (&secret_ref.namespace, &secret_ref.name),
            findings,
        );
    }
    if let Some(authorization) = authorization {
        let field = format!("{field}.authorization");
        if basic_auth.is_some() {
            findings.push(Finding::invalid(
                &field,
                "authorization and basicAuth are mutually exclusive",
                "keep one of them",
            ));
        }
        check_authorization(&field, authorization, findings);
    }
    if let Some(BasicAuth { secret_ref, .. }) = basic_auth {
        reference(
            &format!("{field}.basicAuth.secretRef"),
            SourceKind::Secret,
            (&secret_ref.namespace, &secret_ref.name),
            findings,
        );
    }
}

/// Checks the entries of `spec.endpointConfigs` that a hook uses; Metacontroller does not look at the others either.
/// `hooks` are all that are called.
pub(super) fn configs(configs: &[EndpointConfig], hooks: &[&Webhook], findings: &mut Vec<Finding>) {
    let used: Vec<usize> = hooks
        .iter()
        .filter(|webhook| webhook.security.is_empty())
        .filter_map(|webhook| config_for(webhook, configs))
        .collect();
    for (index, config) in configs.iter().enumerate() {
        let field = format!("spec.endpointConfigs[{index}]");
        if used.contains(&index) {
            check(&field, &config.security, findings);
        } else {
            findings.push(Finding::no_effect(
                field,
                format!("no hook uses the entry for host {:?}", config.host),
                "write host as in the hook's URL, or remove the entry",
            ));
        }
    }
}

fn check_authorization(field: &str, authorization: &Authorization, findings: &mut Vec<Finding>) {
    let type_ = authorization.type_.as_deref().unwrap_or_default().trim();
    if type_.eq_ignore_ascii_case("basic") {
        findings.push(Finding::invalid(
            format!("{field}.type"),
            "Basic needs a name and a password",
            "use basicAuth",
        ));
    }
    let secret = &authorization.secret_ref;
    let field = format!("{field}.secretRef");
    reference(
        &field,
        SourceKind::Secret,
        (&secret.namespace, &secret.name),
        findings,
    );
    if secret.key.is_empty() {
        findings.push(Finding::invalid(
            format!("{field}.key"),
            "it is empty",
            "name the key that holds the token",
        ));
    }
}

fn check_bundle(field: &str, bundle: &CaBundle, findings: &mut Vec<Finding>) {
    let CaBundle {
        inline,
        secret_ref,
        config_map_ref,
    } = bundle;
    let given = [
        inline.as_ref().is_some_and(|text| !text.is_empty()),
        secret_ref.is_some(),
        config_map_ref.is_some(),
    ];
    if given.into_iter().filter(|given| *given).count() != 1 {
        findings.push(Finding::invalid(
            field,
            "not exactly one source of certificates",
            "give one of inline, secretRef and configMapRef",
        ));
        return;
    }
    let references = [
        ("secretRef", SourceKind::Secret, secret_ref),
        ("configMapRef", SourceKind::ConfigMap, config_map_ref),
    ];
    for (name, kind, given) in references {
        if let Some(CaBundleRef {
            name: object,
            namespace,
            ..
        }) = given
        {
            reference(
                &format!("{field}.{name}"),
                kind,
                (namespace, object),
                findings,
            );
        }
    }
}

/// The names become part of a URL at the API server, so what cannot be a name is refused here.
fn reference(
    field: &str,
    kind: SourceKind,
    (namespace, name): (&str, &str),
    findings: &mut Vec<Finding>,
) {
    let kind = kind.as_str();
    if !is_name(name, MAX_NAME, true) {
        findings.push(Finding::invalid(
            format!("{field}.name"),
            format!("{name:?} is no name of a {kind}"),
            format!("name a {kind}"),
        ));
    }
    if !is_name(namespace, MAX_NAMESPACE, false) {
        findings.push(Finding::invalid(
            format!("{field}.namespace"),
            format!("{namespace:?} is no name of a namespace"),
            format!("name the namespace of the {kind}"),
        ));
    }
}

/// Whether Kubernetes takes `name` for a DNS label, or for several with dots between them.
fn is_name(name: &str, longest: usize, dots: bool) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    };
    name.len() <= longest
        && if dots {
            name.split('.').all(is_label)
        } else {
            is_label(name)
        }
}
