//! The real tasks of leader and worker on a simulated network, with an API server in memory, under faults that a seed
//! decides. Each history is the same every time; what it breaks is found by the invariants that models and checkers use.
//!
//! `METASHARD_SEEDS=10000` runs more of them, `METASHARD_SEED=7` shows one.
//!
//! The program has a harness of its own: where clocks are simulated, the usual one waits for a test by asking for the
//! time in a loop, and that takes one processor from the histories.

#[cfg(test)]
mod checks;
#[cfg(test)]
mod dice;
#[cfg(test)]
mod facts;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod network;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod replica;
#[cfg(test)]
mod run;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod shards;
#[cfg(test)]
mod store;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(test)]
    return harness::main(checks::ALL);
    #[cfg(not(test))]
    ExitCode::FAILURE
}
