//! What the command line takes, and how mistakes are answered.

use super::*;

fn mistake(args: &[&str]) -> String {
    let parsed = parse(args.iter().map(OsString::from));
    parsed.unwrap_err().to_string()
}

#[test]
fn the_command_line_is_consistent() {
    command(None).debug_assert();
}

#[test]
fn a_typo_is_answered_with_the_right_word() {
    let error = mistake(&["metashardctl", "rendre"]);
    assert!(error.contains("'render'"), "{error}");
    let error = mistake(&["metashardctl", "shards", "explan"]);
    assert!(error.contains("'explain'"), "{error}");
    let error = mistake(&["metashardctl", "lint", "--conect"]);
    assert!(error.contains("'--connect'"), "{error}");
}

#[test]
fn a_duration_has_a_number_and_a_unit() {
    assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
    assert_eq!(duration("2h"), Ok(Duration::from_hours(2)));
    for wrong in ["", "5", "m", "1.5m", "1d"] {
        assert!(duration(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn flags_may_come_before_the_command_as_for_kubectl() {
    let told = |args: &str| {
        let cli = parse(args.split(' ').map(OsString::from)).unwrap();
        format!("{:?}", cli.command)
    };

    let flags = "-n ns --context=c -o json";
    assert_eq!(
        told(&format!("metashardctl {flags} tree foo/p")),
        told(&format!("metashardctl tree foo/p {flags}"))
    );
    assert_eq!(
        told("metashardctl -n ns render -f a -- hook -n b"),
        told("metashardctl render -f a -n ns -- hook -n b")
    );
    assert_eq!(
        told("metashardctl -o json shards simulate --replicas 3"),
        told("metashardctl shards simulate --replicas 3 -o json")
    );
    assert_eq!(
        told("metashardctl -A migrate plan"),
        told("metashardctl migrate plan -A")
    );
    assert!(mistake(&["metashardctl", "--nope", "status"]).contains("'--nope'"));
    assert!(mistake(&["metashardctl", "-n"]).contains("'-n'"));
}

#[test]
fn a_plug_in_of_kubectl_is_called_as_one() {
    let error = mistake(&["/usr/local/bin/kubectl-metashard", "lint", "--nope"]);
    assert!(error.contains("Usage: kubectl metashard lint"), "{error}");
}
