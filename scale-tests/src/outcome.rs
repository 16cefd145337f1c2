//! What came of a run: figures with bounds, findings, a table for people, JSON and a plot for later.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use serde_json::{Value, json};

use crate::{flags::Settings, plot};

/// How many findings are told one by one.
const TOLD: usize = 20;

/// One number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    /// The most that it may be.
    bound: Option<f64>,
}

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    figures: Vec<Figure>,
    /// What must not happen, and did.
    findings: Vec<String>,
    /// Figures of each kind of event.
    pub(crate) kinds: Vec<Kind>,
    pub(crate) plot: plot::Plot,
}

/// Times of one kind of event.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kind {
    pub(crate) name: String,
    /// What the times are of.
    pub(crate) what: &'static str,
    pub(crate) times: Vec<Duration>,
    /// The most that the slowest may be.
    pub(crate) bound: Option<Duration>,
}

impl Figure {
    fn is_broken(&self) -> bool {
        self.bound.is_some_and(|bound| self.value > bound)
    }
}

impl Kind {
    /// The smallest of the times that at least `percent` of them do not exceed.
    pub(crate) fn at(&self, percent: usize) -> Duration {
        percentile(&self.times, percent)
    }
}

/// The smallest of `times` that at least `percent` of them do not exceed; zero of none.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(rank).copied().unwrap_or_default()
}

impl Outcome {
    /// Adds a number that nothing is asked of.
    pub(crate) fn tell(&mut self, name: &str, value: f64, unit: &'static str) {
        self.add(name, value, unit, None);
    }

    /// Adds a number that may be `bound` at most.
    pub(crate) fn judge(&mut self, name: &str, value: f64, unit: &'static str, bound: f64) {
        self.add(name, value, unit, Some(bound));
    }

    fn add(&mut self, name: &str, value: f64, unit: &'static str, bound: Option<f64>) {
        self.figures.push(Figure {
            name: name.to_owned(),
            // A sum of nothing is -0.
            value: value + 0.0,
            unit,
            bound,
        });
    }

    /// Adds what must not happen.
    pub(crate) fn found(&mut self, finding: String) {
        self.findings.push(finding);
    }

    /// Whether no bound is broken, and nothing was found.
    pub(crate) fn is_good(&self) -> bool {
        let is_slow = |kind: &Kind| kind.bound.is_some_and(|bound| kind.at(99) > bound);
        self.findings.is_empty()
            && !self.figures.iter().any(Figure::is_broken)
            && !self.kinds.iter().any(is_slow)
    }

    /// For people.
    pub(crate) fn table(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        for figure in &self.figures {
            let bound = match figure.bound {
                Some(bound) if figure.is_broken() => format!("BROKEN: at most {bound}"),
                Some(bound) => format!("at most {bound}"),
                None => String::new(),
            };
            let (name, value, unit) = (&figure.name, figure.value, figure.unit);
            writeln!(text, "  {name:<44} {value:>10.3} {unit:<6} {bound}")?;
        }
        if !self.kinds.is_empty() {
            writeln!(
                text,
                "\n  {:<28} {:<26} {:>6} {:>9} {:>9} {:>9}",
                "event", "time", "events", "p50 ms", "p99 ms", "max ms"
            )?;
        }
        for kind in &self.kinds {
            let millis = |percent| kind.at(percent).as_millis();
            let bound = match kind.bound {
                Some(bound) if kind.at(99) > bound => {
                    format!("BROKEN: p99 at most {} ms", bound.as_millis())
                }
                Some(bound) => format!("p99 at most {} ms", bound.as_millis()),
                None => String::new(),
            };
            writeln!(
                text,
                "  {:<28} {:<26} {:>6} {:>9} {:>9} {:>9}  {bound}",
                kind.name,
                kind.what,
                kind.times.len(),
                millis(50),
                millis(99),
                millis(100),
            )?;
        }
        if !self.findings.is_empty() {
            writeln!(text, "\n  {} findings", self.findings.len())?;
        }
        for finding in self.findings.iter().take(TOLD) {
            let short: String = finding.chars().take(600).collect();
            writeln!(text, "  - {short}")?;
        }
        Ok(text)
    }

    /// Writes `<scenario>.json` and `<scenario>.svg`; returns the first.
    pub(crate) fn write(&self, settings: &Settings) -> anyhow::Result<PathBuf> {
        let folder: &Path = &settings.out;
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        let name = settings.scenario.text();
        let path = folder.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(&self.json(settings))?;
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        let svg = folder.join(format!("{name}.svg"));
        fs::write(&svg, self.plot.svg(&name)?)
            .with_context(|| format!("write {}", svg.display()))?;
        Ok(path)
    }

    fn json(&self, settings: &Settings) -> Value {
        let figures = self.figures.iter().map(|it| {
            json!({
                "name": it.name,
                "value": it.value,
                "unit": it.unit,
                "bound": it.bound,
            })
        });
        let kinds = self.kinds.iter().map(|it| {
            json!({
                "event": it.name,
                "time": it.what,
                "p50_ms": it.at(50).as_millis(),
                "p99_ms": it.at(99).as_millis(),
                "max_ms": it.at(100).as_millis(),
                "bound_ms": it.bound.map(|bound| bound.as_millis()),
                "all_ms": it.times.iter().map(Duration::as_millis).collect::<Vec<_>>(),
            })
        });
        json!({
            "scenario": settings.scenario.text(),
            "settings": settings.json(),
            "good": self.is_good(),
            "figures": figures.collect::<Vec<_>>(),
            "events": kinds.collect::<Vec<_>>(),
            "findings": self.findings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let times: Vec<_> = (1..=50).map(Duration::from_millis).collect();

        assert_eq!(percentile(&times, 50), Duration::from_millis(25));
        assert_eq!(percentile(&times, 99), Duration::from_millis(50));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }

    #[test]
    fn a_broken_bound_or_a_finding_makes_a_run_bad() {
        let mut outcome = Outcome::default();
        outcome.judge("overlaps", 0.0, "", 0.0);
        assert!(outcome.is_good());

        outcome.judge("lost updates", 1.0, "", 0.0);
        assert!(!outcome.is_good());
        assert!(outcome.table().unwrap().contains("BROKEN"));

        let mut outcome = Outcome::default();
        outcome.found("I1: two at once".to_owned());
        assert!(!outcome.is_good());
    }
}
