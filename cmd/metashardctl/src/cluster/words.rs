//! The words by which people call resources, as kubectl takes them.

use std::sync::Arc;

use metashard_api::resource::Resource;
use metashard_plan::suggest;

/// Short names of the API server's own kinds.
const SHORT: [(&str, &str); 18] = [
    ("cj", "cronjobs"),
    ("cm", "configmaps"),
    ("crd", "customresourcedefinitions"),
    ("deploy", "deployments"),
    ("ds", "daemonsets"),
    ("ep", "endpoints"),
    ("hpa", "horizontalpodautoscalers"),
    ("ing", "ingresses"),
    ("netpol", "networkpolicies"),
    ("no", "nodes"),
    ("ns", "namespaces"),
    ("pdb", "poddisruptionbudgets"),
    ("po", "pods"),
    ("pv", "persistentvolumes"),
    ("pvc", "persistentvolumeclaims"),
    ("rs", "replicasets"),
    ("sts", "statefulsets"),
    ("svc", "services"),
];

/// The resource that a word means: a plural, a kind, either with its group or its version and group, or a short name.
pub(super) fn find(word: &str, served: &[Arc<Resource>]) -> Option<Arc<Resource>> {
    let lower = word.to_lowercase();
    let is_it = |it: &&Arc<Resource>| {
        let rest = [it.plural.as_str(), &it.kind.to_lowercase()]
            .into_iter()
            .find_map(|name| lower.strip_prefix(name));
        rest.is_some_and(|rest| is_place(rest, it))
    };
    let short = |short: &str| SHORT.iter().find(|it| it.0 == short).map(|it| it.1);
    let found = served.iter().filter(is_it).min_by_key(|it| rank(it));
    match (found, short(&lower)) {
        (Some(found), _) => Some(Arc::clone(found)),
        (None, Some(plural)) => find(plural, served),
        (None, None) => None,
    }
}

/// Whether what follows a name is nothing, or its group, or its version and group.
fn is_place(rest: &str, it: &Resource) -> bool {
    let Some(place) = rest.strip_prefix('.') else {
        return rest.is_empty();
    };
    place == it.group || place == format!("{}.{}", it.version, it.group)
}

/// The lower, the sooner it is meant: the core group first, and of each group the newest stable version.
fn rank(it: &Resource) -> (bool, &str, u8, std::cmp::Reverse<u32>) {
    let rest = it.version.strip_prefix('v').unwrap_or_default();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let stage = match rest.strip_prefix(&*digits).unwrap_or_default() {
        "" => 0,
        rest if rest.starts_with("beta") => 1,
        _ => 2,
    };
    let number = digits.parse().unwrap_or(0);
    (
        !it.group.is_empty(),
        &it.group,
        stage,
        std::cmp::Reverse(number),
    )
}

/// That nothing is called so, with the word that was probably meant.
pub(super) fn unknown(word: &str, served: &[Arc<Resource>]) -> anyhow::Error {
    let plurals = served.iter().map(|it| it.plural.as_str());
    let hint = suggest::hint(&word.to_lowercase(), plurals);
    anyhow::anyhow!("the API server has no resource {word:?}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Vec<Arc<Resource>> {
        [
            ("", "v1", "configmaps", "ConfigMap"),
            ("", "v1", "events", "Event"),
            ("apps", "v1", "deployments", "Deployment"),
            ("events.k8s.io", "v1", "events", "Event"),
            ("ex.io", "v1beta1", "foos", "Foo"),
            ("ex.io", "v1", "foos", "Foo"),
            ("ex.io", "v2alpha1", "foos", "Foo"),
        ]
        .map(|(group, version, plural, kind)| {
            Arc::new(Resource {
                group: group.to_owned(),
                version: version.to_owned(),
                plural: plural.to_owned(),
                kind: kind.to_owned(),
                namespaced: true,
                has_status: true,
            })
        })
        .into()
    }

    #[test]
    fn a_resource_is_called_as_kubectl_calls_it() {
        let found = |word| {
            find(word, &served())
                .map(|it| it.to_string())
                .unwrap_or_default()
        };

        for word in ["configmaps", "configmap", "ConfigMap", "cm"] {
            assert_eq!(found(word), "v1/configmaps", "{word}");
        }
        assert_eq!(found("events"), "v1/events");
        assert_eq!(found("events.events.k8s.io"), "events.k8s.io/v1/events");
        assert_eq!(found("deploy"), "apps/v1/deployments");
        assert_eq!(found("deployment.v1.apps"), "apps/v1/deployments");
        assert_eq!(found("foo"), "ex.io/v1/foos");
        assert_eq!(found("foo.ex.io"), "ex.io/v1/foos");
        assert_eq!(found("foos.v1beta1.ex.io"), "ex.io/v1beta1/foos");
        assert_eq!(found("fo") + &found("foos.other.io"), "");
    }

    #[test]
    fn a_typo_is_answered_with_the_right_word() {
        let told = unknown("configmpa", &served()).to_string();

        assert!(told.ends_with("did you mean configmaps?"), "{told}");
    }
}
