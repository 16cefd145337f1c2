//! Tests that need what a machine may lack.

use std::{env, fs};

use anyhow::ensure;

/// Set where a tool that is missing is a failure.
const REQUIRED: &str = "METASHARD_REQUIRE_TOOLS";

/// Says that a test is skipped.
///
/// # Errors
/// Where nothing may be missing, as in CI.
pub fn skip(test: &str, why: &str) -> anyhow::Result<()> {
    ensure!(
        env::var_os(REQUIRED).is_none(),
        "{why}, and {REQUIRED} is set"
    );
    // Written to the terminal itself: the test runner keeps what is printed by tests that pass.
    drop(fs::write(
        "/dev/stderr",
        format!("\nSKIPPED: {test}: {why}\n"),
    ));
    Ok(())
}
