//! House rules that neither the compiler nor clippy knows, checked by a test.

mod documents;
mod files;
mod layers;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use crate::{repository, talk};

/// Folders that hold nothing that a person wrote here.
const SKIPPED_FOLDERS: &[&str] = &["target", "node_modules"];

/// Says every breach of a rule.
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
        n => bail!("{n} breaches of the house rules"),
    }
}

/// Every breach of a rule in the repository, as `where: what`.
fn breaches() -> anyhow::Result<Vec<String>> {
    let mut found = layers::breaches()?;
    for path in all_files()? {
        let shown = path.to_string_lossy().replace('\\', "/");
        // What is not text is not ours to judge.
        let Ok(text) = fs::read_to_string(repository::root().join(&path)) else {
            continue;
        };
        found.extend(files::breaches(&shown, &text));
        if path.extension().is_some_and(|it| it == "md") {
            let exists = |link: &Path| repository::root().join(link).exists();
            found.extend(documents::broken_links(&shown, &text, &exists));
        }
    }
    Ok(found)
}

/// Paths of all files, from the root, in order.
fn all_files() -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let absolute = repository::root().join(&folder);
        let entries =
            fs::read_dir(&absolute).with_context(|| format!("list {}", absolute.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("list {}", absolute.display()))?;
            let name = entry.file_name();
            let path = folder.join(&name);
            if entry.file_type().context("look at a file")?.is_dir() {
                let name = name.to_string_lossy();
                if name != ".git" && !SKIPPED_FOLDERS.contains(&name.as_ref()) {
                    folders.push(path);
                }
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_keeps_its_house_rules() {
        assert_eq!(super::breaches().unwrap(), Vec::<String>::new());
    }
}
