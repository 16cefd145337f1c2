//! The people's tool: what would be written, why it was, and what is wrong. As a kubectl plug-in: `kubectl metashard`.

mod age;
mod argv;
mod cluster;
mod commands;
mod fleet;
mod output;
mod replica;
mod table;

use std::{env, process::ExitCode};

use crate::output::Output;

/// What a command found; its exit code follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// What was asked for, and no difference.
    Same,
    /// A difference, or something that is wrong.
    Differs,
    /// It could not be found out.
    Failed,
}

/// Exit code after an error, as that of `diff`: 0 and 1 are answers.
const ERROR: u8 = 2;

/// Exit code when nobody reads what is written: that of a program that SIGPIPE ends.
const CLOSED_PIPE: u8 = 141;

fn main() -> ExitCode {
    let cli = match argv::parse(env::args_os()) {
        Ok(cli) => cli,
        Err(answer) => return told(&answer),
    };
    metashard_runtime::tls::install_provider();
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    match runtime.block_on(commands::run(cli, &mut Output::stdout())) {
        Ok(Found::Same) => ExitCode::SUCCESS,
        Ok(Found::Differs) => ExitCode::from(1),
        Ok(Found::Failed) => ExitCode::from(ERROR),
        Err(error) => failed(&error),
    }
}

/// Help and versions go to the standard output, mistakes to the other.
fn told(answer: &clap::Error) -> ExitCode {
    // Nowhere is left to complain to.
    let printed = answer.print();
    if answer.use_stderr() || printed.is_err() {
        ExitCode::from(ERROR)
    } else {
        ExitCode::SUCCESS
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    if output::is_closed_pipe(error) {
        return ExitCode::from(CLOSED_PIPE);
    }
    let text = metashard_runtime::log::chain(error.as_ref());
    output::complain(&format!("error: {text}"));
    ExitCode::from(ERROR)
}
