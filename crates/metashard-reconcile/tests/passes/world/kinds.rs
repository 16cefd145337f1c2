//! What the API server of the world serves.

use std::sync::Arc;

use metashard_api::resource::Resource;

pub(crate) const FOO: &str = "foos";
pub(crate) const CONFIG: &str = "configmaps";
pub(crate) const REVISION: &str = "controllerrevisions";

/// What the world's discovery knows.
pub(crate) fn resources() -> Vec<Arc<Resource>> {
    let of = |group: &str, version: &str, plural: &str, kind: &str, namespaced, has_status| {
        Arc::new(Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced,
            has_status,
        })
    };
    vec![
        of("ex.io", "v1", FOO, "Foo", true, true),
        of("ex.io", "v1", "bigs", "Big", false, true),
        of("ex.io", "v1", "plains", "Plain", true, false),
        of("", "v1", CONFIG, "ConfigMap", true, false),
        Arc::new(Resource::of_revisions()),
        of("", "v1", "secrets", "Secret", true, false),
        of("", "v1", "namespaces", "Namespace", false, true),
        of("apps", "v1", "deployments", "Deployment", true, true),
        of("apps", "v1beta1", "deployments", "Deployment", true, true),
        of(
            "rbac.authorization.k8s.io",
            "v1",
            "clusterroles",
            "ClusterRole",
            false,
            false,
        ),
    ]
}

pub(crate) fn lookup(api_version: &str, plural: &str) -> Option<Arc<Resource>> {
    resources()
        .into_iter()
        .find(|it| it.api_version() == api_version && it.plural == plural)
}
