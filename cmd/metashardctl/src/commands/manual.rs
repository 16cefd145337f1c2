//! Completion scripts and man pages.

use std::path::Path;

use anyhow::Context;
use clap_complete::Shell;

use crate::{Found, argv, output::Output};

pub(super) fn completions(shell: Shell, output: &mut Output) -> anyhow::Result<Found> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut argv::command(None), "metashardctl", &mut script);
    output.text(&String::from_utf8(script)?)?;
    Ok(Found::Same)
}

/// One page for the tool and one for each command.
pub(super) fn pages(folder: &Path, output: &mut Output) -> anyhow::Result<Found> {
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    clap_mangen::generate_to(argv::command(None), folder)
        .with_context(|| format!("write man pages to {}", folder.display()))?;
    output.line(&format!("man pages are in {}", folder.display()))?;
    Ok(Found::Same)
}
