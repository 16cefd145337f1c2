//! The command line as Go's programs take it: `-flag` or `--flag`, then `=` or a blank before the value.
//!
//! Metacontroller's Deployments are written that way, so what worked there works here. A flag given twice counts
//! once, with its last value. Anything that is no flag is refused: Metacontroller would silently stop reading there.

use std::ffi::OsString;

use clap::{
    CommandFactory, FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::options::Options;

/// Reads the command line; the first argument is the program's name.
///
/// # Errors
///
/// Where a flag is unknown or has no or a wrong value. Help and version come as errors too, see [`is_answer`].
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Options, clap::Error> {
    let mut command = Options::command().args_override_self(true);
    let mut args = args.peekable();
    let mut normal: Vec<OsString> = args.next().into_iter().collect();
    while let Some(arg) = args.next() {
        let Some(flag) = arg.to_str().and_then(flag) else {
            normal.push(arg);
            continue;
        };
        let mut long = OsString::from(format!("--{flag}"));
        if takes_next(&command, flag)
            && let Some(value) = args.next()
        {
            long.push("=");
            long.push(value);
        }
        normal.push(long);
    }
    let matches = command.try_get_matches_from_mut(normal).map_err(|error| {
        // Without it the usage is told of some mistakes only.
        with_usage(error, &mut command)
    })?;
    Options::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// A mistake that only the check of the options finds, told as the others are.
pub(crate) fn mistake(message: &str) -> String {
    let mut command = Options::command();
    command
        .error(ErrorKind::ValueValidation, message)
        .to_string()
}

fn with_usage(mut error: clap::Error, command: &mut clap::Command) -> clap::Error {
    if !is_answer(&error) {
        let usage = ContextValue::StyledStr(command.render_usage());
        error.insert(ContextKind::Usage, usage);
    }
    error
}

/// Whether this is what was asked for (help, version) and not a mistake.
pub(crate) fn is_answer(error: &clap::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    )
}

/// The flag without its dashes, with its value if there is one.
fn flag(arg: &str) -> Option<&str> {
    match arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'))? {
        "" => None,
        "h" => Some("help"),
        flag => Some(flag),
    }
}

/// Whether the value is the next argument. Flags that can go without one take it after `=` only.
fn takes_next(command: &clap::Command, flag: &str) -> bool {
    command
        .get_arguments()
        .filter(|argument| argument.get_long() == Some(flag))
        .any(|argument| argument.get_action().takes_values() && !argument.is_require_equals_set())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, clap::Error> {
        let args = std::iter::once("metashard").chain(args.iter().copied());
        super::parse(args.map(OsString::from))
    }

    #[test]
    fn flags_are_read_in_every_form_of_go() {
        for args in [
            &["-workers", "20"][..],
            &["--workers", "20"],
            &["-workers=20"],
            &["--workers=20"],
            &["--workers=3", "-workers", "20"],
        ] {
            assert_eq!(parse(args).unwrap().worker.workers, 20, "{args:?}");
        }
    }

    #[test]
    fn a_value_may_begin_with_a_dash() {
        let options = parse(&["--client-go-qps", "-1", "--target-label-selector", "-x=y"]).unwrap();

        assert_eq!(options.kube.client_go_qps, Some(-1.0));
        assert_eq!(options.worker.target_label_selector, "-x=y");
    }

    #[test]
    fn switches_take_their_value_after_an_equals_sign_only() {
        let devel = |args: &[&str]| parse(args).map(|options| options.log.devel);

        for on in [
            &["--zap-devel"][..],
            &["-zap-devel=true"],
            &["--zap-devel=T"],
            &["--zap-devel=1"],
        ] {
            assert!(devel(on).unwrap(), "{on:?}");
        }
        for off in [
            &[][..],
            &["--zap-devel=false"],
            &["-zap-devel=0"],
            &["--zap-devel", "--zap-devel=F"],
        ] {
            assert!(!devel(off).unwrap(), "{off:?}");
        }
        assert!(devel(&["--zap-devel", "false"]).is_err());
        assert!(devel(&["--zap-devel=maybe"]).is_err());
    }

    #[test]
    fn what_is_no_flag_of_ours_is_refused_and_help_is_no_mistake() {
        for args in [
            &["--no-such-flag"][..],
            &["-v=4"],
            &["word"],
            &["--workers"],
            &["-"],
            &["--", "--workers=1"],
        ] {
            let error = parse(args).unwrap_err();
            assert!(!is_answer(&error), "{args:?}: {error}");
        }
        for args in [&["--help"][..], &["-help"], &["-h"], &["--version"]] {
            assert!(is_answer(&parse(args).unwrap_err()), "{args:?}");
        }
    }
}
