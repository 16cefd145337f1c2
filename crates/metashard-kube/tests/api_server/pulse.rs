//! Views whose watch brings nothing, or whose feed fails.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, SystemTime},
};

use anyhow::ensure;
use metashard_fleet::time::{BootTime, MonoTime, Now};
use metashard_kube::{
    identity::Identity,
    informer::{Event, Subscriber, ViewKey, ViewState},
};
use metashard_runtime::{clock::ManualClock, fault};
use metashard_testkit::{Cluster, wait::eventually};
use parking_lot::Mutex;

use crate::{
    kit::{Kit, SOON, live, seen},
    proxy::Proxy,
};

const LISTS: &str = "metashard_kube_lists_total";
const ENDS: &str = "metashard_kube_watch_ends_total";
const RESTARTS: &str = "metashard_kube_feed_restarts_total";
const AGE: &str = "metashard_kube_watch_age_seconds";

const MINUTE: Duration = Duration::from_mins(1);

pub(crate) fn manual() -> ManualClock {
    let begin = Duration::from_secs(1000);
    let now = Now {
        boot: BootTime(begin),
        mono: MonoTime(begin),
    };
    ManualClock::new(now, SystemTime::UNIX_EPOCH)
}

#[tokio::test]
async fn a_watch_that_brings_nothing_for_too_long_is_replaced_without_a_list() -> anyhow::Result<()>
{
    let cluster = Cluster::shared().await?;
    let proxy = Proxy::before(cluster).await?;
    let manual = manual();
    let kit = Kit::timed(cluster, proxy.kubeconfig.clone(), manual.clock()).await?;
    let (view, recorder) = kit.open().await?;
    recorder.take();

    proxy.hold();
    kit.create("one", &[]).await?;
    manual.advance(MINUTE);
    assert!((kit.metric(AGE, "v1/configmaps") - 60.0).abs() < 0.1);
    assert!(kit.informers.stuck(MINUTE).contains("v1/configmaps"));
    eventually(SOON, "the watch to be given up", async || {
        manual.advance(Duration::from_secs(1));
        ensure!(kit.metric(ENDS, "silent") > 0.0, "it goes on");
        Ok(())
    })
    .await?;
    proxy.open();

    eventually(SOON, "a watch that brings something", async || {
        manual.advance(Duration::from_secs(1));
        ensure!(view.get(Some(&kit.namespace), "one").is_some(), "no");
        Ok(())
    })
    .await?;
    assert_eq!(recorder.take(), ["+one"]);
    assert!((kit.metric(LISTS, "v1/configmaps") - 1.0).abs() < 0.1);
    assert!(kit.metric(AGE, "v1/configmaps") < 60.0);
    Ok(())
}

#[tokio::test]
async fn a_feed_that_panics_is_begun_anew_and_its_subscribers_are_told_everything_again()
-> anyhow::Result<()> {
    let kit = Kit::shared().await?;
    kit.create("before", &[]).await?;
    let (view, recorder) = kit.open().await?;
    recorder.take();
    let panics = metashard_runtime::task::panics();

    fault::plant(&format!("panic feed {}", kit.key()));
    kit.create("one", &[]).await?;

    seen(&view, &kit.namespace, "one").await?;
    live(&view).await?;
    let mut told = recorder.take();
    told.sort_unstable();
    assert_eq!(told, ["+one", "~before"]);
    assert!((kit.metric(RESTARTS, "v1/configmaps") - 1.0).abs() < 0.1);
    assert!(metashard_runtime::task::panics() > panics);

    kit.create("two", &[]).await?;
    seen(&view, &kit.namespace, "two").await?;
    assert_eq!(recorder.take(), ["+two"]);
    Ok(())
}

/// Takes no event to its end until the sender is gone.
struct Stuck(Mutex<mpsc::Receiver<()>>);

impl Subscriber for Stuck {
    fn on_event(&self, _: Event) {
        // Not on a thread of the runtime: with it timers and sockets of the whole test might stand still.
        tokio::task::block_in_place(|| {
            // An error says that the sender is gone.
            _ = self.0.lock().recv();
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_that_is_stuck_is_named_and_one_without_rights_is_not() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let manual = manual();
    let kubeconfig = cluster.kubeconfig(metashard_testkit::cluster::ADMIN)?;
    let kit = Kit::timed(cluster, kubeconfig, manual.clock()).await?;
    let mut nothing = crate::kit::things();
    nothing.plural = "nothings".to_owned();
    let key = ViewKey::new(Identity::process(), Arc::new(nothing));
    let missing = kit.informers.open(key, None);
    eventually(SOON, "the kind to be missed", async || {
        let state = missing.state().borrow().clone();
        ensure!(matches!(state, ViewState::Failing(_)), "{state:?}");
        Ok(())
    })
    .await?;
    let (hold, receiver) = mpsc::channel::<()>();
    let stuck = Arc::new(Stuck(Mutex::new(receiver)));
    kit.create("one", &[]).await?;
    let view = kit.informers.open(kit.key(), Some(stuck as _));
    // Dropped before the view, which waits for its subscriber.
    let release = hold;

    eventually(SOON, "the stuck feed", async || {
        manual.advance(MINUTE);
        let stuck = kit.informers.stuck(3 * MINUTE);
        ensure!(stuck.iter().eq(["v1/configmaps"]), "{stuck:?}");
        Ok(())
    })
    .await?;

    drop(release);
    eventually(SOON, "the feed to go on", async || {
        manual.advance(Duration::from_secs(1));
        let stuck = kit.informers.stuck(3 * MINUTE);
        ensure!(stuck.is_empty(), "{stuck:?}");
        Ok(())
    })
    .await?;
    crate::kit::synced(&view).await
}
