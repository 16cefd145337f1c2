//! The resources that there are, from the kinds that every API server has and from CustomResourceDefinitions.

use std::{collections::BTreeMap, sync::Arc};

use metashard_api::{crd, resource::Resource};
use serde_json::Value;

use crate::{builtin, suggest};

/// Resources by apiVersion and plural.
#[derive(Debug, Clone)]
pub struct Resources {
    known: BTreeMap<(String, String), Arc<Resource>>,
    /// The CRDs that were given.
    crds: Vec<Value>,
}

impl Default for Resources {
    /// Those of every API server, and our own.
    fn default() -> Self {
        let mut resources = Self::empty();
        for resource in builtin::resources() {
            resources.add(resource);
        }
        for crd in crd::all() {
            for resource in of_crd(&serde_json::to_value(crd).unwrap_or_default()) {
                resources.add(resource);
            }
        }
        resources
    }
}

impl Resources {
    /// None: for whoever adds what a live API server serves.
    pub fn empty() -> Self {
        Self {
            known: BTreeMap::new(),
            crds: Vec::new(),
        }
    }

    /// Adds one.
    pub fn add(&mut self, resource: Resource) {
        let key = (resource.api_version(), resource.plural.clone());
        self.known.insert(key, Arc::new(resource));
    }

    /// Adds what a CustomResourceDefinition serves.
    pub fn add_crd(&mut self, crd: Value) {
        for resource in of_crd(&crd) {
            self.add(resource);
        }
        self.crds.push(crd);
    }

    /// The resource of this apiVersion and plural.
    pub fn lookup(&self, api_version: &str, plural: &str) -> Option<Arc<Resource>> {
        let key = (api_version.to_owned(), plural.to_owned());
        self.known.get(&key).cloned()
    }

    /// The resource of this apiVersion and kind.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        self.known
            .values()
            .find(|it| it.kind == kind && it.api_version() == api_version)
            .cloned()
    }

    /// The CRD of a resource, among those that were given.
    pub fn crd(&self, group: &str, plural: &str) -> Option<&Value> {
        self.crds
            .iter()
            .find(|crd| crd["spec"]["group"] == group && crd["spec"]["names"]["plural"] == plural)
    }

    /// What was probably meant by an apiVersion and plural that are not known.
    pub fn nearest(&self, api_version: &str, plural: &str) -> Option<String> {
        let same = |it: &&Arc<Resource>| it.plural == plural;
        let of_name: Vec<_> = self.known.values().filter(same).collect();
        if let Some(version) = suggest::nearest(
            api_version,
            of_name
                .iter()
                .map(|it| it.api_version())
                .collect::<Vec<_>>()
                .iter()
                .map(String::as_str),
        ) {
            return Some(format!("{plural} in {version}"));
        }
        if let Some(found) = of_name.first() {
            return Some(format!("{plural} in {}", found.api_version()));
        }
        let of_version = self.known.keys().filter(|key| key.0 == api_version);
        suggest::nearest(plural, of_version.map(|key| key.1.as_str()))
            .map(|plural| format!("{plural} in {api_version}"))
    }
}

/// The resources of each served version.
fn of_crd(crd: &Value) -> Vec<Resource> {
    let text = |pointer: &str| {
        crd.pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let versions = crd["spec"]["versions"].as_array();
    versions
        .into_iter()
        .flatten()
        .filter(|version| version["served"] != false)
        .map(|version| Resource {
            group: text("/spec/group"),
            version: version["name"].as_str().unwrap_or_default().to_owned(),
            plural: text("/spec/names/plural"),
            kind: text("/spec/names/kind"),
            namespaced: crd["spec"]["scope"] == "Namespaced",
            has_status: !version["subresources"]["status"].is_null(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_crd_adds_each_served_version_with_its_status() {
        let mut resources = Resources::default();
        resources.add_crd(json!({"spec": {
            "group": "ex.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [
                {"name": "v1", "served": true, "subresources": {"status": {}}},
                {"name": "v2", "served": true},
                {"name": "v0", "served": false},
            ],
        }}));

        assert!(resources.lookup("ex.io/v1", "foos").unwrap().has_status);
        assert!(!resources.of_kind("ex.io/v2", "Foo").unwrap().has_status);
        assert!(resources.lookup("ex.io/v0", "foos").is_none());
    }

    #[test]
    fn a_wrong_version_or_plural_finds_what_was_meant() {
        let resources = Resources::default();

        let meant = |version, plural| resources.nearest(version, plural).unwrap_or_default();

        assert_eq!(meant("v1", "deployments"), "deployments in apps/v1");
        assert_eq!(meant("v1", "configmap"), "configmaps in v1");
        assert_eq!(meant("v1", "frobnicators"), "");
    }
}
