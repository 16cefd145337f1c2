//! `test`: cases of syncs.

use std::path::{Path, PathBuf};

use anyhow::Context;
use metashard_plan::case::{self, Suite, Verdict};
use metashard_runtime::clock::Clock;

use crate::{Found, argv::Test, output::Output};

/// Ending of the files of cases that are found in folders.
const CASES: &str = ".test.yaml";

pub(super) async fn run(flags: &Test, output: &mut Output) -> anyhow::Result<Found> {
    let clock = Clock::system();
    let mut suites = Vec::new();
    for file in &flags.files {
        for file in files(file)? {
            let suite = case::run(&file, flags.update, &clock).await?;
            tell(&suite, output)?;
            suites.push(suite);
        }
    }
    if let Some(file) = &flags.junit {
        std::fs::write(file, case::junit(&suites))
            .with_context(|| format!("write {}", file.display()))?;
    }
    let verdicts = || {
        suites
            .iter()
            .flat_map(|it| &it.results)
            .map(|it| &it.verdict)
    };
    let good = verdicts().filter(|it| it.is_good()).count();
    let all = verdicts().count();
    let are = if all == 1 { "case is" } else { "cases are" };
    output.line(&format!("{good} of {all} {are} as expected"))?;
    Ok(if verdicts().any(|it| matches!(it, Verdict::Failed(_))) {
        Found::Failed
    } else if good < all {
        Found::Differs
    } else {
        Found::Same
    })
}

fn tell(suite: &Suite, output: &mut Output) -> anyhow::Result<()> {
    let file = suite.file.display();
    for result in &suite.results {
        let name = &result.name;
        match &result.verdict {
            Verdict::Same => output.line(&format!("ok       {file}: {name}"))?,
            Verdict::Updated => output.line(&format!("updated  {file}: {name}"))?,
            Verdict::Failed(text) => output.line(&format!("error    {file}: {name}: {text}"))?,
            Verdict::Differs(lines) => {
                output.line(&format!("differs  {file}: {name}"))?;
                for line in lines {
                    output.line(&format!("  {line}"))?;
                }
            }
        }
    }
    Ok(())
}

/// The file itself, or the files of cases in a folder.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder);
        for entry in entries.with_context(|| format!("list {}", folder.display()))? {
            let path = entry
                .with_context(|| format!("list {}", folder.display()))?
                .path();
            let is_cases = path.to_string_lossy().ends_with(CASES);
            if path.is_dir() {
                folders.push(path);
            } else if is_cases && !case::is_expectation(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    anyhow::ensure!(!found.is_empty(), "{} holds no *{CASES}", path.display());
    Ok(found)
}
