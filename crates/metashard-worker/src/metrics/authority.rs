//! How long this worker may still act, read when it is asked for.

use std::sync::Arc;

use arc_swap::ArcSwap;
use metashard_fleet::worker::Standing;
use metashard_runtime::clock::Clock;
use prometheus::{
    Error, Gauge,
    core::{Collector, Desc},
    proto::MetricFamily,
};

/// Shows the time until the acting deadline.
#[derive(Debug)]
pub(crate) struct AuthorityMetric {
    standing: Arc<ArcSwap<Standing>>,
    clock: Clock,
    remaining: Gauge,
}

impl AuthorityMetric {
    /// Reads from `standing`.
    ///
    /// # Errors
    ///
    /// Never: the name is well-formed.
    pub(crate) fn new(standing: Arc<ArcSwap<Standing>>, clock: Clock) -> Result<Self, Error> {
        let remaining = Gauge::new(
            "metashard_worker_authority_remaining_seconds",
            "How long this worker may still act without another renewal of its Lease; 0 if it may not.",
        )?;
        Ok(Self {
            standing,
            clock,
            remaining,
        })
    }
}

impl Collector for AuthorityMetric {
    fn desc(&self) -> Vec<&Desc> {
        self.remaining.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let deadline = self.standing.load().deadline();
        let left = self.clock.now().boot.until(deadline);
        self.remaining.set(left.as_secs_f64());
        self.remaining.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use metashard_fleet::time::Now;
    use metashard_runtime::clock::ManualClock;
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn a_worker_that_is_no_member_may_not_act() {
        let clock = ManualClock::new(Now::default(), SystemTime::UNIX_EPOCH);
        let metric = AuthorityMetric::new(Arc::default(), clock.clock()).unwrap();

        let text = TextEncoder::new().encode_to_string(&metric.collect());

        let line = "metashard_worker_authority_remaining_seconds 0";
        assert!(text.unwrap().lines().any(|it| it == line));
    }
}
