//! What chores say to people: on standard error, as standard output is for data.

#![expect(clippy::print_stderr, reason = "the one place that talks")]

use std::{env, io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// Says one line.
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

/// A colour of the terminal's palette, chosen by meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Odd,
    Quiet,
    Strong,
}

/// `text` in a colour, if standard error is a terminal that wants colours.
pub(crate) fn toned(tone: Tone, text: &str) -> String {
    if std::io::stderr().is_terminal() {
        coloured(tone, text)
    } else {
        text.to_owned()
    }
}

/// `text` in a colour for a terminal, unless the user wants none.
pub(crate) fn coloured(tone: Tone, text: &str) -> String {
    if env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty()) {
        return text.to_owned();
    }
    let code = match tone {
        Tone::Good => 32,
        Tone::Bad => 31,
        Tone::Odd => 33,
        Tone::Quiet => 2,
        Tone::Strong => 1,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// A length of time for people: `0.4 s`, `12 s`, `3 min 5 s`.
pub(crate) fn length(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        _ => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// A bar that counts to `total`; drawn only on a terminal.
pub(crate) fn bar(total: u64, what: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{prefix} [{bar:40}] {pos}/{len} {elapsed} {wide_msg:.dim}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
    let bar = ProgressBar::new(total)
        .with_style(style)
        .with_prefix(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A sign of life for work of unknown length; drawn only on a terminal.
pub(crate) fn spinner(what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg:.dim}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let spinner = ProgressBar::new_spinner()
        .with_style(style)
        .with_prefix(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_as_exact_as_a_person_wants_them() {
        let texts = [400, 12_300, 185_000].map(|it| length(Duration::from_millis(it)));

        assert_eq!(texts, ["0.4 s", "12 s", "3 min 5 s"]);
    }
}
