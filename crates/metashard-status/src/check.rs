//! Checks: named facts about the process, reported by those who know them.

use tokio::sync::watch;

/// Whether one thing is as it should be.
#[derive(Debug, Clone)]
pub struct Check {
    name: &'static str,
    state: watch::Receiver<Result<(), String>>,
}

/// Where a check is reported to. Dropping it makes the check fail for good: whoever knew has ended.
#[derive(Debug)]
pub struct Reporter(watch::Sender<Result<(), String>>);

/// Makes a check that fails, for the reason given, until something is reported.
///
/// `name` is part of a URL: lower-case letters, digits and hyphens.
pub fn new(name: &'static str, reason: &str) -> (Reporter, Check) {
    let (sender, state) = watch::channel(Err(reason.to_owned()));
    (Reporter(sender), Check { name, state })
}

impl Check {
    /// A check of a state that somebody publishes already.
    pub fn of(name: &'static str, state: watch::Receiver<Result<(), String>>) -> Self {
        Self { name, state }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What was reported last.
    ///
    /// # Errors
    ///
    /// The reason why it is not as it should be.
    pub fn state(&self) -> Result<(), String> {
        if self.state.has_changed().is_err() {
            return Err("no longer reported".to_owned());
        }
        self.state.borrow().clone()
    }
}

impl Reporter {
    /// It is as it should be.
    pub fn ok(&self) {
        self.report(Ok(()));
    }

    /// It is not, for this reason.
    pub fn failed(&self, reason: impl Into<String>) {
        self.report(Err(reason.into()));
    }

    /// Reports either.
    pub fn report(&self, state: Result<(), String>) {
        self.0.send_modify(|known| *known = state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_fails_until_it_is_reported_and_after_its_reporter_is_gone() {
        let (reporter, check) = new("cache", "not filled yet");
        assert_eq!(check.state(), Err("not filled yet".to_owned()));

        reporter.ok();
        assert_eq!(check.state(), Ok(()));

        reporter.failed("lost");
        assert_eq!(check.state(), Err("lost".to_owned()));

        reporter.ok();
        drop(reporter);
        assert_eq!(check.state(), Err("no longer reported".to_owned()));
    }
}
