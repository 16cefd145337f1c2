//! Makes checks one after another, and says how they went as the usual harness does.

use std::{env, panic, process::ExitCode};

use crate::{
    checks,
    seeds::{child, happen},
};

/// Its name, and what it does: it panics if it fails.
pub(crate) type Check = (&'static str, fn());

/// Makes the checks whose names contain one of the arguments, or all. In a child, lets a history happen instead.
pub(crate) fn main(all: &[Check]) -> ExitCode {
    if let Some((seed, mutant, talks)) = child() {
        happen(seed, mutant.map(checks::mutant), talks);
        return ExitCode::SUCCESS;
    }
    let (flags, names): (Vec<_>, Vec<_>) = env::args().skip(1).partition(|it| it.starts_with('-'));
    let is_asked = |name: &str| names.is_empty() || names.iter().any(|it| name.contains(it));
    let asked: Vec<&Check> = all.iter().filter(|(name, _)| is_asked(name)).collect();
    if flags.iter().any(|it| it == "--list") {
        for (name, _) in asked {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", asked.len());
    let mut failed = 0;
    for (name, check) in &asked {
        let passes = panic::catch_unwind(check).is_ok();
        println!("test {name} ... {}", if passes { "ok" } else { "FAILED" });
        failed += usize::from(!passes);
    }
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out\n",
        if failed == 0 { "ok" } else { "FAILED" },
        asked.len() - failed,
        all.len() - asked.len(),
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(101)
    }
}
