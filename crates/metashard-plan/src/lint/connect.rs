//! Whether the hooks of controllers can be reached, and what certificates they are reached with.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use metashard_api::{
    endpoint::{Demand, Source},
    id::ControllerKind,
    v1alpha1::webhook::{EndpointConfig, Webhook},
    validate::Finding,
};
use metashard_hook::Certificate;
use metashard_reconcile::sync::HookKind;
use metashard_runtime::clock::Clock;
use serde_json::Value;

use super::{Problem, Report, Severity};
use crate::{
    document::{Document, name_of},
    hook::{self, Holders, Hook},
};

/// A certificate that ends within this time is told of.
const SOON: Duration = Duration::from_hours(30 * 24);

/// What errors of handshakes say, and what to do then.
const FIXES: [(&str, &str); 6] = [
    (
        "BadSignature",
        "put the certificate of its authority into caBundle",
    ),
    (
        "UnknownIssuer",
        "put the certificate of its authority into caBundle",
    ),
    (
        "not valid for name",
        "name the hook as its certificate does, or give it one for this name",
    ),
    ("certificate expired", "renew the certificate of the hook"),
    (
        "CertificateRequired",
        "give a client certificate by clientTLS",
    ),
    ("InvalidContentType", "does it speak plain http?"),
];

/// What to do about all others.
const FIX: &str =
    "correct the URL, the hook or its certificate; or is it reached from within the cluster only?";

/// The objects that hold what the hooks of controllers are called with.
pub fn sources(documents: &[Document]) -> BTreeSet<Source> {
    let hooks = documents.iter().filter_map(|it| hooks_of(&it.value));
    hooks.flat_map(|hook| hook.sources()).collect()
}

/// Connects to the hooks of each controller, and adds those that cannot be reached, and certificates that end soon.
pub async fn connect(documents: &[Document], holders: &Holders, report: &mut Report) {
    let wall = Clock::system().wall();
    for document in documents {
        // What has no place to call is told already.
        let Some(hook) = hooks_of(&document.value) else {
            continue;
        };
        let mut add = |severity, finding| {
            report.problems.push(Problem {
                severity,
                place: document.place.to_string(),
                object: name_of(&document.value),
                finding,
            });
        };
        match hook.secure(holders) {
            Ok(()) => {}
            Err(hook::Error::Unsecured { finding, .. }) => {
                add(Severity::Error, finding);
                continue;
            }
            Err(_) => continue,
        }
        for certificate in hook.certificates() {
            if let Some(found) = ending(&certificate, wall) {
                add(Severity::Warning, found);
            }
        }
        for (kind, probed) in hook.probe().await {
            let field = format!("spec.hooks.{}.webhook", kind.as_str());
            match probed {
                Err(text) => {
                    let fix = FIXES.iter().find(|(part, _)| text.contains(part));
                    let fix = fix.map_or(FIX, |(_, fix)| fix);
                    add(Severity::Error, Finding::invalid(field, text, fix));
                }
                Ok(Some(end)) => {
                    if let Some(text) = soon(end, wall) {
                        let text = format!("the certificate of the hook {text}");
                        add(
                            Severity::Warning,
                            Finding::no_effect(field, text, "renew it"),
                        );
                    }
                }
                Ok(None) => {}
            }
        }
    }
}

/// The hooks of a controller, as far as they have a place; `None` if it is no controller, or a URL cannot be called.
fn hooks_of(controller: &Value) -> Option<Hook> {
    let kind = match controller["kind"].as_str()? {
        "CompositeController" => ControllerKind::Composite,
        "DecoratorController" => ControllerKind::Decorator,
        _ => return None,
    };
    let spec = &controller["spec"];
    let configs: Vec<EndpointConfig> =
        serde_json::from_value(spec["endpointConfigs"].clone()).unwrap_or_default();
    let hooks = [HookKind::Sync, HookKind::Finalize, HookKind::Customize].map(|kind| {
        let name = kind.as_str();
        let webhook = spec["hooks"][name]["webhook"].clone();
        let webhook = serde_json::from_value::<Webhook>(webhook).ok();
        let called = webhook.map(|webhook| {
            let field = format!("spec.hooks.{name}.webhook");
            let demand = Demand::of(&field, &webhook, &configs);
            (webhook, demand)
        });
        (kind, called)
    });
    let name = controller["metadata"]["name"].as_str().unwrap_or_default();
    Hook::at(kind, name, hooks, None).ok()
}

fn ending(certificate: &Certificate, wall: SystemTime) -> Option<Finding> {
    let when = soon(certificate.not_after, wall)?;
    let (role, place) = (certificate.role.title(), &certificate.place);
    let text = format!("the {role} in {place} {when}");
    Some(Finding::no_effect(&certificate.field, text, "replace it"))
}

/// When something ends that does soon, or has.
fn soon(end: SystemTime, wall: SystemTime) -> Option<String> {
    match end.duration_since(wall) {
        Err(_) => Some("has ended".to_owned()),
        Ok(left) if left < SOON => Some(format!("ends in {} days", left.as_secs() / 86_400)),
        Ok(_) => None,
    }
}
