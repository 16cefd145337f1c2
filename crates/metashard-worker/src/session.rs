//! The session with whoever leads: finds the leader, connects, and connects again, as one incarnation.
//!
//! A session proves nothing and may break at any time: the Lease says who lives, the map who owns what.

mod connect;
mod leader;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use metashard_api::{id::Incarnation, shard_map::MAX_SHARDS};
use metashard_fleet::message::{FromLeader, FromWorker};
use metashard_proto::wire;
use metashard_runtime::{clock::Clock, log::chain, task::Tasks};
use tokio::sync::{Notify, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tracing::{debug, info, warn};

pub(crate) use self::{
    connect::Connector,
    leader::{Leader, follow},
};

/// Least and most time between two attempts to connect; drawn anew each time, so that workers do not come all at once.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Messages that wait for a slow leader. The most that can come at once is a release of every shard.
const OUTBOX: usize = 2 * MAX_SHARDS as usize;

/// Orders that wait for this worker; the leader waits once it is full.
const INBOX: usize = 64;

/// What happened on a session.
#[derive(Debug)]
pub(crate) enum Event {
    /// It is open: what is sent now reaches a leader, if it lasts.
    Opened,
    /// The leader sent this.
    Ordered(FromLeader),
    /// It is closed; another one is tried.
    Closed,
}

/// Sessions of one incarnation, one after the other. Dropping it closes the current one and opens no more.
#[derive(Debug)]
pub(crate) struct Session {
    events: mpsc::Receiver<Inner>,
    outbox: Option<mpsc::Sender<wire::WorkerMessage>>,
    /// The leader does not read: give this session up.
    abandon: Arc<Notify>,
    _task: Tasks<()>,
}

#[derive(Debug)]
enum Inner {
    Opened(mpsc::Sender<wire::WorkerMessage>),
    Ordered(FromLeader),
    Closed,
}

impl Session {
    /// Begins to look for the leader.
    pub(crate) fn open(connector: Arc<Connector>, incarnation: Incarnation) -> Self {
        let (sender, events) = mpsc::channel(INBOX);
        let abandon = Arc::new(Notify::new());
        let keeper = Keeper {
            leader: connector.leader(),
            connector,
            incarnation,
            events: sender,
            abandon: Arc::clone(&abandon),
        };
        let mut task = Tasks::new();
        task.spawn("session", keeper.run());
        Self {
            events,
            outbox: None,
            abandon,
            _task: task,
        }
    }

    /// The next thing that happens. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Event {
        match self.events.recv().await {
            Some(Inner::Opened(outbox)) => {
                self.outbox = Some(outbox);
                Event::Opened
            }
            Some(Inner::Ordered(order)) => Event::Ordered(order),
            Some(Inner::Closed) => {
                self.outbox = None;
                Event::Closed
            }
            // The task has panicked: there is no leader any more for this incarnation, and it works on without one.
            None => std::future::pending().await,
        }
    }

    /// Sends on the open session; without one the message is dropped, and the next Hello says what matters.
    pub(crate) fn send(&mut self, message: FromWorker) {
        let Some(outbox) = &self.outbox else {
            return;
        };
        match outbox.try_send(message.into()) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.outbox = None;
                self.abandon.notify_one();
            }
        }
    }
}

/// How far one attempt at a session came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    Nobody,
    /// The right replica, which may not lead.
    Replica,
    /// It took the session.
    Leader,
}

/// The task behind a [`Session`].
struct Keeper {
    connector: Arc<Connector>,
    leader: watch::Receiver<Option<Leader>>,
    incarnation: Incarnation,
    events: mpsc::Sender<Inner>,
    abandon: Arc<Notify>,
}

impl Keeper {
    async fn run(mut self) {
        let clock = self.connector.clock().clone();
        let mut failures = 0;
        let mut last = None;
        loop {
            let Some(leader) = self.current_leader().await else {
                return;
            };
            if last.as_ref() != Some(&leader) {
                // How hard the last one was to reach says nothing of this one.
                failures = 0;
                last = Some(leader.clone());
            }
            let mut reached = Reached::Nobody;
            let ended = {
                let another = another_leads(self.leader.clone(), leader.clone());
                let abandoned = Arc::clone(&self.abandon);
                tokio::select! {
                    result = self.serve(&leader, &mut reached) => result,
                    () = another => Ok("another replica leads"),
                    () = abandoned.notified() => Ok("the leader does not read"),
                }
            };
            log_end(&leader, reached, ended);
            if reached > Reached::Nobody && self.events.send(Inner::Closed).await.is_err() {
                return;
            }
            failures = if reached == Reached::Leader {
                0
            } else {
                failures + 1
            };
            self.pause(&clock, &leader, failures).await;
        }
    }

    /// Waits until somebody leads; `None` at the end of the process.
    async fn current_leader(&mut self) -> Option<Leader> {
        let leader = self.leader.wait_for(Option::is_some).await.ok()?;
        leader.clone()
    }

    /// Holds one session with `leader` until it ends.
    async fn serve(
        &self,
        leader: &Leader,
        reached: &mut Reached,
    ) -> Result<&'static str, connect::Error> {
        let mut client = self.connector.connect(leader, &self.incarnation).await?;
        let (outbox, messages) = mpsc::channel(OUTBOX);
        // The Hello has to be on its way before the leader answers anything.
        if self.events.send(Inner::Opened(outbox)).await.is_err() {
            return Ok("the worker has ended");
        }
        *reached = Reached::Replica;
        let answer = client.session(ReceiverStream::new(messages)).await;
        let mut orders = answer.map_err(connect::Error::Session)?.into_inner();
        *reached = Reached::Leader;
        info!(leader = %leader.replica, address = %leader.address, "session open");
        while let Some(message) = orders.message().await.map_err(connect::Error::Session)? {
            let order = FromLeader::try_from(message).map_err(connect::Error::Order)?;
            if self.events.send(Inner::Ordered(order)).await.is_err() {
                return Ok("the worker has ended");
            }
        }
        Ok("the leader closed it")
    }

    /// Waits before the next attempt, unless another replica leads by then.
    async fn pause(&self, clock: &Clock, leader: &Leader, failures: u32) {
        let (least, most) = RECONNECT;
        let most = most.min(least.saturating_mul(1 << failures.min(10)));
        let length = least + most.saturating_sub(least).mul_f64(random());
        tokio::select! {
            () = clock.sleep(length) => {}
            () = another_leads(self.leader.clone(), leader.clone()) => {}
        }
    }
}

/// Waits until another than `leader` is known to lead. That nobody does ends no session: it may be a Lease that only
/// was not renewed in time.
async fn another_leads(mut current: watch::Receiver<Option<Leader>>, leader: Leader) {
    let changed = current.wait_for(|it| it.as_ref().is_some_and(|it| *it != leader));
    if changed.await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn log_end(leader: &Leader, reached: Reached, ended: Result<&'static str, connect::Error>) {
    let leader = &leader.replica;
    match ended {
        Ok(why) => info!(%leader, why, "session ended"),
        Err(error) if reached == Reached::Leader => {
            warn!(%leader, error = chain(&error), "session ended");
        }
        Err(error) => debug!(%leader, error = chain(&error), "no session"),
    }
}

/// A number from 0 to 1.
fn random() -> f64 {
    let bits = uuid::Uuid::new_v4().as_u64_pair().1;
    // Of the low half of a UUID the upper two bits are fixed.
    let bits = u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default();
    f64::from(bits) / f64::from(u32::MAX)
}
