//! What comes of a file of cases.

use std::fs;

use super::*;

const CASES: &str = r"
controller:
  apiVersion: metacontroller.k8s.io/v1alpha1
  kind: CompositeController
  metadata: {name: c}
  spec:
    generateSelector: true
    parentResource: {apiVersion: apps/v1, resource: deployments}
    childResources:
    - {apiVersion: v1, resource: configmaps, updateStrategy: {method: InPlace}}
    hooks: {sync: {webhook: {url: http://127.0.0.1:1/}}}
parent: {apiVersion: apps/v1, kind: Deployment, metadata: {name: p}}
cases:
- name: one child
  answer:
    children:
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}
- name: none
  answer: {children: []}
";

/// A folder with this file of cases.
fn folder(name: &str, text: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("metashard-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("a.yaml");
    fs::write(&file, text).unwrap();
    file
}

async fn verdicts(file: &Path, update: bool) -> Vec<Verdict> {
    let suite = run(file, update, &Clock::system()).await.unwrap();
    suite.results.into_iter().map(|it| it.verdict).collect()
}

#[tokio::test]
async fn what_update_wrote_is_the_same_the_next_time_and_a_change_is_named() {
    let file = folder("update", CASES);

    let before = verdicts(&file, false).await;
    let updated = verdicts(&file, true).await;
    let after = verdicts(&file, false).await;
    fs::write(&file, CASES.replace("k: v", "k: other")).unwrap();
    let changed = verdicts(&file, false).await;

    assert!(before.iter().all(|it| matches!(it, Verdict::Differs(_))));
    assert!(
        updated.iter().all(|it| *it == Verdict::Updated),
        "{updated:?}"
    );
    assert!(after.iter().all(|it| *it == Verdict::Same), "{after:?}");
    let Verdict::Differs(lines) = &changed[0] else {
        panic!("{changed:?}");
    };
    assert!(
        lines
            .iter()
            .any(|it| it.contains(r#"data.k: "v" -> "other""#)),
        "{lines:?}"
    );
    assert_eq!(changed[1], Verdict::Same);
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[tokio::test]
async fn a_misspelt_field_is_refused_with_the_word_that_was_meant() {
    let file = folder(
        "typo",
        &CASES.replace("- name: none", "- name: none\n  chidlren: []"),
    );

    let error = run(&file, false, &Clock::system())
        .await
        .unwrap_err()
        .to_string();

    assert!(error.contains("did you mean children?"), "{error}");
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn junit_tells_failures_from_errors_and_escapes() {
    let result = |name: &str, verdict| CaseResult {
        name: name.to_owned(),
        verdict,
        took: Duration::from_millis(5),
    };
    let text = junit(&[Suite {
        file: "a.yaml".into(),
        results: vec![
            result("good", Verdict::Same),
            result("a<b", Verdict::Differs(vec!["~ x: 1 -> 2".to_owned()])),
            result("bad", Verdict::Failed("no".to_owned())),
        ],
    }]);

    assert!(
        text.contains(r#"tests="3" failures="1" errors="1""#),
        "{text}"
    );
    assert!(
        text.contains("a&lt;b") && text.contains("1 -&gt; 2"),
        "{text}"
    );
}
