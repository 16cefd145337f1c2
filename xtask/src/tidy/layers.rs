//! Who may use whom: crates lie in layers, and the pure ones reach no I/O.

use anyhow::Context;
use serde_json::Value;

use crate::repository::{self, cargo, output};

/// The layer of each crate that goes into a binary. A crate uses strictly lower layers only.
const LAYERS: &[(&str, u8)] = &[
    ("metashard-api", 0),
    ("metashard-reconcile", 1),
    ("metashard-fleet", 1),
    ("metashard-proto", 2),
    ("metashard-runtime", 2),
    ("metashard-kube", 3),
    ("metashard-hook", 3),
    ("metashard-leader", 4),
    ("metashard-worker", 4),
    ("metashard-status", 4),
    ("metashard-plan", 4),
    ("metashard", 5),
    ("metashardctl", 5),
];

/// Members that never go into a binary of ours. No crate with a layer may depend on one, except for its tests.
const OUTSIDE: &[&str] = &[
    "metashard-benches",
    "metashard-testkit",
    "metashard-examples",
    "metashard-tests",
    "scale-tests",
    "xtask",
];

/// Crates without I/O.
const PURE: &[&str] = &["metashard-api", "metashard-reconcile", "metashard-fleet"];

/// What a pure crate must not reach, even through others.
const IO: &[&str] = &[
    "axum",
    "hyper",
    "kube-client",
    "kube-runtime",
    "mio",
    "rustls",
    "socket2",
    "tokio",
    "tonic",
];

/// All breaches in this workspace.
pub(super) fn breaches() -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for package in repository::packages(true)? {
        let name = package["name"].as_str().context("read a package's name")?;
        let uses: Vec<&str> = package["dependencies"]
            .as_array()
            .context("read a package's dependencies")?
            .iter()
            .filter(|it| it["kind"] != "dev")
            .filter_map(|it| it["name"].as_str())
            .collect();
        found.extend(of_package(name, &uses));
        found.extend(without_lints(name, &package)?);
    }
    for name in PURE {
        let tree = output(cargo().args([
            "tree",
            "--locked",
            "--package",
            name,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ]))?;
        found.extend(of_pure(name, &tree));
    }
    Ok(found)
}

fn layer(name: &str) -> Option<u8> {
    let found = LAYERS.iter().find(|(it, _)| *it == name);
    found.map(|(_, layer)| *layer)
}

/// Breaches of a package that uses the packages `uses`.
fn of_package(name: &str, uses: &[&str]) -> Vec<String> {
    let Some(own) = layer(name) else {
        return if OUTSIDE.contains(&name) {
            Vec::new()
        } else {
            vec![format!(
                "{name}: has no layer; give it one in xtask/src/tidy/layers.rs"
            )]
        };
    };
    let forbidden =
        |used: &&&str| OUTSIDE.contains(used) || layer(used).is_some_and(|it| it >= own);
    uses.iter()
        .filter(forbidden)
        .map(|used| format!("{name}: must not use {used}, which is not in a lower layer"))
        .collect()
}

/// Breaches of a pure package, from the names that `cargo tree` prints for it.
fn of_pure(name: &str, tree: &str) -> Vec<String> {
    let reached = tree.lines().filter_map(|line| line.split(' ').next());
    let mut found: Vec<String> = reached
        .filter(|it| IO.contains(it))
        .map(|it| format!("{name}: is pure and must not reach {it}"))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// A member that does not take over the workspace's lints.
fn without_lints(name: &str, package: &Value) -> anyhow::Result<Option<String>> {
    let manifest = package["manifest_path"]
        .as_str()
        .context("read a manifest's path")?;
    let text = std::fs::read_to_string(manifest).with_context(|| format!("read {manifest}"))?;
    let inherits = text.contains("[lints]\nworkspace = true");
    Ok((!inherits).then(|| format!("{name}: its manifest lacks `[lints] workspace = true`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_may_use_lower_layers_only() {
        assert!(of_package("metashard-worker", &["metashard-kube", "tokio"]).is_empty());

        let found = of_package(
            "metashard-worker",
            &["metashard-leader", "metashard", "metashard-api"],
        );

        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn the_test_kit_goes_into_no_binary() {
        assert_eq!(
            of_package("metashard-kube", &["metashard-testkit"]).len(),
            1
        );
        assert!(of_package("xtask", &["metashard-testkit"]).is_empty());
    }

    #[test]
    fn a_new_crate_must_be_given_a_layer() {
        assert_eq!(of_package("metashard-common", &[]).len(), 1);
    }

    #[test]
    fn a_pure_crate_that_reaches_io_through_another_is_found() {
        let tree =
            "metashard-fleet v0.1.0 (path)\nsmallvec v1.15.0\ntokio v1.54.0\ntokio v1.54.0 (*)";

        let found = of_pure("metashard-fleet", tree);

        assert_eq!(found, ["metashard-fleet: is pure and must not reach tokio"]);
    }
}
