//! Where hooks are: what cannot be reached, or is not safe.

use metashard_api::v1alpha1::webhook::Webhook;
use metashard_hook::url;
use serde_json::Value;

use super::{Found, warning};

/// Hooks of controllers.
const HOOKS: [&str; 3] = ["sync", "finalize", "customize"];

/// What is odd about the places of a controller's hooks.
pub(super) fn problems(controller: &Value) -> Vec<Found> {
    let mut found = Vec::new();
    for hook in HOOKS {
        let value = &controller["spec"]["hooks"][hook]["webhook"];
        let Ok(webhook) = serde_json::from_value::<Webhook>(value.clone()) else {
            continue;
        };
        let field = format!("spec.hooks.{hook}.webhook");
        let Ok(url) = url::resolve(&webhook) else {
            continue;
        };
        let host = url.host().unwrap_or_default();
        if matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
            found.push(warning(
                &field,
                format!("{host} is the Pod of the worker, whichever that is"),
                "name a Service, unless the hook runs as a sidecar of every worker",
            ));
        }
        let is_secret =
            webhook.security.authorization.is_some() || webhook.security.basic_auth.is_some();
        if url.scheme_str() == Some("http") && is_secret {
            found.push(warning(
                &field,
                "credentials are sent over http, readable on the way",
                "use https",
            ));
        }
        if url.scheme_str() == Some("http") && webhook.security.client_tls.is_some() {
            found.push(warning(
                &field,
                "a client certificate has no effect over http",
                "use https",
            ));
        }
    }
    found
}
