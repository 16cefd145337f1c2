//! Who is on stage: two tenants, their controllers, and the parents of each.

use anyhow::Context;
use serde_json::{Value, json};

use crate::repository;

/// Label of a parent, naming the controller that serves it.
pub(super) const LABEL: &str = "demo.metashard.io/controller";

/// Parents of each controller.
pub(super) const PARENTS: usize = 5;

/// Names of the tenants; each has a namespace and hooks of its own.
pub(super) const TENANTS: [&str; 2] = ["acme", "globex"];

/// One of the examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Example {
    Website,
    Team,
}

/// One controller of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cast {
    /// Name of the controller object.
    pub(super) controller: String,
    pub(super) tenant: &'static str,
    pub(super) example: Example,
}

impl Example {
    pub(super) const ALL: [Self; 2] = [Self::Website, Self::Team];

    /// Folder below `examples`.
    fn folder(self) -> &'static str {
        match self {
            Self::Website => "website",
            Self::Team => "team",
        }
    }

    /// Name of the hook's program.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Website => "website-hook",
            Self::Team => "team-hook",
        }
    }

    /// Kind and plural of the parents.
    pub(super) fn kind(self) -> (&'static str, &'static str) {
        match self {
            Self::Website => ("Website", "websites"),
            Self::Team => ("Team", "teams"),
        }
    }

    /// Children of each parent of the demo.
    pub(super) fn children(self) -> usize {
        match self {
            // A ConfigMap and a Deployment.
            Self::Website => 2,
            // A quota, two roles and two bindings.
            Self::Team => 5,
        }
    }

    /// The text of one of its manifests.
    pub(super) fn manifest(self, name: &str) -> anyhow::Result<String> {
        let path = repository::root()
            .join("examples")
            .join(self.folder())
            .join("manifests")
            .join(name);
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    }

    /// A merge patch of a parent's `spec` that makes edition `number` of it.
    pub(super) fn edit(self, number: usize) -> Value {
        match self {
            Self::Website => json!({ "spec": { "title": format!("Edition {number}") } }),
            Self::Team => json!({ "spec": { "quota": { "pods": (10 + number).to_string() } } }),
        }
    }
}

/// All controllers: for each tenant two of websites and one of teams.
pub(super) fn cast() -> Vec<Cast> {
    let roles = [
        ("websites", Example::Website),
        ("intranet", Example::Website),
        ("teams", Example::Team),
    ];
    TENANTS
        .iter()
        .flat_map(|tenant| {
            roles.map(|(role, example)| Cast {
                controller: format!("{tenant}-{role}"),
                tenant,
                example,
            })
        })
        .collect()
}

impl Cast {
    /// Namespace of the tenant.
    pub(super) fn namespace(&self) -> String {
        namespace(self.tenant)
    }

    /// The example's controller, restricted to the parents that carry its label, calling the hook at `url`.
    pub(super) fn manifest(&self, url: &str) -> anyhow::Result<Value> {
        let text = self.example.manifest("controller.yaml")?;
        let mut object: Value = serde_saphyr::from_str(&text).context("parse controller.yaml")?;
        object["metadata"]["name"] = json!(self.controller);
        object["spec"]["parentResource"]["labelSelector"] =
            json!({ "matchLabels": { LABEL: self.controller } });
        object["spec"]["hooks"]["sync"]["webhook"]["url"] = json!(url);
        Ok(object)
    }

    /// Names of its parents.
    pub(super) fn parents(&self) -> impl Iterator<Item = String> {
        (1..=PARENTS).map(|number| format!("{}-{number}", self.controller))
    }

    /// The parent named `name`.
    pub(super) fn parent(&self, name: &str) -> Value {
        let spec = match self.example {
            Example::Website => json!({
                "title": "Edition 0",
                "replicas": 2,
                "pages": [
                    { "name": "home", "text": format!("Welcome to {name}.") },
                    { "name": "about", "text": "Made from a Website object." },
                ],
            }),
            Example::Team => json!({
                "quota": { "pods": "10", "requests.cpu": "4" },
                "editors": ["ann", "bob"],
                "viewers": ["carla"],
            }),
        };
        json!({
            "apiVersion": "examples.metashard.io/v1",
            "kind": self.example.kind().0,
            "metadata": {
                "name": name,
                "namespace": self.namespace(),
                "labels": { LABEL: self.controller },
            },
            "spec": spec,
        })
    }
}

/// Namespace of a tenant.
pub(super) fn namespace(tenant: &str) -> String {
    format!("demo-{tenant}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_controller_serves_only_the_parents_with_its_label() {
        for it in cast() {
            let controller = it.manifest("http://127.0.0.1:1/sync").unwrap();
            let parent = it.parent("x");

            let selected = &controller["spec"]["parentResource"]["labelSelector"]["matchLabels"];
            assert_eq!(selected, &parent["metadata"]["labels"]);
            assert_eq!(
                controller["spec"]["parentResource"]["resource"],
                it.example.kind().1
            );
        }
    }
}
