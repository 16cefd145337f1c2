//! Programs that a check needs and that a machine may lack.

use std::{
    env,
    process::{Command, Stdio},
};

use anyhow::bail;

use crate::talk::{Tone, say, toned};

/// Set in CI: a check whose program is missing fails, where on a user's machine it is left out.
const REQUIRED: &str = "METASHARD_REQUIRE_TOOLS";

/// Whether `program` is installed. If not, says so, and that `consequence`.
///
/// # Errors
/// If it is not, and the environment says that all must be.
pub(crate) fn is_there(program: &str, consequence: &str) -> anyhow::Result<bool> {
    let found = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_ok() {
        return Ok(true);
    }
    let text = format!("{program} is not installed: {consequence}");
    if env::var_os(REQUIRED).is_some() {
        bail!("{text}, and {REQUIRED} is set");
    }
    say(&toned(Tone::Bad, &format!("SKIPPED: {text}")));
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_there_is_found_and_another_is_not() {
        assert!(is_there("git", "nothing").unwrap());
        assert!(!is_there("no-such-program", "nothing").unwrap_or(false));
    }
}
