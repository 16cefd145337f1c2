//! Rules against objects, as Metacontroller does it.

use serde_json::Value;

use super::*;

const CASES: &str = include_str!("../../../../tests/vectors/related.jsonl");
const WORLD: &str = include_str!("../../../../tests/vectors/related-world.jsonl");

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn lookup(api_version: &str, plural: &str) -> Option<Arc<Resource>> {
    let (group, kind, namespaced) = match (api_version, plural) {
        ("v1", "secrets") => ("", "Secret", true),
        ("v1", "configmaps") => ("", "ConfigMap", true),
        ("v1", "namespaces") => ("", "Namespace", false),
        ("v1", "nodes") => ("", "Node", false),
        ("rbac.authorization.k8s.io/v1", "clusterroles") => {
            ("rbac.authorization.k8s.io", "ClusterRole", false)
        }
        _ => return None,
    };
    Some(Arc::new(Resource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        namespaced,
        has_status: false,
    }))
}

fn object(mut object: Value) -> Arc<Object> {
    let metadata = &mut object["metadata"];
    metadata["uid"] = "u".into();
    metadata["resourceVersion"] = "1".into();
    Arc::new(Object::parse(object.to_string()).unwrap())
}

fn world() -> Vec<Arc<Object>> {
    lines(WORLD)
        .map(|mut line| object(line["object"].take()))
        .collect()
}

fn selects(world: &[Arc<Object>], selector: &Selector, namespace: &str) -> bool {
    let found = world
        .iter()
        .find(|it| it.kind() == "Namespace" && it.name() == namespace);
    found.is_some_and(|it| selector.matches(|key| it.label(key)))
}

/// The rules of a case, decoded as an answer is.
fn rules(rules: &Value) -> Vec<RelatedRule> {
    let answer = serde_json::json!({ "relatedResources": rules }).to_string();
    hook::decode_customize(answer.as_bytes(), hook::Mode::Strict)
        .unwrap()
        .related
}

fn compile_case(case: &Value, asked: &Value) -> Result<Vec<Rule>, Error> {
    let version = if case["hookVersion"] == "v1" {
        Version::V1
    } else {
        Version::V2
    };
    let namespace = case["parent"]["metadata"]["namespace"].as_str();
    compile(&rules(asked), version, namespace, &lookup)
}

fn is_of(object: &Object, rule: &Rule) -> bool {
    object.api_version() == rule.resource.api_version() && object.kind() == rule.resource.kind
}

/// Cases of `match` in which we do otherwise on purpose, and what we say; `None`: the rule is refused.
const OTHERWISE: [(&str, Option<bool>); 7] = [
    // The namespace of a rule for cluster-scoped objects has no meaning: what is listed starts syncs, too.
    ("r053", Some(true)),
    ("r105", Some(true)),
    ("r109", Some(true)),
    // A rule that is none is refused before anything is matched against it.
    ("r167", None),
    ("r168", None),
    ("r173", None),
    ("r174", None),
];

#[test]
fn every_recorded_object_starts_a_sync_or_does_not() {
    let world = world();
    let mut count = 0;
    for case in lines(CASES).filter(|case| case["op"] == "match") {
        count += 1;
        let id = case["id"].as_str().unwrap();
        let related = object(case["object"].clone());
        let matches = compile_case(&case, &Value::Array(vec![case["rule"].clone()]))
            .map(|rules| {
                is_of(&related, &rules[0])
                    && rules[0].matches(&related, &|selector, name| selects(&world, selector, name))
            })
            .ok();
        let recorded = case["matches"].as_bool();
        let otherwise = OTHERWISE.iter().find(|it| it.0 == id);
        let wanted = otherwise.map_or(recorded, |it| it.1);
        assert_eq!(matches, wanted, "{case:#}");
    }
    assert_eq!(count, 186);
}

#[test]
fn every_recorded_list_is_the_same_but_for_other_namespaces_in_a_v1_hook() {
    let world = world();
    for case in lines(CASES).filter(|case| case["op"] == "list") {
        let listed = compile_case(&case, &case["rules"]).map(|rules| {
            Related::new(rules.iter().map(|rule| {
                let picked = world.iter().filter(|it| is_of(it, rule)).filter(|it| {
                    rule.matches(it, &|selector, name| selects(&world, selector, name))
                });
                (Arc::clone(&rule.resource), picked.cloned().collect())
            }))
        });
        match (listed, case["error"].as_str()) {
            (Err(error), Some(recorded)) => {
                let text = error.to_string();
                let is_selector = matches!(error, Error::Selector { .. });
                assert!(
                    is_selector || text.starts_with(recorded),
                    "{text}: {case:#}"
                );
            }
            (Ok(related), None) => assert_eq!(keys(&related), expected(&case), "{case:#}"),
            (listed, _) => panic!("{listed:?}: {case:#}"),
        }
    }
}

/// Outer keys and uniform inner keys.
fn keys(related: &Related) -> Value {
    let group = |group: &Group| {
        let inner = group.objects.iter().map(|it| {
            let namespace = it.namespace().unwrap_or_default();
            Value::from(hook::keys::uniform_key(namespace, it.name()).into_owned())
        });
        (group.key.clone(), inner.collect())
    };
    Value::Object(related.groups().iter().map(group).collect())
}

/// What was recorded, without what a namespaced parent must not see in v1.
fn expected(case: &Value) -> Value {
    let mut related = case["related"].clone();
    let home = case["parent"]["metadata"]["namespace"].as_str();
    if let (Some(home), "v1") = (home, case["hookVersion"].as_str().unwrap()) {
        for keys in related.as_object_mut().unwrap().values_mut() {
            let keys = keys.as_array_mut().unwrap();
            keys.retain(|key| {
                let namespace = key.as_str().unwrap().split_once('/').map(|it| it.0);
                namespace.is_none_or(|it| it == home)
            });
        }
    }
    related
}

#[test]
fn more_rules_than_allowed_are_refused() {
    let rule = RelatedRule {
        api_version: "v1".to_owned(),
        resource: "secrets".to_owned(),
        ..RelatedRule::default()
    };
    let rules = vec![rule; MAX_RULES + 1];

    let refused = compile(&rules, Version::V2, None, &lookup);

    assert_eq!(refused, Err(Error::TooMany(MAX_RULES + 1)));
    assert_eq!(
        compile(&rules[1..], Version::V2, None, &lookup)
            .unwrap()
            .len(),
        1
    );
}
