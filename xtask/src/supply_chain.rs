//! What we depend on: nothing banned, nothing with an unlisted licence, nothing from elsewhere than crates.io.
//!
//! `deny.toml` has the lists. cargo-deny checks them, and more, where it is installed; this is for everybody else.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{
    repository::{self, cargo, output},
    talk,
};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Says every breach of `deny.toml`'s lists.
///
/// # Errors
/// If there is one.
pub(crate) fn run() -> anyhow::Result<()> {
    let breaches = breaches()?;
    for breach in &breaches {
        talk::say(breach);
    }
    match breaches.len() {
        0 => Ok(()),
        n => bail!("{n} breaches of deny.toml"),
    }
}

fn breaches() -> anyhow::Result<Vec<String>> {
    let path = repository::root().join("deny.toml");
    let text = fs::read_to_string(path).context("read deny.toml")?;
    let lists = Lists::parse(&text)?;
    let used = used()?;
    let packages = repository::packages(false)?;
    Ok(packages
        .iter()
        .filter(|it| used.contains(it["name"].as_str().unwrap_or_default()))
        .flat_map(|package| lists.breaches(package))
        .collect())
}

/// Names of the crates that are compiled on some platform. The metadata also has those behind features that nobody
/// turns on.
fn used() -> anyhow::Result<BTreeSet<String>> {
    let tree = output(
        cargo()
            .args(["tree", "--workspace", "--all-features", "--target", "all"])
            .args([
                "--edges",
                "normal,build,dev",
                "--prefix",
                "none",
                "--format",
                "{p}",
                "--locked",
            ]),
    )?;
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}

/// The lists of `deny.toml`.
#[derive(Debug, PartialEq, Eq)]
struct Lists {
    /// Crates that must not be used.
    banned: Vec<String>,
    /// SPDX ids of licences.
    licences: Vec<String>,
}

impl Lists {
    fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(Self {
            banned: strings(text, "[bans]", "deny")
                .context("read the banned crates of deny.toml")?,
            licences: strings(text, "[licenses]", "allow")
                .context("read the licences of deny.toml")?,
        })
    }

    fn breaches(&self, package: &Value) -> Vec<String> {
        let name = package["name"].as_str().unwrap_or_default();
        let mut found = Vec::new();
        if self.banned.iter().any(|it| it == name) {
            found.push(format!("{name}: is banned; deny.toml says why"));
        }
        if package["source"].as_str().is_some_and(|it| it != CRATES_IO) {
            found.push(format!("{name}: comes from {}", package["source"]));
        }
        let licence = package["license"].as_str().unwrap_or_default();
        // An old form of OR.
        if !permits(&licence.replace('/', " OR "), &self.licences) {
            found.push(format!(
                "{name}: its licence is `{licence}`; deny.toml lists those that we take"
            ));
        }
        found
    }
}

/// The strings of the list `key` in `section`; in a list of tables, the first string of each line.
fn strings(text: &str, section: &str, key: &str) -> Option<Vec<String>> {
    let (_, after) = text.split_once(&format!("\n{section}\n"))?;
    let (_, list) = after.split_once(&format!("\n{key} = ["))?;
    let (list, _) = list.split_once("\n]")?;
    let lines = list
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    Some(
        lines
            .filter_map(|line| Some(line.split('"').nth(1)?.to_owned()))
            .collect(),
    )
}

/// Whether an SPDX expression can be met with the `allowed` licences alone.
fn permits(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let met = any_of(&mut words, allowed);
    met && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut met = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        met |= all_of(words, allowed);
    }
    met
}

fn all_of(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut met = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let met = any_of(words, allowed);
        return words.next_if_eq(&")").is_some() && met;
    }
    let mut licence = words.next().unwrap_or_default().to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        let exception = words.next().unwrap_or_default();
        // An exception only adds rights.
        if allowed.contains(&licence) {
            return true;
        }
        licence = format!("{licence} WITH {exception}");
    }
    allowed.contains(&licence)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lists() -> Lists {
        let text = "\n[licenses]\n# Why.\nallow = [\n  \"MIT\",\n  # \"GPL-3.0\",\n  \"ISC\",\n]\n\n[bans]\nmultiple = 1\ndeny = [\n  { crate = \"ring\", reason = \"one stack\" },\n]\n";
        Lists::parse(text).unwrap()
    }

    fn package(name: &str, licence: &str, source: &str) -> Value {
        json!({ "name": name, "license": licence, "source": source })
    }

    #[test]
    fn the_workspace_keeps_to_the_lists() {
        assert_eq!(breaches().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn the_lists_are_those_of_the_file() {
        let expected = Lists {
            banned: vec!["ring".to_owned()],
            licences: vec!["MIT".to_owned(), "ISC".to_owned()],
        };

        assert_eq!(lists(), expected);
    }

    #[test]
    fn a_banned_crate_another_source_and_an_unlisted_licence_are_found() {
        assert!(
            lists()
                .breaches(&package("fine", "MIT", CRATES_IO))
                .is_empty()
        );

        let found = lists().breaches(&package("ring", "GPL-3.0", "git+https://example.com/x"));

        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn a_choice_of_licences_needs_one_and_a_sum_needs_all() {
        let allowed = lists().licences;
        let met = |it| permits(it, &allowed);

        assert!(met("GPL-3.0 OR MIT"));
        assert!(met("(GPL-3.0 OR ISC) AND MIT"));
        assert!(met("MIT WITH LLVM-exception"));
        assert!(!met("MIT AND GPL-3.0"));
        assert!(!met("(MIT AND GPL-3.0) OR GPL-2.0"));
        assert!(!met(""));
    }
}
