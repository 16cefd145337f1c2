//! A controller that no fault concerns: by it a test proves that others do not suffer from the one it makes.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use metashard_testkit::wait;
use serde_json::json;
use tokio::{sync::OnceCell, time::Instant};

use super::support::{CONFIG_MAP, ControllerBuilder, Stage, THING, WITHIN, config_map};

/// Its one parent is synced ten times a second.
const PERIOD_SECONDS: f64 = 0.1;

/// Longest time between two of its syncs that counts as unharmed: far more than a busy machine needs, far less than the
/// time-outs, backoffs and Leases by which a fault could hold it up.
const LONGEST_GAP: Duration = Duration::from_secs(4);

/// Syncs that a look at it takes in at least.
const ENOUGH: usize = 10;

/// A controller that is well, in the same process as one that is not.
pub(crate) struct Canary {
    stage: Stage,
}

/// The syncs of a canary from a moment on.
pub(crate) struct Watch {
    canary: Arc<Canary>,
    began: Instant,
}

impl Canary {
    /// The one that the shared replica serves.
    pub(crate) async fn shared() -> anyhow::Result<Arc<Self>> {
        static CANARY: OnceCell<Arc<Canary>> = OnceCell::const_new();
        let canary = CANARY
            .get_or_try_init(async || Self::start(Stage::new("canary").await?, |it| it).await)
            .await?;
        Ok(Arc::clone(canary))
    }

    /// One on a stage of its own; its controller can be `changed`, for example in who serves it.
    pub(crate) async fn start(
        stage: Stage,
        change: impl FnOnce(ControllerBuilder<'_>) -> ControllerBuilder<'_>,
    ) -> anyhow::Result<Arc<Self>> {
        let controller = stage.controller().child(CONFIG_MAP, "InPlace");
        change(controller).apply().await?;
        let spec = json!({
            "children": [config_map("egg", json!({}))],
            "resyncAfterSeconds": PERIOD_SECONDS,
        });
        stage.parent(THING, "canary", spec).await?;
        stage.objects(CONFIG_MAP).appears("egg").await?;
        Ok(Arc::new(Self { stage }))
    }

    /// Looks at it from now on.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        Watch {
            canary: Arc::clone(self),
            began: Instant::now(),
        }
    }
}

impl Watch {
    /// Its syncs went on all the time.
    pub(crate) async fn is_unharmed(&self) -> anyhow::Result<()> {
        let moments = wait::eventually(WITHIN, "the canary's syncs", async || {
            let mut moments = vec![self.began];
            let calls = self.canary.stage.hook.calls();
            moments.extend(calls.iter().map(|call| Instant::from_std(call.received)));
            moments.retain(|moment| *moment >= self.began);
            ensure!(moments.len() > ENOUGH, "only {}", moments.len() - 1);
            Ok(moments)
        })
        .await?;
        let longest = moments.windows(2).map(|pair| pair[1] - pair[0]).max();
        let longest = longest.unwrap_or_default();
        ensure!(
            longest <= LONGEST_GAP,
            "the canary was not synced for {longest:?}"
        );
        Ok(())
    }
}
