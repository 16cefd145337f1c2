//! A resource of the API server, as discovery describes it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::ControllerKind;

/// One served resource: what a URL, a key of a hook's `ObjectMap` and a scope check need.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// Lower-case plural, as in URLs.
    pub plural: String,
    /// Kind of its objects.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether it has a `status` subresource.
    pub has_status: bool,
}

impl Resource {
    /// Whether objects of this apiVersion and kind are of this resource's kind, in any version.
    pub fn is_of(&self, api_version: &str, kind: &str) -> bool {
        self.kind == kind && self.group == group_of(api_version)
    }

    /// The resource of the controller objects of `kind`.
    pub fn of_controllers(kind: ControllerKind) -> Self {
        let plural = match kind {
            ControllerKind::Composite => "compositecontrollers",
            ControllerKind::Decorator => "decoratorcontrollers",
        };
        Self {
            group: "metacontroller.k8s.io".to_owned(),
            version: "v1alpha1".to_owned(),
            plural: plural.to_owned(),
            kind: kind.as_str().to_owned(),
            namespaced: false,
            has_status: true,
        }
    }

    /// The resource of ControllerRevisions.
    pub fn of_revisions() -> Self {
        Self {
            group: "metacontroller.k8s.io".to_owned(),
            version: "v1alpha1".to_owned(),
            plural: "controllerrevisions".to_owned(),
            kind: "ControllerRevision".to_owned(),
            namespaced: true,
            has_status: true,
        }
    }

    /// The resource of the ShardMap.
    pub fn of_shard_maps() -> Self {
        Self::of_fleet("shardmaps", "ShardMap")
    }

    /// The resource of the Placement.
    pub fn of_placements() -> Self {
        Self::of_fleet("placements", "Placement")
    }

    fn of_fleet(plural: &str, kind: &str) -> Self {
        Self {
            group: "metashard.io".to_owned(),
            version: "v1beta1".to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced: true,
            has_status: true,
        }
    }

    /// `group/version`, or `version` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Path of the collection: of `namespace`, or of all namespaces (and of cluster-scoped objects) with `None`.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() {
            "/api"
        } else {
            "/apis"
        };
        let api_version = self.api_version();
        let plural = &self.plural;
        match namespace {
            Some(namespace) if self.namespaced => {
                format!("{root}/{api_version}/namespaces/{namespace}/{plural}")
            }
            _ => format!("{root}/{api_version}/{plural}"),
        }
    }

    /// Path of one object.
    pub fn object_path(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{name}", self.collection_path(namespace))
    }
}

/// `group/version/plural`, the form used in logs, metrics and `message::LastWritten`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.plural)
    }
}

/// The group of an apiVersion; empty for the core group.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
