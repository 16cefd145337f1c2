//! From a Team to its quota, its roles and their bindings.

use std::collections::BTreeMap;

use metashard_examples::{SyncRequest, SyncResponse};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What the author of a Team writes.
#[derive(Debug, Deserialize)]
pub(crate) struct Spec {
    /// The most that the team may use: resource names to quantities.
    #[serde(default)]
    quota: BTreeMap<String, String>,
    /// Names of users who may change what is in the namespace.
    #[serde(default)]
    editors: Vec<String>,
    /// Names of users who may look at it.
    #[serde(default)]
    viewers: Vec<String>,
}

/// What the Team says about itself.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Status {
    members: usize,
    /// What of the quota is used, as the cluster counts it.
    used: Value,
}

/// What a member may do.
#[derive(Debug, Clone, Copy)]
struct Grade {
    name: &'static str,
    verbs: &'static [&'static str],
}

const EDITOR: Grade = Grade {
    name: "editor",
    verbs: &[
        "get", "list", "watch", "create", "update", "patch", "delete",
    ],
};

const VIEWER: Grade = Grade {
    name: "viewer",
    verbs: &["get", "list", "watch"],
};

/// The sync hook.
pub(crate) fn sync(request: &SyncRequest<Spec>) -> SyncResponse<Status> {
    let name = &request.parent.metadata.name;
    let spec = &request.parent.spec;
    let used = request
        .child("ResourceQuota.v1", name)
        .map(|it| it["status"]["used"].clone())
        .filter(Value::is_object);
    let mut children = vec![quota(name, spec)];
    for (grade, members) in [(EDITOR, &spec.editors), (VIEWER, &spec.viewers)] {
        // A grade without members leaves no objects: what is not in the answer is deleted.
        if !members.is_empty() {
            children.push(role(name, grade));
            children.push(binding(name, grade, members));
        }
    }
    SyncResponse {
        status: Status {
            members: spec.editors.len() + spec.viewers.len(),
            used: used.unwrap_or_else(|| json!({})),
        },
        children,
    }
}

fn quota(name: &str, spec: &Spec) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": { "name": name },
        "spec": { "hard": spec.quota },
    })
}

fn role(team: &str, grade: Grade) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": { "name": format!("{team}-{}", grade.name) },
        "rules": [{
            "apiGroups": ["", "apps", "batch"],
            "resources": ["configmaps", "services", "pods", "deployments", "statefulsets", "jobs", "cronjobs"],
            "verbs": grade.verbs,
        }],
    })
}

fn binding(team: &str, grade: Grade, members: &[String]) -> Value {
    let subjects: Vec<Value> = members
        .iter()
        .map(
            |name| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }),
        )
        .collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": { "name": format!("{team}-{}", grade.name) },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": format!("{team}-{}", grade.name),
        },
        "subjects": subjects,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(spec: &Value, children: &Value) -> SyncResponse<Status> {
        let request = json!({
            "controller": { "metadata": { "name": "teams" }, "spec": {} },
            "parent": { "metadata": { "name": "blue" }, "spec": spec },
            "children": children,
        });
        sync(&serde_json::from_value(request).unwrap())
    }

    fn kinds(answer: &SyncResponse<Status>) -> Vec<&str> {
        answer
            .children
            .iter()
            .filter_map(|it| it["kind"].as_str())
            .collect()
    }

    #[test]
    fn only_grades_that_have_members_get_a_role() {
        let answer = ask(&json!({ "editors": ["ann"] }), &json!({}));

        assert_eq!(kinds(&answer), ["ResourceQuota", "Role", "RoleBinding"]);
        assert_eq!(answer.children[2]["subjects"][0]["name"], "ann");
    }

    #[test]
    fn viewers_change_nothing() {
        let answer = ask(&json!({ "viewers": ["bob"] }), &json!({}));

        assert_eq!(
            answer.children[1]["rules"][0]["verbs"],
            json!(["get", "list", "watch"])
        );
    }

    #[test]
    fn the_status_tells_what_of_the_quota_is_used() {
        let quota =
            json!({ "ResourceQuota.v1": { "blue": { "status": { "used": { "pods": "3" } } } } });

        let answer = ask(&json!({ "quota": { "pods": "10" } }), &quota);

        assert_eq!(answer.status.used, json!({ "pods": "3" }));
    }
}
