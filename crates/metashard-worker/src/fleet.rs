//! The driver of the worker machine: its Lease, the map, the session, and the commands to the code that runs shards.
//!
//! All decisions are `metashard_fleet::worker`'s. This loop hands it what happened, and starts what it asks for; the
//! result comes back as an input.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use metashard_api::{
    id::{Incarnation, ReplicaId},
    names::WORKER_LEASE_PREFIX,
};
use metashard_fleet::{
    lease,
    message::{Claim, FromWorker},
    monitor::WorkerMonitor,
    record::{About, Written},
    recording::{History, Machine},
    rules::Rules,
    time::MonoTime,
    worker::{self, Action, Input, Loss, Phase, Standing, Worker},
};
use metashard_kube::{
    informer::Informers,
    lease::Leases,
    shard_map::{MapWatch, ShardMaps},
};
use metashard_runtime::{
    clock::Clock,
    log::chain,
    metrics::Violations,
    net::Dialer,
    pulse::Pulse,
    shutdown::Token,
    task::{Ended, Tasks},
    tls::{self, Authority},
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tracing::{debug, error, info, warn};

use crate::{
    session::{Connector, Event, Session, follow},
    shards::{ShardCommand, ShardEvent},
};

/// How a worker takes part in the fleet.
#[derive(Debug, Clone)]
pub struct Config {
    /// `--replica-name`.
    pub replica: ReplicaId,
    /// What it says of itself in its Lease.
    pub about: About,
    /// `--lease-duration`: whole seconds, at least 2; default 4 s.
    pub lease_duration: Duration,
    /// `--drain-hook-grace`: how long running hook calls may take in a drain without a leader; default 2 s.
    pub drain_hook_grace: Duration,
    /// Time for handing over at shutdown; then the worker ends with what is left.
    pub shutdown_grace: Duration,
    /// `--leader-election-id`: the leader's Lease.
    pub leader_lease: String,
    /// All rules, except in a simulation of a mutant.
    pub rules: Rules,
}

/// What the driver works with.
#[derive(Debug)]
pub struct Parts {
    /// Time.
    pub clock: Clock,
    /// Shared watches.
    pub informers: Informers,
    /// Leases of the system namespace, where the worker's own is.
    pub leases: Leases,
    /// Leases of the namespace of the leader's Lease.
    pub leader_leases: Leases,
    /// The ShardMap.
    pub maps: ShardMaps,
    /// Issues the certificates for sessions.
    pub authority: Arc<Authority>,
    /// Opens the connections of sessions.
    pub dialer: Dialer,
    /// Where broken invariants are counted.
    pub violations: Violations,
}

/// What others see of the worker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    /// What it may do at this moment. Load it for each decision: it is replaced at every change.
    pub standing: Arc<ArcSwap<Standing>>,
    /// Changes after each change of `standing`.
    pub changed: watch::Receiver<()>,
    /// After each answer about its Lease: since when all its renewals succeeded, if they do.
    pub renewals: watch::Receiver<Option<MonoTime>>,
    /// What its machine was told lately.
    pub history: Arc<Mutex<History<Worker>>>,
}

/// The driver.
#[derive(Debug)]
pub struct Fleet {
    clock: Clock,
    worker: Worker,
    history: Arc<Mutex<History<Worker>>>,
    monitor: WorkerMonitor,
    violations: Violations,
    leases: Leases,
    maps: ShardMaps,
    map_changes: MapWatch,
    connector: Arc<Connector>,
    session: Option<Session>,
    shutdown_grace: Duration,
    /// Requests under way; each gives an input.
    requests: Tasks<Input>,
    /// Inputs that this driver answers by itself.
    inputs: VecDeque<Input>,
    /// Commands that the shards' code has no room for yet.
    commands: VecDeque<ShardCommand>,
    standing: Arc<ArcSwap<Standing>>,
    changed: watch::Sender<()>,
    renewals: watch::Sender<Option<MonoTime>>,
    /// What was not drained, once the worker has left.
    unfinished: Option<Vec<Claim>>,
    _leader_watch: Tasks<()>,
}

impl Fleet {
    /// Puts the parts together and begins to watch; joins nothing yet.
    ///
    /// # Errors
    ///
    /// When the authority's own certificate cannot be used.
    pub fn new(config: Config, parts: Parts) -> Result<(Self, Handle), tls::Error> {
        let Parts {
            clock,
            informers,
            leases,
            leader_leases,
            maps,
            authority,
            dialer,
            violations,
        } = parts;
        let (leader, leader_watch) = follow(&leader_leases, &informers, &config.leader_lease);
        let replica = config.replica.clone();
        let connector = Connector::new(clock.clone(), dialer, replica, authority, leader)?;
        let worker = Worker::new(
            clock.now(),
            worker::Config {
                replica: config.replica,
                about: config.about,
                lease_duration: config.lease_duration,
                drain_hook_grace: config.drain_hook_grace,
                rules: config.rules,
            },
        );
        let standing = Arc::new(ArcSwap::new(Arc::clone(worker.standing())));
        let (changed, signal) = watch::channel(());
        let (renewals, renewed) = watch::channel(None);
        let history = Arc::new(Mutex::new(History::new(&worker)));
        let handle = Handle {
            standing: Arc::clone(&standing),
            changed: signal,
            renewals: renewed,
            history: Arc::clone(&history),
        };
        let fleet = Self {
            map_changes: maps.watch(&informers),
            connector: Arc::new(connector),
            session: None,
            shutdown_grace: config.shutdown_grace,
            requests: Tasks::new(),
            inputs: VecDeque::new(),
            commands: VecDeque::new(),
            unfinished: None,
            _leader_watch: leader_watch,
            clock,
            worker,
            history,
            monitor: WorkerMonitor::default(),
            violations,
            leases,
            maps,
            standing,
            changed,
            renewals,
        };
        Ok((fleet, handle))
    }

    /// Takes part in the fleet until `shutdown` is asked for and all is handed over, or its grace period is over.
    /// Returns what was not drained by then.
    ///
    /// `events` has to be emptied by this loop only; it never waits for room in `commands` without doing so.
    pub async fn run(
        mut self,
        commands: mpsc::Sender<ShardCommand>,
        mut events: mpsc::Receiver<ShardEvent>,
        shutdown: Token,
    ) -> Vec<Claim> {
        let mut is_leaving = false;
        let pulse = Pulse::of("fleet", &self.clock);
        self.step(None);
        loop {
            pulse.beat();
            if let Some(unfinished) = self.unfinished.take() {
                return unfinished;
            }
            let input = tokio::select! {
                seen = self.map_changes.next() => Some(Input::MapSeen(seen)),
                Some(ended) = self.requests.join_next() => Some(self.input_of(ended)),
                Some(event) = events.recv() => self.take_event(event),
                event = next_event(&mut self.session) => Some(match event {
                    Event::Opened => Input::SessionOpened,
                    Event::Ordered(order) => Input::OrderReceived(order),
                    Event::Closed => Input::SessionClosed,
                }),
                permit = commands.reserve(), if !self.commands.is_empty() => {
                    match (permit, self.commands.pop_front()) {
                        (Ok(permit), Some(command)) => permit.send(command),
                        // Nobody runs shards any more, and no ping will be answered.
                        (Ok(_) | Err(_), _) => self.commands.clear(),
                    }
                    continue;
                }
                () = shutdown.requested(), if !is_leaving => {
                    is_leaving = true;
                    Some(Input::ShutdownAsked { grace: self.shutdown_grace })
                }
                () = self.clock.sleep_until_some(self.worker.poll_timeout()) => None,
                () = pulse.next() => continue,
            };
            self.step(input);
        }
    }

    /// Hands one input to the machine, or tells it that time has passed, and starts what it asks for.
    fn step(&mut self, input: Option<Input>) {
        let mut next = Some(input);
        while let Some(input) = next {
            let now = self.clock.now();
            let mut actions = Vec::new();
            let is_renewal = matches!(input, Some(Input::LeaseAnswered { .. }));
            let inputs: Vec<Input> = input.into_iter().collect();
            let before = Arc::clone(self.worker.standing());
            self.worker.step(now, inputs.clone(), &mut actions);
            let after = self.worker.standing();
            for it in self.monitor.look(now, &inputs, &before, &actions, after) {
                self.violations.saw("worker", it.id(), &it);
            }
            let mut history = self.history.lock();
            history.note(&self.worker, now, inputs, &actions);
            drop(history);
            if is_renewal {
                self.renewals.send_replace(self.worker.renewing_since(now));
            }
            // What is lost has to be known everywhere before anybody is told to stop.
            self.publish();
            for action in actions {
                self.carry_out(action);
            }
            next = self.inputs.pop_front().map(Some);
        }
    }

    fn publish(&mut self) {
        let standing = self.worker.standing();
        let last = self.standing.load();
        if Arc::ptr_eq(&last, standing) {
            return;
        }
        log_phase(&last, standing);
        self.standing.store(Arc::clone(standing));
        self.changed.send_replace(());
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::ReadMap => {
                let maps = self.maps.clone();
                self.requests.spawn("map-read", async move {
                    let seen = maps.read().await.inspect_err(|error| {
                        warn!(error = chain(error), "ShardMap not read");
                    });
                    Input::MapRead(seen.ok())
                });
            }
            Action::DrawIncarnation => {
                let incarnation = Incarnation::new(uuid::Uuid::new_v4().to_string());
                info!(%incarnation, "joining");
                self.inputs.push_back(Input::IncarnationDrawn(incarnation));
            }
            Action::Lease {
                incarnation,
                request,
            } => self.send_lease_request(incarnation, request),
            Action::OpenSession(incarnation) => {
                self.session = Some(Session::open(Arc::clone(&self.connector), incarnation));
            }
            Action::CloseSession => self.session = None,
            Action::Send(message) => self.send(message),
            Action::ReportLoss(loss) => log_loss(&loss),
            Action::Finish { unfinished } => self.unfinished = Some(unfinished),
            Action::PingDispatcher => self.command(ShardCommand::Ping),
            Action::Warm(shard) => self.command(ShardCommand::Warm(shard)),
            Action::Start { claim, freshness } => {
                debug!(shard = %claim.shard, epoch = %claim.epoch, ?freshness, "shard assigned");
                self.command(ShardCommand::Start { claim, freshness });
            }
            Action::Drain { claim, grace } => {
                debug!(shard = %claim.shard, epoch = %claim.epoch, "shard drains");
                self.command(ShardCommand::Drain { claim, grace });
            }
            Action::Drop(claim) => {
                debug!(shard = %claim.shard, epoch = %claim.epoch, "shard lost");
                self.command(ShardCommand::Drop { claim });
            }
            Action::Suspend => self.command(ShardCommand::Suspend),
            Action::Resume => self.command(ShardCommand::Resume),
        }
    }

    /// Commands wait here, in order, and [`Self::run`] sends them as there is room.
    fn command(&mut self, command: ShardCommand) {
        // One unanswered ping says as much as several.
        if command != ShardCommand::Ping || !self.commands.contains(&command) {
            self.commands.push_back(command);
        }
    }

    fn send_lease_request(&mut self, incarnation: Incarnation, request: lease::Request) {
        let leases = self.leases.clone();
        self.requests.spawn("lease-request", async move {
            let name = format!("{WORKER_LEASE_PREFIX}{incarnation}");
            let answer = leases.carry_out(&name, &request).await;
            Input::LeaseAnswered {
                incarnation,
                answer,
            }
        });
    }

    fn send(&mut self, message: FromWorker) {
        if let Some(session) = &mut self.session {
            session.send(message);
        }
    }

    /// The input that a request ended with. One that panicked counts as one without an answer; of the three kinds of
    /// answers the machine takes the one that it waits for.
    fn input_of(&mut self, ended: Ended<Input>) -> Input {
        ended.result.unwrap_or_else(|_| {
            if let Some(incarnation) = self.worker.incarnation() {
                let no_answer = |answer| Input::LeaseAnswered {
                    incarnation: incarnation.clone(),
                    answer,
                };
                self.inputs.extend([
                    no_answer(lease::Input::Read(None)),
                    no_answer(lease::Input::Written(Written::Unknown)),
                ]);
            }
            Input::MapRead(None)
        })
    }

    fn take_event(&mut self, event: ShardEvent) -> Option<Input> {
        Some(match event {
            ShardEvent::DispatcherAlive => Input::DispatcherAnswered,
            ShardEvent::Warmed(shard) => Input::Warmed(shard),
            ShardEvent::Fresh { claim } => Input::Fresh(claim),
            ShardEvent::Drained {
                claim,
                last_written,
            } => Input::Drained {
                claim,
                last_written,
            },
            ShardEvent::Load(load) => {
                self.send(FromWorker::Load(load));
                return None;
            }
        })
    }
}

/// The next event of the session; without one, never.
async fn next_event(session: &mut Option<Session>) -> Event {
    match session {
        Some(session) => session.next().await,
        None => std::future::pending().await,
    }
}

fn log_phase(last: &Standing, now: &Standing) {
    if last.phase() == now.phase() {
        return;
    }
    match now.phase() {
        Phase::Member => {
            let incarnation = now.incarnation().map(Incarnation::as_str);
            info!(incarnation, "member of the fleet");
        }
        Phase::Suspended => warn!("suspended: the Lease was not renewed in time"),
        Phase::Ending => info!("waiting for the last requests of the lost membership"),
        Phase::Leaving => info!("leaving: handing over what is held"),
        Phase::Left => info!("left the fleet"),
        Phase::Starting | Phase::Joining => {}
    }
}

fn log_loss(loss: &Loss) {
    match loss {
        Loss::Lease(seen) => warn!(?seen, "membership lost: the Lease is not ours any more"),
        Loss::MapReplaced => warn!("membership lost: the ShardMap was made anew"),
        Loss::MapWentBack => error!("membership lost: the API server shows an older ShardMap"),
        Loss::ShardsRenumbered => {
            error!("membership lost: somebody gave the ShardMap another number of shards");
        }
    }
}
