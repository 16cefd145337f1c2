//! Selectors as Metacontroller compiles and matches them.

use serde_json::json;

use super::*;

const VECTORS: &str = include_str!("../../../../tests/vectors/selectors.jsonl");

#[test]
fn every_recorded_selector_of_composite_controllers_matches_the_same() {
    let (mut parents, mut children, mut decorators) = (0, 0, 0);
    for line in VECTORS.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        match case["via"].as_str() {
            Some("ccParent") => {
                parents += 1;
                check(&case, parent_selector(&case["selector"]));
            }
            Some("ccChild") => {
                children += 1;
                check(&case, child_selector(&case));
            }
            // Those are matched against whole objects: `metashard-reconcile` reads them.
            Some("dc") => decorators += 1,
            other => panic!("{other:?}"),
        }
    }

    println!(
        "selectors.jsonl: {parents} of parents, {children} of children, {decorators} of decorators read elsewhere"
    );
    assert_eq!((parents, children, decorators), (91, 34, 43));
}

fn parent_selector(selector: &Value) -> Result<Selector, Error> {
    match selector {
        Value::Null => Ok(Selector::everything()),
        selector => Selector::compile(&serde_json::from_value(selector.clone()).unwrap()),
    }
}

fn child_selector(case: &Value) -> Result<Selector, Error> {
    let parent = &case["parent"];
    if case["generateSelector"] == true {
        Selector::generated(parent["metadata"]["uid"].as_str().unwrap())
    } else {
        Selector::of_children(parent.get("spec"))
    }
}

fn check(case: &Value, selector: Result<Selector, Error>) {
    match selector {
        Ok(selector) => {
            let label = |key: &str| case["labels"].get(key).and_then(Value::as_str);
            assert_eq!(case["matches"], selector.matches(label), "{case}");
            assert_eq!(case["canonical"], selector.to_string(), "{case}");
        }
        Err(error) => assert_eq!(case["matches"], Value::Null, "{error}: {case}"),
    }
}

/// Row 49 of what users ask for: an annotation is no label.
#[test]
fn annotations_are_selected_by_any_text() {
    let values = [
        "https://x.example/?a=b,c",
        "a b",
        "",
        "{\"j\":1}",
        "\n",
        "v".repeat(64).leak(),
        "ÿ",
    ];
    for value in values {
        let selector = json!({
            "matchAnnotations": { "ex.io/a": value },
            "matchExpressions": [
                { "key": "ex.io/a", "operator": "In", "values": ["other", value] },
                { "key": "ex.io/a", "operator": "NotIn", "values": ["/other/"] },
                { "key": "ex.io/a", "operator": "Exists" },
                { "key": "b", "operator": "DoesNotExist" },
            ],
        });
        let selector = serde_json::from_value(selector).unwrap();
        let selector = Selector::of_annotations(&selector).unwrap();

        assert!(
            selector.matches(|key| (key == "ex.io/a").then_some(value)),
            "{value}"
        );
        assert!(!selector.matches(|key| (key == "ex.io/a").then_some("/other/")));
        assert!(!selector.matches(|_| None::<&str>));
        assert!(!selector.matches(|_| Some(value)), "b is there");
    }
}

#[test]
fn keys_and_operators_of_annotations_are_checked() {
    let faults = [
        json!({ "matchAnnotations": { "bad key": "x" } }),
        json!({ "matchExpressions": [{ "key": "a", "operator": "Matches", "values": ["x"] }] }),
        json!({ "matchExpressions": [{ "key": "a", "operator": "In", "values": [] }] }),
        json!({ "matchExpressions": [{ "key": "a", "operator": "Exists", "values": ["x"] }] }),
    ];
    for fault in faults {
        let selector = serde_json::from_value(fault.clone()).unwrap();

        assert!(Selector::of_annotations(&selector).is_err(), "{fault}");
    }
}

fn matches(text: &str, labels: &Value) -> bool {
    let selector: Selector = text.parse().unwrap();
    selector.matches(|key| labels.get(key).and_then(Value::as_str))
}

#[test]
fn the_text_form_is_read_as_kubectl_reads_it() {
    let labels = json!({ "app": "web", "tier": "fe", "empty": "", "n": "5" });
    let matching = [
        "",
        " ",
        "app=web",
        "app == web",
        "app = web , tier=fe",
        "app!=api",
        "other!=x",
        "tier in (fe)",
        "tier in (be, fe)",
        "tier notin (be)",
        "other notin (be)",
        "app",
        "!other",
        "! other",
        "empty=",
        "empty in (a,)",
        "empty in (,a)",
        "n>4",
        "n<6",
        "app=web,n > 4",
    ];
    let other = [
        "app=api",
        "app!=web",
        "tier in (be)",
        "tier notin (fe)",
        "other",
        "!app",
        "other=",
        "n>5",
        "n<5",
        "app>4",
        "tier in (a,b),app=web",
    ];

    for text in matching {
        assert!(matches(text, &labels), "{text}");
    }
    for text in other {
        assert!(!matches(text, &labels), "{text}");
    }
}

#[test]
fn texts_that_are_no_selectors_are_refused() {
    let texts = [
        "=",
        "app=web=x",
        "app in",
        "app in fe",
        "app in (fe",
        "app in (a b)",
        "app web",
        ",",
        "app,",
        "!",
        "a/b/c",
        "app=a/b",
        "app>x",
        "app in (a,,(b)",
        "-app",
        "(app)",
    ];
    for text in texts {
        assert!(text.parse::<Selector>().is_err(), "{text}");
    }
}

#[test]
fn the_written_text_form_is_read_back_the_same() {
    for text in [
        "app=web,tier in (a,b),!x",
        "a!=b,c notin (d,e),f,g>1,h<2",
        "empty=",
    ] {
        let selector: Selector = text.parse().unwrap();

        let written = selector.to_query().unwrap();

        assert_eq!(written.parse::<Selector>().unwrap(), selector, "{text}");
    }
    assert_eq!(Selector::everything().to_query(), None);
}
