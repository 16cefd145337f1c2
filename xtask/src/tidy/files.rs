//! What a file may look like.

use std::path::Path;

/// Longest source file, in lines, tests in the file included.
const MAX_LINES: usize = 500;

/// Where generated files and recorded data lie.
const GENERATED: &[&str] = &[
    "deploy/crds/",
    "docs/reference/compatibility.md",
    "Cargo.lock",
    "go.sum",
    "/vectors/",
];

/// Where somebody's own files lie; such a path means nothing on another machine. In halves, for this file's own sake.
const PRIVATE_PATHS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
];

/// Breaches of the file at `path`, from the root, with slashes.
pub(super) fn breaches(path: &str, text: &str) -> Vec<String> {
    if GENERATED.iter().any(|it| path.contains(it)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if PRIVATE_PATHS.iter().any(|it| line.contains(it)) {
            found.push(format!("{path}:{}: a path of one machine", number + 1));
        }
    }
    if Path::new(path).extension().is_some_and(|it| it == "rs") {
        found.extend(of_rust(path, text));
    }
    found
}

fn of_rust(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !text.starts_with("//! ") {
        found.push(format!(
            "{path}: begin with a `//!` line that says what the file is for"
        ));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        found.push(format!(
            "{path}: {lines} lines; split it by responsibility (at most {MAX_LINES})"
        ));
    }
    found.extend(sleeping_tests(path, text));
    found
}

/// Tests that wait for a length of time instead of for something. Under virtual time that costs and races nothing;
/// a file of test support without tests, such as a server that answers late, may sleep.
fn sleeping_tests(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let is_test = |line: &&str| matches!(line.trim(), "#[test]" | "#[tokio::test]");
    let Some(first) = lines.iter().position(is_test) else {
        return Vec::new();
    };
    lines
        .iter()
        .enumerate()
        .skip(first)
        .filter(|(_, line)| sleeps(line))
        .map(|(number, _)| {
            let number = number + 1;
            format!("{path}:{number}: a test that sleeps; wait for something with metashard_testkit::wait")
        })
        .collect()
}

/// Whether a line calls a function `sleep`; a method of that name is a clock's, which may be virtual.
fn sleeps(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let mut calls = code.match_indices(concat!("sle", "ep("));
    calls.any(|(at, _)| !code.get(..at).unwrap_or_default().ends_with(['.', '_']))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: &str = "//! What it is for.\n\nfn main() {}\n";

    #[test]
    fn a_short_file_that_says_what_it_is_for_is_fine() {
        assert!(breaches("crates/a/src/b.rs", FINE).is_empty());
    }

    #[test]
    fn a_file_without_its_first_line_is_found() {
        assert_eq!(breaches("crates/a/src/b.rs", "fn main() {}\n").len(), 1);
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_generated() {
        let long = format!("//! Long.\n{}", "\n".repeat(MAX_LINES));

        assert_eq!(breaches("xtask/src/b.rs", &long).len(), 1);
        assert!(breaches("crates/a/tests/vectors/b.rs", &long).is_empty());
    }

    #[test]
    fn a_path_of_one_machine_is_found_in_any_text() {
        let text = format!("see {}me/notes", PRIVATE_PATHS[0]);

        assert_eq!(
            breaches("docs/guide.md", &text),
            ["docs/guide.md:1: a path of one machine"]
        );
    }

    #[test]
    fn a_test_that_sleeps_is_found() {
        // In two parts, as this file is checked too.
        let sleep = concat!("    tokio::time::sle", "ep(SECOND).await;\n");
        let support = format!("{FINE}{sleep}");

        let found = breaches(
            "tests/integration/b.rs",
            &format!("{support}#[test]\n{sleep}"),
        );

        assert_eq!(found.len(), 1, "{found:?}");
        assert!(breaches("tests/integration/b.rs", &support).is_empty());
    }

    #[test]
    fn time_that_is_not_real_may_be_slept_away() {
        let of_clock = format!("{FINE}#[test]\n{}", concat!("clock.sle", "ep(SECOND);\n"));
        let paused = format!(
            "{FINE}#[tokio::test(start_paused = true)]\n{}",
            concat!("sle", "ep(SECOND);\n")
        );

        assert!(breaches("tests/integration/b.rs", &of_clock).is_empty());
        assert!(breaches("tests/integration/b.rs", &paused).is_empty());
    }
}
