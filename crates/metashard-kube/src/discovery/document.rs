//! Aggregated discovery (`apidiscovery.k8s.io/v2`): one document for all groups.

use metashard_api::resource::Resource;
use serde::Deserialize;

/// Asks for the aggregated form, which every supported API server has.
pub(super) const ACCEPT: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("it is of kind {0:?}, not APIGroupDiscoveryList")]
    Kind(String),
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    /// Absent where the group's server has never answered.
    #[serde(default)]
    resources: Vec<Served>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Served {
    resource: String,
    #[serde(default)]
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    subresources: Vec<Subresource>,
}

#[derive(Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct Subresource {
    subresource: String,
}

/// The resources that a document names.
pub(super) fn parse(body: &[u8]) -> Result<Vec<Resource>, Error> {
    let document: Document = serde_json::from_slice(body)?;
    if document.kind != "APIGroupDiscoveryList" {
        return Err(Error::Kind(document.kind));
    }
    let mut resources = Vec::new();
    for group in &document.items {
        for version in &group.versions {
            resources.extend(version.resources.iter().filter_map(|served| {
                let kind = served.response_kind.as_ref()?.kind.clone();
                Some(Resource {
                    group: group.metadata.name.clone(),
                    version: version.version.clone(),
                    plural: served.resource.clone(),
                    kind,
                    namespaced: served.scope == "Namespaced",
                    has_status: served
                        .subresources
                        .iter()
                        .any(|sub| sub.subresource == "status"),
                })
            }));
        }
    }
    Ok(resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_gives_scope_kind_and_status_of_each_resource() {
        let body = br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
            {"metadata":{"name":"apps","creationTimestamp":null},"versions":[{"version":"v1","freshness":"Current","resources":[
                {"resource":"deployments","responseKind":{"group":"","version":"","kind":"Deployment"},"scope":"Namespaced","singularResource":"deployment","verbs":["list"],
                 "subresources":[{"subresource":"scale"},{"subresource":"status"}]}]}]}]}"#;

        let resources = parse(body).unwrap();

        assert_eq!(resources[0].to_string(), "apps/v1/deployments");
        assert_eq!(resources[0].kind, "Deployment");
        assert!(resources[0].namespaced && resources[0].has_status);
    }

    #[test]
    fn a_group_whose_server_never_answered_does_not_hide_the_others() {
        let body = br#"{"kind":"APIGroupDiscoveryList","items":[
            {"metadata":{"name":"broken.example.com"},"versions":[{"version":"v1","freshness":"Stale"}]},
            {"metadata":{"name":"rbac.authorization.k8s.io"},"versions":[{"version":"v1","resources":[
                {"resource":"clusterroles","responseKind":{"kind":"ClusterRole"},"scope":"Cluster"}]}]}]}"#;

        let resources = parse(body).unwrap();

        assert_eq!(resources.len(), 1);
        assert!(!resources[0].namespaced);
    }

    #[test]
    fn another_document_is_refused() {
        let error = parse(br#"{"kind":"APIGroupList","groups":[]}"#).unwrap_err();
        assert!(error.to_string().contains("APIGroupList"));
    }
}
