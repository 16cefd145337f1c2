//! Syncs of every parent that nothing but time asks for.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::Instance;

impl Instance {
    /// Syncs every parent again and again, until `cancel`.
    pub(super) async fn resync(self: Arc<Self>, cancel: CancellationToken) {
        let general = self.context.config.flush_interval;
        let period = period_of(self.controller.resync_period, general);
        let mut next = self.context.clock.now().mono;
        loop {
            next = next + period;
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.context.clock.sleep_until(next) => self.force_all(),
            }
        }
    }
}

/// How often parents are synced: at their controller's own period, also if it is the longer one.
fn period_of(own: Option<Duration>, general: Duration) -> Duration {
    own.unwrap_or(general)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controllers_own_period_counts_whichever_is_longer() {
        let [second, minute] = [Duration::from_secs(1), Duration::from_mins(1)];

        assert_eq!(period_of(Some(minute), second), minute);
        assert_eq!(period_of(Some(second), minute), second);
        assert_eq!(period_of(None, minute), minute);
    }
}
