//! `docs/reference/compatibility.md`: what is the same as Metacontroller 4.17, what is fixed, and the tests that show it.
//!
//! Made from `tests/compatibility/*.toml`. Each behaviour names tests, and a name that no test has is an error, so the
//! page cannot claim what nothing checks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::repository;

/// One file: an area of behaviour.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Area {
    /// Heading; the file's name if there is none.
    title: Option<String>,
    #[serde(default)]
    behaviour: Vec<Behaviour>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Behaviour {
    id: String,
    what: String,
    verdict: Verdict,
    #[serde(default)]
    why: String,
    /// `file::function`.
    #[serde(default)]
    tests: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum Verdict {
    #[serde(rename = "same")]
    Same,
    #[serde(rename = "fixed")]
    Fixed,
    #[serde(rename = "not supported")]
    NotSupported,
}

impl Verdict {
    const ALL: [Self; 3] = [Self::Same, Self::Fixed, Self::NotSupported];

    fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Fixed => "fixed",
            Self::NotSupported => "not supported",
        }
    }
}

/// The page and its path, unless there is nothing to tell yet.
///
/// # Errors
/// If a file cannot be read, a behaviour is told twice or without a reason, or a test does not exist.
pub(crate) fn page() -> anyhow::Result<Option<(PathBuf, String)>> {
    let areas = read(&repository::root().join("tests/compatibility"))?;
    if areas.is_empty() {
        return Ok(None);
    }
    check(&areas, repository::root())?;
    let path = repository::root().join("docs/reference/compatibility.md");
    Ok(Some((path, text(&areas))))
}

fn read(folder: &Path) -> anyhow::Result<BTreeMap<String, Area>> {
    let mut areas = BTreeMap::new();
    if !folder.exists() {
        return Ok(areas);
    }
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry
            .with_context(|| format!("list {}", folder.display()))?
            .path();
        let shown = path.display();
        let content = fs::read_to_string(&path).with_context(|| format!("read {shown}"))?;
        let area: Area = toml::from_str(&content).with_context(|| format!("read {shown}"))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let title = area.title.clone().unwrap_or_else(|| name.into_owned());
        ensure!(
            areas.insert(title.clone(), area).is_none(),
            "{shown}: another file has the title {title:?}"
        );
    }
    Ok(areas)
}

fn check(areas: &BTreeMap<String, Area>, root: &Path) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    let mut sources: BTreeMap<&str, String> = BTreeMap::new();
    for behaviour in areas.values().flat_map(|area| &area.behaviour) {
        let id = &behaviour.id;
        ensure!(seen.insert(id), "behaviour {id:?} is told twice");
        ensure!(
            behaviour.verdict == Verdict::Same || !behaviour.why.is_empty(),
            "behaviour {id:?}: say why it is {}",
            behaviour.verdict.as_str()
        );
        ensure!(
            behaviour.verdict == Verdict::NotSupported || !behaviour.tests.is_empty(),
            "behaviour {id:?} names no test"
        );
        for test in &behaviour.tests {
            let (file, function) = test
                .split_once("::")
                .with_context(|| format!("behaviour {id:?}: {test:?} is not file::function"))?;
            if !sources.contains_key(file) {
                let source = fs::read_to_string(root.join(file))
                    .with_context(|| format!("behaviour {id:?}: read {file}"))?;
                sources.insert(file, source);
            }
            let function = function.rsplit("::").next().unwrap_or(function);
            ensure!(
                sources[file].contains(&format!("fn {function}(")),
                "behaviour {id:?}: {file} has no test {function}"
            );
        }
    }
    Ok(())
}

fn text(areas: &BTreeMap<String, Area>) -> String {
    let mut page = String::from(
        "<!-- Written by `cargo xtask generate` from tests/compatibility. -->\n\n\
         # Compatibility with Metacontroller\n\n\
         What a controller written for Metacontroller 4.17 meets here. Each row is shown by the tests it names; the gate \
         fails if one of them does not exist. *Same*: it behaves alike. *Fixed*: it behaves otherwise, for the reason \
         given. Marks such as Q-7 number known defects of Metacontroller; \"bugs\" are reports of its users.\n\n",
    );
    for verdict in Verdict::ALL {
        let count = areas.values().flat_map(|area| &area.behaviour);
        let count = count.filter(|it| it.verdict == verdict).count();
        let _infallible = writeln!(page, "- {}: {count}", verdict.as_str());
    }
    for (title, area) in areas {
        let _infallible = write!(
            page,
            "\n## {title}\n\n| | behaviour | here | why | shown by |\n|---|---|---|---|---|\n"
        );
        for behaviour in &area.behaviour {
            let tests: Vec<_> = behaviour.tests.iter().map(|test| link(test)).collect();
            let _infallible = writeln!(
                page,
                "| {} | {} | {} | {} | {} |",
                cell(&behaviour.id),
                cell(&behaviour.what),
                behaviour.verdict.as_str(),
                cell(&behaviour.why),
                tests.join("<br>")
            );
        }
    }
    page
}

/// A test, as a link to its file.
fn link(test: &str) -> String {
    let (file, function) = test.split_once("::").unwrap_or((test, test));
    format!("[{}](../../{file})", function.replace('_', " "))
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas(toml: &str) -> BTreeMap<String, Area> {
        BTreeMap::from([("area".to_owned(), toml::from_str(toml).unwrap())])
    }

    fn checked(toml: &str) -> String {
        match check(&areas(toml), repository::root()) {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_behaviour_names_tests_that_exist() {
        let row = |test: &str| {
            format!("[[behaviour]]\nid = 'A'\nwhat = 'w'\nverdict = 'same'\ntests = ['{test}']\n")
        };
        let good = "xtask/src/compatibility.rs::a_behaviour_names_tests_that_exist";

        assert_eq!(checked(&row(good)), "ok");
        assert!(checked(&row("xtask/src/compatibility.rs::nothing")).contains("has no test"));
        assert!(checked(&row("xtask/src/nowhere.rs::nothing")).contains("nowhere.rs"));
        assert!(checked(&format!("{}{}", row(good), row(good))).contains("told twice"));
    }

    #[test]
    fn what_differs_says_why_and_a_bar_stays_in_its_cell() {
        let row = "[[behaviour]]\nid = 'A'\nwhat = 'a|b'\nverdict = 'not supported'\n";

        assert!(checked(row).contains("say why"));
        assert!(text(&areas(row)).contains("| A | a\\|b | not supported |"));
    }
}
