//! Files that are made from others: the CRDs below `deploy/crds`, and the page on compatibility.

use std::{fs, io::ErrorKind, path::PathBuf};

use anyhow::{Context, bail};

use crate::{compatibility, repository, talk};

/// Writes the generated files; with `check` only compares them.
///
/// # Errors
/// With `check` if a file differs; else if one cannot be written.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let mut different = Vec::new();
    for (path, text) in files()? {
        if is_current(&path, &text)? {
            continue;
        }
        let shown = path
            .strip_prefix(repository::root())
            .unwrap_or(&path)
            .display()
            .to_string();
        if check {
            different.push(shown);
        } else {
            fs::write(&path, text).with_context(|| format!("write {shown}"))?;
            talk::say(&format!("wrote {shown}"));
        }
    }
    if different.is_empty() {
        Ok(())
    } else {
        bail!(
            "run `cargo xtask generate`: it would change {}",
            different.join(", ")
        )
    }
}

/// Each generated file with its content.
fn files() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let folder = repository::root().join("deploy/crds");
    let crds = metashard_api::crd::all().into_iter().map(|crd| {
        let name = format!("{}.yaml", crd.spec.names.plural);
        let yaml = serde_saphyr::to_string(&crd).with_context(|| format!("write {name}"))?;
        Ok((
            folder.join(name),
            format!("# Written by `cargo xtask generate`.\n{yaml}"),
        ))
    });
    crds.chain(compatibility::page().transpose()).collect()
}

fn is_current(path: &PathBuf, text: &str) -> anyhow::Result<bool> {
    match fs::read_to_string(path) {
        Ok(found) => Ok(found == text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn generated_files_are_those_that_the_code_makes() {
        super::run(true).unwrap();
    }
}
