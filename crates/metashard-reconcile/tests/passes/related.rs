//! The customize hook, and the objects that hooks see beside parent and children.

use std::sync::Arc;

use metashard_api::{hook::RelatedRule, selector::Selector};
use metashard_reconcile::{
    related::{self, Related},
    requeue::Requeue,
    sync::{HookKind, HookResult, Unrelated, Verdict},
};
use serde_json::{Value, json};

use crate::world::{Bench, CONFIG, FOO, answer, config, hook, lookup, resource_of, spec, told};

impl Bench {
    /// What the caches have of the objects that these rules ask for.
    pub(crate) fn relate(&self, rules: &[RelatedRule]) -> Result<Related, Unrelated> {
        if self.is_filling {
            return Err(Unrelated::NotYet);
        }
        let parent = self.world.object(self.parent.0, self.parent.1).unwrap();
        let version = self.controller.customize.as_ref().unwrap().version;
        let rules = related::compile(rules, version, parent.namespace(), &lookup);
        let rules = rules.map_err(Unrelated::Refused)?;
        let selects = |selector: &Selector, namespace: &str| {
            let found = self.world.object("namespaces", namespace);
            found.is_some_and(|it| selector.matches(|key| it.label(key)))
        };
        Ok(Related::new(rules.iter().map(|rule| {
            let found = self.world.of(&rule.resource.plural).into_iter();
            let picked = found.filter(|it| rule.matches(it, &selects));
            (Arc::clone(&rule.resource), picked.collect())
        })))
    }
}

/// A bench whose customize hook, of this version, answers with these rules.
fn asking(version: &str, rules: &Value) -> Bench {
    let mut spec = spec();
    spec["childResources"] = json!([]);
    spec["hooks"] = json!({ "sync": hook(version), "customize": hook(version) });
    let mut bench = Bench::new(&spec);
    ask(&mut bench, rules);
    bench
}

fn ask(bench: &mut Bench, rules: &Value) {
    bench.customize = answer(&json!({ "relatedResources": rules }));
}

fn secret(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "labels": labels,
        },
    })
}

fn with_secrets(mut bench: Bench) -> Bench {
    for (namespace, name, app) in [("ns1", "a", "x"), ("ns1", "b", "y"), ("ns2", "a", "x")] {
        bench
            .world
            .put(secret(namespace, name, &json!({ "app": app })));
    }
    for (name, env) in [("ns1", "dev"), ("ns2", "prod")] {
        bench.world.put(json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": { "env": env } },
        }));
    }
    bench
}

/// The hooks that the last pass called.
fn hooks(bench: &Bench) -> Vec<HookKind> {
    bench.calls.iter().map(|call| call.0).collect()
}

/// Outer and inner keys of the related objects in the last call.
fn shown(bench: &Bench) -> Value {
    let related = &bench.calls.last().expect("a call").1["related"];
    let groups = related.as_object().unwrap().iter().map(|(outer, group)| {
        let inner: Vec<_> = group.as_object().unwrap().keys().cloned().collect();
        (outer.clone(), inner.into())
    });
    Value::Object(groups.collect())
}

#[test]
fn a_customize_hook_is_sent_the_controller_and_the_parent_and_nothing_else() {
    let mut bench = asking("v1", &json!([]));

    bench.pass();

    assert_eq!(hooks(&bench), [HookKind::Customize, HookKind::Sync]);
    let request = bench.calls[0].1.as_object().unwrap();
    assert_eq!(request.keys().collect::<Vec<_>>(), ["controller", "parent"]);
    assert_eq!(request["parent"]["metadata"]["name"], "p");
    assert_eq!(request["controller"], bench.calls[1].1["controller"]);
    assert_eq!(bench.calls[1].1["related"], json!({}));
}

#[test]
fn related_objects_reach_the_hook_whole_in_groups_that_may_be_empty() {
    let rules = json!([
        { "apiVersion": "v1", "resource": "secrets", "names": ["b"] },
        { "apiVersion": "v1", "resource": CONFIG },
        { "apiVersion": "v1", "resource": "secrets", "labelSelector": { "matchLabels": { "app": "x" } } },
    ]);
    let mut bench = with_secrets(asking("v1", &rules));

    bench.pass();

    assert_eq!(
        shown(&bench),
        json!({ "ConfigMap.v1": [], "Secret.v1": ["a", "b"] })
    );
    let related = &bench.calls[1].1["related"]["Secret.v1"];
    assert_eq!(
        &related["a"],
        bench.world.get("secrets", "ns1", "a").unwrap()
    );
    assert_eq!(bench.calls[1].1["finalizing"], false);
}

/// Twice the same key would be a body that parsers read differently.
#[test]
fn an_object_that_two_rules_pick_is_shown_once() {
    let bench = with_secrets(asking("v1", &json!([])));
    let all = bench.world.of("secrets");
    let resource = resource_of(&all[0]);
    let one = vec![Arc::clone(&all[0])];

    let related = Related::new([(Arc::clone(&resource), one), (resource, all)]);

    let names: Vec<_> = related.objects().map(|it| it.name()).collect();
    assert_eq!(names, ["a", "b", "a"], "the last is of another namespace");
}

#[test]
fn a_v1_hook_of_a_namespaced_parent_sees_its_own_namespace_only() {
    let rules = json!([{ "apiVersion": "v1", "resource": "secrets", "names": ["a"] }]);
    let mut spec = spec();
    spec["hooks"] = json!({ "sync": hook("v2"), "customize": hook("v1") });
    let mut bench = with_secrets(Bench::new(&spec));
    ask(&mut bench, &rules);

    bench.pass();

    assert_eq!(shown(&bench), json!({ "Secret.v1": ["ns1/a"] }));
}

#[test]
fn a_v2_hook_of_a_namespaced_parent_sees_other_namespaces() {
    let rules = json!([{ "apiVersion": "v1", "resource": "secrets", "namespace": "ns2" }]);
    let mut bench = with_secrets(asking("v2", &rules));

    bench.pass();

    assert_eq!(shown(&bench), json!({ "Secret.v1": ["ns2/a"] }));
}

#[test]
fn namespaces_are_selected_by_their_labels() {
    let rules = json!([{
        "apiVersion": "v1", "resource": "secrets",
        "namespaceSelector": { "matchLabels": { "env": "prod" } },
    }]);
    let mut bench = with_secrets(asking("v2", &rules));

    bench.pass();

    assert_eq!(shown(&bench), json!({ "Secret.v1": ["ns2/a"] }));
}

#[test]
fn a_v1_hook_of_a_namespaced_parent_sees_cluster_scoped_objects_by_their_names() {
    let rules = json!([{ "apiVersion": "v1", "resource": "namespaces", "names": ["ns1"] }]);
    for version in ["v1", "v2"] {
        let mut bench = with_secrets(asking(version, &rules));

        bench.pass();

        assert_eq!(shown(&bench), json!({ "Namespace.v1": ["ns1"] }));
    }
}

#[test]
fn customize_is_called_again_only_when_the_parent_is_wished_otherwise() {
    let mut bench = with_secrets(asking("v1", &json!([])));
    bench.pass();

    bench.pass();
    assert_eq!(hooks(&bench), [HookKind::Sync], "nothing changed");

    bench
        .world
        .edit(FOO, "p", |it| it["status"]["x"] = 1.into());
    bench.pass();
    assert_eq!(hooks(&bench), [HookKind::Sync], "the status changed");

    for change in [
        |it: &mut Value| it["spec"]["more"] = 1.into(),
        |it: &mut Value| it["metadata"]["labels"]["more"] = "x".into(),
        |it: &mut Value| it["metadata"]["annotations"]["more"] = "x".into(),
    ] {
        bench.world.edit(FOO, "p", change);
        bench.pass();
        assert_eq!(hooks(&bench), [HookKind::Customize, HookKind::Sync]);
    }
}

#[test]
fn without_a_generation_every_change_of_the_parent_asks_the_customize_hook_again() {
    let mut bench = asking("v1", &json!([]));
    bench
        .world
        .edit(FOO, "p", |it| it["metadata"]["generation"] = 0.into());
    bench.pass();
    bench.pass();
    bench.pass();
    assert_eq!(hooks(&bench), [HookKind::Sync]);

    bench.world.edit(FOO, "p", |it| it["data"] = 1.into());
    bench.pass();

    assert_eq!(hooks(&bench), [HookKind::Customize, HookKind::Sync]);
}

#[test]
fn a_changed_related_object_makes_the_same_answer_count_anew() {
    let rules = json!([{ "apiVersion": "v1", "resource": "secrets" }]);
    let mut spec = spec();
    spec["hooks"]["customize"] = hook("v1");
    let mut bench = with_secrets(Bench::wanting(&spec, &[config("c", "1")]));
    ask(&mut bench, &rules);
    bench.pass();
    bench.pass();
    assert_eq!(bench.pass().verdict, Verdict::Unchanged);
    assert_eq!(bench.writes.len(), 0);

    bench
        .world
        .edit("secrets", "a", |it| it["data"]["k"] = "v".into());
    bench.pass();

    assert_eq!(hooks(&bench), [HookKind::Sync]);
    assert_eq!(
        bench.calls[0].1["related"]["Secret.v1"]["a"]["data"]["k"],
        "v"
    );
    assert_eq!(bench.writes.len(), 0);
}

#[test]
fn the_hook_is_not_called_before_all_related_objects_are_known() {
    let rules = json!([{ "apiVersion": "v1", "resource": "secrets" }]);
    let mut bench = with_secrets(asking("v1", &rules));
    bench.is_filling = true;

    let outcome = bench.pass();

    assert_eq!(outcome.verdict, Verdict::Waiting);
    assert_eq!(outcome.requeue, Requeue::Await);
    assert!(outcome.events.is_empty());
    assert_eq!(hooks(&bench), [HookKind::Customize]);

    bench.is_filling = false;
    bench.pass();
    assert_eq!(hooks(&bench), [HookKind::Sync], "its answer is kept");
}

#[test]
fn rules_that_are_refused_call_no_other_hook_and_are_asked_for_again() {
    let in_v1 = "in v1 hook version";
    for (rule, why) in [
        (
            json!({ "namespace": "ns2" }),
            "requested related object namespace ns2 differs from parent object namespace ns1",
        ),
        (json!({ "namespaceSelector": {} }), in_v1),
        (
            json!({ "names": ["a"], "labelSelector": {} }),
            "cannot have both names and labelSelector/namespaceSelector specified",
        ),
        (
            json!({ "labelSelector": { "matchLabels": { "a b": "" } } }),
            "relatedResources[0].labelSelector: key \"a b\"",
        ),
    ] {
        let mut rule = rule;
        rule["apiVersion"] = "v1".into();
        rule["resource"] = "secrets".into();
        let mut bench = with_secrets(asking("v1", &json!([rule])));

        let outcome = bench.pass();

        assert!(matches!(outcome.verdict, Verdict::AnswerRefused(_)));
        assert_eq!(outcome.requeue, Requeue::Backoff);
        let [told] = &told(&outcome)[..] else {
            panic!("one event")
        };
        assert!(
            told.starts_with("SyncError: Sync error: sync hook failed for Foo ns1/p: customize hook failed (version=v1): ")
                && told.contains(why),
            "{told}"
        );
        assert_eq!(hooks(&bench), [HookKind::Customize]);
        bench.pass();
        assert_eq!(hooks(&bench), [HookKind::Customize]);
    }
}

#[test]
fn a_null_among_the_rules_is_refused() {
    for version in ["v1", "v2"] {
        let mut bench = asking(version, &json!([null]));

        let outcome = bench.pass();

        assert!(matches!(outcome.verdict, Verdict::AnswerRefused(_)));
        let told = told(&outcome).concat();
        assert!(
            told.contains("relatedResources[0] of the hook's answer: null in place of an object"),
            "{told}"
        );
        assert_eq!(hooks(&bench), [HookKind::Customize]);
    }
}

#[test]
fn a_resource_that_is_not_served_fails_the_sync_and_keeps_the_answer() {
    let rules = json!([{ "apiVersion": "v9", "resource": "secrets" }]);
    let mut bench = asking("v1", &rules);

    let outcome = bench.pass();

    assert!(matches!(outcome.verdict, Verdict::Failed(_)));
    assert_eq!(outcome.requeue, Requeue::Backoff);
    let told = told(&outcome).concat();
    assert!(
        told.contains("discovery: can't find resource secrets in apiVersion v9"),
        "{told}"
    );
    bench.pass();
    assert!(bench.calls.is_empty(), "{:?}", bench.calls);
}

#[test]
fn a_customize_hook_that_fails_fails_the_sync() {
    let mut bench = asking("v1", &json!([]));
    bench.customize = HookResult::Failed("unsupported status code: 500 body: oops".to_owned());
    let outcome = bench.pass();
    assert!(matches!(outcome.verdict, Verdict::HookFailed(_)));
    assert_eq!(hooks(&bench), [HookKind::Customize]);

    bench.customize = HookResult::TooManyRequests {
        retry_after: Some(std::time::Duration::from_secs(7)),
    };
    let outcome = bench.pass();
    assert_eq!(outcome.verdict, Verdict::Throttled);
    assert!(outcome.events.is_empty());
}

#[test]
fn the_finalize_hook_sees_related_objects_too() {
    let rules = json!([{ "apiVersion": "v1", "resource": "secrets" }]);
    let mut spec = spec();
    spec["hooks"] = json!({ "sync": hook("v1"), "finalize": hook("v1"), "customize": hook("v1") });
    let mut bench = with_secrets(Bench::new(&spec));
    ask(&mut bench, &rules);
    bench.pass();
    bench.world.delete(FOO, "p");

    bench.pass();

    assert_eq!(hooks(&bench), [HookKind::Customize, HookKind::Finalize]);
    assert_eq!(shown(&bench), json!({ "Secret.v1": ["a", "b"] }));
    assert_eq!(bench.calls[1].1["finalizing"], true);
}

#[test]
fn a_decorators_customize_hook_is_told_of_a_parent_and_its_sync_hook_of_an_object() {
    let spec = json!({
        "resources": [{ "apiVersion": "ex.io/v1", "resource": FOO }],
        "hooks": { "sync": hook("v2"), "customize": hook("v2") },
    });
    let mut bench = with_secrets(Bench::decorating(&spec));
    let rules = json!([{ "apiVersion": "v1", "resource": "secrets", "namespace": "ns2" }]);
    ask(&mut bench, &rules);
    bench.answer = answer(&json!({ "attachments": [] }));

    bench.pass();

    assert_eq!(hooks(&bench), [HookKind::Customize, HookKind::Sync]);
    let keys = |call: usize| {
        let request = bench.calls[call].1.as_object().unwrap();
        request.keys().map(String::as_str).collect::<Vec<_>>()
    };
    assert_eq!(keys(0), ["controller", "parent"]);
    assert_eq!(
        keys(1),
        [
            "attachments",
            "controller",
            "finalizing",
            "object",
            "related"
        ]
    );
    assert_eq!(bench.calls[0].1["parent"], bench.calls[1].1["object"]);
    assert_eq!(shown(&bench), json!({ "Secret.v1": ["ns2/a"] }));
}
