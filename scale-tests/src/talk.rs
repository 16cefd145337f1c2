//! What is said to people while a scenario runs.

#![expect(clippy::print_stderr, reason = "the one place that talks")]

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Says one line.
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

/// A bar over seconds or events.
pub(crate) fn bar(steps: usize, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64).with_message(what.to_owned());
    let style = ProgressStyle::with_template("{msg:<32} {wide_bar} {pos}/{len} {elapsed}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
