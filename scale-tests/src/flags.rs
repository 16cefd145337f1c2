//! Flags, and what each scenario takes where a flag is missing.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use serde_json::{Value, json};

/// Runs a scenario on real processes and judges it. Exit code 1: a bound was broken.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Flags {
    /// What to run.
    #[arg(value_enum)]
    pub(crate) scenario: Name,
    /// Replicas of metashard.
    #[arg(long)]
    replicas: Option<usize>,
    /// API servers on one etcd: 1 or 2. Replicas are spread over them, and chaos kills one of them at a time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    api_servers: u8,
    /// Controllers.
    #[arg(long)]
    controllers: Option<usize>,
    /// Parents of each controller.
    #[arg(long)]
    parents: Option<usize>,
    /// Children of each parent.
    #[arg(long)]
    children: Option<usize>,
    /// How long the measured part goes on.
    #[arg(long = "for", value_parser = duration)]
    length: Option<Duration>,
    /// Time between two edits of a parent (not burst).
    #[arg(long, value_parser = duration)]
    every: Option<Duration>,
    /// Time between two faults.
    #[arg(long, value_parser = duration, default_value = "5s")]
    fault_every: Duration,
    /// How long hooks take, in milliseconds: a number, or a range that the controllers are spread over.
    #[arg(long, value_parser = range)]
    hook_ms: Option<(u64, u64)>,
    /// Events of each kind (failover).
    #[arg(long)]
    events: Option<usize>,
    /// Kinds of events or faults, in place of all of the scenario; may be given several times.
    #[arg(long = "kind")]
    kinds: Vec<String>,
    /// Decides which faults come when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where results go.
    #[arg(long, default_value = "target/scale-tests")]
    out: PathBuf,
    /// The program of a replica. Default: as cargo built it beside this one.
    #[arg(long)]
    metashard: Option<PathBuf>,
    /// A Metacontroller-compatible program, to be run as one process in place of all replicas.
    #[arg(long, value_name = "BINARY")]
    peer: Option<PathBuf>,
    /// What replicas are planted with, such as `break=ProofBeforeOwner`: needs a debug build with feature `mutants`.
    #[arg(long, default_value = "")]
    plant: String,
    /// The longest time that a shard may be without a live owner.
    #[arg(long, value_parser = duration, default_value = "10s")]
    unowned_bound: Duration,
    /// Do not use network namespaces, which need root and iproute2; links are then not cut.
    #[arg(long)]
    no_namespaces: bool,
}

/// A scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// Edits at a rate.
    Steady,
    /// All parents edited at once, and as many created at once, again and again.
    Burst,
    /// A fault every few seconds.
    Chaos,
    /// One kind of fault after the other, each alone, and what it costs.
    Failover,
    /// Replicas replaced one after the other, as a Deployment does.
    RollingUpdate,
    /// Controllers by the hundred.
    ManyControllers,
    /// One controller with half of all work.
    HotController,
}

/// How a scenario runs.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) scenario: Name,
    pub(crate) replicas: usize,
    pub(crate) api_servers: u8,
    pub(crate) controllers: usize,
    pub(crate) parents: usize,
    pub(crate) children: usize,
    pub(crate) length: Duration,
    pub(crate) every: Duration,
    pub(crate) fault_every: Duration,
    /// Of the quickest and of the slowest controller.
    pub(crate) hook: (Duration, Duration),
    pub(crate) events: usize,
    pub(crate) kinds: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) out: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) is_peer: bool,
    pub(crate) plant: String,
    pub(crate) unowned_bound: Duration,
    pub(crate) has_namespaces: bool,
}

/// What a scenario takes where a flag is missing.
struct Defaults {
    replicas: usize,
    controllers: usize,
    parents: usize,
    length: Duration,
    every: Duration,
    hook_ms: (u64, u64),
}

impl Name {
    /// As on the command line.
    pub(crate) fn text(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |it| it.get_name().to_owned())
    }

    /// How often processes are asked for their metrics. To answer takes as long as some syncs: where CPU is what counts, it is
    /// no oftener than a Prometheus asks; where replicas are lost, what a leader sees may last a moment only.
    pub(crate) const fn scraped_every(self) -> Duration {
        match self {
            Self::Chaos | Self::Failover | Self::RollingUpdate => Duration::from_millis(500),
            Self::Steady | Self::Burst | Self::ManyControllers | Self::HotController => {
                Duration::from_secs(15)
            }
        }
    }

    const fn defaults(self) -> Defaults {
        let (replicas, controllers, parents) = match self {
            Self::Steady | Self::Burst => (3, 10, 20),
            Self::RollingUpdate => (4, 8, 1),
            Self::Chaos => (4, 50, 1),
            Self::Failover => (3, 8, 1),
            Self::ManyControllers => (3, 500, 1),
            Self::HotController => (4, 9, 8),
        };
        let (seconds, every_ms, hook_ms) = match self {
            Self::Chaos => (300, 1000, (5, 500)),
            Self::Failover => (3 * 3600, 100, (5, 5)),
            Self::HotController => (180, 1000, (5, 5)),
            Self::RollingUpdate => (120, 100, (5, 5)),
            Self::ManyControllers => (60, 10_000, (5, 5)),
            Self::Steady | Self::Burst => (60, 2000, (5, 5)),
        };
        Defaults {
            replicas,
            controllers,
            parents,
            length: Duration::from_secs(seconds),
            every: Duration::from_millis(every_ms),
            hook_ms,
        }
    }
}

impl Flags {
    /// Fills in what is missing.
    pub(crate) fn settings(self) -> anyhow::Result<Settings> {
        let defaults = self.scenario.defaults();
        let (quick, slow) = self.hook_ms.unwrap_or(defaults.hook_ms);
        let is_peer = self.peer.is_some();
        let program = match self.peer.or(self.metashard) {
            Some(path) => path,
            None => metashard_testkit::replica::binary()?,
        };
        ensure!(program.is_file(), "find {}", program.display());
        let needs_fleet = matches!(self.scenario, Name::Failover | Name::RollingUpdate);
        ensure!(!(is_peer && needs_fleet), "a peer has no replicas to lose");
        let settings = Settings {
            scenario: self.scenario,
            replicas: if is_peer {
                1
            } else {
                self.replicas.unwrap_or(defaults.replicas)
            },
            api_servers: self.api_servers,
            controllers: self.controllers.unwrap_or(defaults.controllers),
            parents: self.parents.unwrap_or(defaults.parents),
            children: self.children.unwrap_or(1),
            length: self.length.unwrap_or(defaults.length),
            every: self.every.unwrap_or(defaults.every),
            fault_every: self.fault_every,
            hook: (Duration::from_millis(quick), Duration::from_millis(slow)),
            events: self.events.unwrap_or(50),
            kinds: self.kinds,
            seed: self.seed,
            out: self.out,
            program,
            is_peer,
            plant: self.plant,
            unowned_bound: self.unowned_bound,
            has_namespaces: !self.no_namespaces && !is_peer,
        };
        let all = [settings.replicas, settings.controllers, settings.parents];
        ensure!(all.iter().all(|it| *it > 0), "nothing to run");
        Ok(settings)
    }
}

impl Settings {
    /// For the results.
    pub(crate) fn json(&self) -> Value {
        json!({
            "replicas": self.replicas,
            "api_servers": self.api_servers,
            "controllers": self.controllers,
            "parents": self.parents,
            "children": self.children,
            "for_seconds": self.length.as_secs_f64(),
            "every_seconds": self.every.as_secs_f64(),
            "fault_every_seconds": self.fault_every.as_secs_f64(),
            "hook_ms": [self.hook.0.as_millis(), self.hook.1.as_millis()],
            "events": self.events,
            "kinds": self.kinds,
            "seed": self.seed,
            "peer": self.is_peer,
            "plant": self.plant,
        })
    }

    /// How long the hook of a controller takes: spread evenly on a scale of factors.
    pub(crate) fn hook_takes(&self, controller: usize) -> Duration {
        let (quick, slow) = self.hook;
        let last = self.controllers.saturating_sub(1).max(1);
        #[expect(
            clippy::cast_precision_loss,
            reason = "numbers of controllers are small"
        )]
        let place = controller as f64 / last as f64;
        let factor = slow.as_secs_f64() / quick.as_secs_f64().max(1e-4);
        quick.mul_f64(factor.max(1.0).powf(place))
    }
}

/// `500ms`, `5s`, `5m`.
fn duration(text: &str) -> anyhow::Result<Duration> {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let number: u64 = digits.parse().context("read a number")?;
    let unit = text.strip_prefix(digits).unwrap_or_default();
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(60 * number)),
        _ => anyhow::bail!("a unit of ms, s or m"),
    }
}

/// `5` or `5-500`.
fn range(text: &str) -> anyhow::Result<(u64, u64)> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let range = (low.parse()?, high.parse()?);
    ensure!(range.0 <= range.1, "the smaller number first");
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_ranges_have_an_order() {
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(duration("5m").unwrap(), Duration::from_mins(5));
        assert!(duration("5").is_err());
        assert_eq!(range("5").unwrap(), (5, 5));
        assert_eq!(range("5-500").unwrap(), (5, 500));
        assert!(range("500-5").is_err());
    }
}
