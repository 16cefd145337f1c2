//! Fail-over of real replicas on a real API server, judged by what their hook saw.
//!
//! A program of its own, one test at a time: whatever else runs at the same time is measured too.

mod clock;
mod fleet;
mod history;
mod meddled;
mod moves;
mod sharing;
mod splits;
mod versions;

use std::{convert::Infallible, time::Duration};

use anyhow::{Context, ensure};
use metashard_api::names::SYSTEM_NAMESPACE;
use metashard_testkit::wait::throughout;
use rustix::process::Signal;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use crate::fleet::Fleet;

/// What a crash may cost the controllers of the replica that crashed: a Lease of 4 s, and the take-over, which is 6 s at
/// most on a machine of its own; the rest is for machines that are busy with something else. The figures are printed.
const CRASH: Duration = Duration::from_secs(10);

/// What anything else may cost: half a second for those who are handed over, nothing for the others, and the same rest.
const HAND_OVER: Duration = Duration::from_secs(4);

/// How long a replica is frozen: longer than its Lease lasts and its successor takes.
const FROZEN: Duration = Duration::from_secs(8);

/// Default of `--drain-hook-grace`.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

/// Replicas that work and stand for election.
const ALL: [&str; 3] = ["alpha", "beta", "gamma"];

/// Their role.
const ALL_ROLES: &str = "--role=all";

/// One fault that a fleet goes through.
struct Scenario<'a> {
    name: &'a str,
    fleet: &'a Fleet,
    /// The replica that is hit; empty: none.
    victim: &'a str,
    /// What may happen to its controllers.
    bound: Duration,
}

/// Only one test runs at a time.
async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

impl Scenario<'_> {
    /// Goes through `fault`, waits until all is served, and judges what the hook saw meanwhile.
    #[expect(clippy::print_stdout, reason = "the figures, for people")]
    async fn judge(&self, fault: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
        let Self {
            name,
            fleet,
            victim,
            bound,
        } = *self;
        fleet.is_at_rest().await?;
        fleet.forget();
        fleet.is_served().await?;
        let owners = fleet.owners().await?;
        let is_hit = |path: &str| owners.get(path).is_some_and(|owner| owner == victim);
        ensure!(
            victim.is_empty() || owners.values().any(|owner| owner == victim),
            "{victim} has nothing to lose: {owners:?}"
        );

        fault.await?;
        fleet.is_served().await?;

        let end = Instant::now();
        let history = fleet.history();
        let gaps = history.gaps(end);
        let (hit, others) = (gaps.longest(is_hit), gaps.longest(|path| !is_hit(path)));
        println!("{name}: {hit:?} for those of the replica, {others:?} for others; all:{gaps}");
        history.is_exclusive()?;
        ensure!(hit <= bound, "{name}: a gap of {hit:?}");
        ensure!(
            others <= HAND_OVER,
            "{name}: a gap of {others:?} for others"
        );
        Ok(())
    }
}

/// Goes through `faults` while `edits` go on.
async fn while_edited(
    edits: impl Future<Output = anyhow::Result<Infallible>>,
    faults: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::select! {
        outcome = faults => outcome,
        Err(error) = edits => Err(error),
    }
}

async fn crash(fleet: &mut Fleet, victim: &'static str, name: &str) -> anyhow::Result<()> {
    let scenario = Scenario {
        name,
        fleet,
        victim,
        bound: CRASH,
    };
    let fault = async {
        fleet.signal(victim, Signal::KILL)?;
        fleet.is_left_by(victim).await
    };
    scenario.judge(fault).await?;
    fleet.replace(victim, ALL_ROLES).await?;
    fleet.is_shared_by(&ALL).await
}

async fn leave(fleet: &mut Fleet, victim: &'static str, name: &str) -> anyhow::Result<()> {
    let scenario = Scenario {
        name,
        fleet,
        victim,
        bound: HAND_OVER,
    };
    let fault = async {
        fleet.signal(victim, Signal::TERM)?;
        fleet.is_left_by(victim).await
    };
    scenario.judge(fault).await?;
    fleet.has_ended(victim).await
}

async fn freeze(fleet: &Fleet, victim: &'static str) -> anyhow::Result<()> {
    let scenario = Scenario {
        name: "follower frozen for 8 s",
        fleet,
        victim,
        bound: CRASH,
    };
    let fault = async {
        let thaws = Instant::now() + FROZEN;
        fleet.signal(victim, Signal::STOP)?;
        fleet.is_left_by(victim).await?;
        let rest = thaws.saturating_duration_since(Instant::now());
        throughout(rest, "others to serve", async || {
            fleet.is_left_by(victim).await
        })
        .await?;
        fleet.signal(victim, Signal::CONT)?;
        fleet.is_shared_by(&ALL).await
    };
    scenario.judge(fault).await
}

async fn lose_lead(fleet: &Fleet) -> anyhow::Result<()> {
    fleet.is_at_rest().await?;
    let before = fleet.map().await?;
    let scenario = Scenario {
        name: "lead taken away",
        fleet,
        victim: "",
        bound: HAND_OVER,
    };
    let fault = async {
        fleet.take_lead_away().await?;
        fleet.is_led("").await?;
        Ok(())
    };
    scenario.judge(fault).await?;
    let after = fleet.map().await?;
    ensure!(after.term > before.term, "nobody leads anew");
    ensure!(after.shards == before.shards, "shards were moved");
    Ok(())
}

#[tokio::test]
async fn replicas_that_crash_freeze_leave_or_lose_the_lead_are_replaced_in_time_and_never_doubled()
-> anyhow::Result<()> {
    let _turn = turn().await;
    let mut fleet = Fleet::start(&ALL.map(|name| (name, ALL_ROLES)), SYSTEM_NAMESPACE).await?;
    let edits = fleet.edit();
    let fleet = &mut fleet;
    let faults = Box::pin(async {
        fleet.is_shared_by(&ALL).await?;

        lose_lead(fleet).await?;
        let leader = fleet.is_led("").await?;
        crash(fleet, leader, "leader killed").await?;
        let follower = fleet.follower().await?;
        crash(fleet, follower, "follower killed").await?;
        let follower = fleet.follower().await?;
        freeze(fleet, follower).await?;

        let leader = fleet.is_led("").await?;
        leave(fleet, leader, "leader shut down").await?;
        fleet.replace(leader, ALL_ROLES).await?;
        fleet.is_shared_by(&ALL).await?;
        let follower = fleet.follower().await?;
        leave(fleet, follower, "follower shut down").await?;
        fleet.is_sound()
    });
    while_edited(edits, faults).await
}

#[tokio::test]
async fn hook_that_outlasts_a_drain_is_called_anew_elsewhere_and_holds_up_no_other_controller()
-> anyhow::Result<()> {
    let _turn = turn().await;
    let both = ["alpha", "beta"];
    let mut fleet = Fleet::start(&both.map(|name| (name, ALL_ROLES)), SYSTEM_NAMESPACE).await?;
    let edits = fleet.edit();
    let fleet = &mut fleet;
    let faults = Box::pin(async {
        fleet.is_shared_by(&both).await?;
        fleet.is_at_rest().await?;
        let victim = fleet.follower().await?;
        let owners = fleet.owners().await?;
        let mut its = owners.iter().filter(|(_, owner)| *owner == victim);
        let (slow, _) = its.next().context("the victim has a controller")?;
        ensure!(its.next().is_some(), "the victim has a single controller");

        fleet.slow_down(slow, 10 * DRAIN_GRACE);
        fleet.forget();
        fleet.is_called(slow, 1).await?;
        fleet.signal(victim, Signal::TERM)?;
        fleet.is_called(slow, 2).await?;
        fleet.has_ended(victim).await?;

        let gaps = fleet.history().gaps(Instant::now());
        println!("hook call during a drain:{gaps}");
        let others = gaps.longest(|path| path != slow);
        ensure!(others <= HAND_OVER, "a gap of {others:?} for others");
        let waited = fleet.history().gap_between(slow, 0, 1)?;
        ensure!(
            (DRAIN_GRACE..DRAIN_GRACE + HAND_OVER).contains(&waited),
            "called anew after {waited:?}"
        );
        fleet.is_sound()
    });
    while_edited(edits, faults).await
}

#[tokio::test]
async fn workers_without_lead_and_leaders_without_work_share_a_fleet() -> anyhow::Result<()> {
    let _turn = turn().await;
    let replicas = [
        ("lead-1", "--role=leader"),
        ("lead-2", "--role=leader"),
        ("work-1", "--role=worker"),
        ("work-2", "--role=worker"),
    ];
    let mut fleet = Fleet::start(&replicas, "elections").await?;
    let edits = fleet.edit();
    let fleet = &mut fleet;
    let faults = Box::pin(async {
        fleet.is_shared_by(&["work-1", "work-2"]).await?;
        let leader = fleet.is_led("").await?;
        fleet.is_at_rest().await?;
        let before = fleet.map().await?;

        let crash = Scenario {
            name: "leader without work killed",
            fleet,
            victim: "",
            bound: HAND_OVER,
        };
        let fault = async {
            fleet.signal(leader, Signal::KILL)?;
            fleet.is_led(leader).await?;
            Ok(())
        };
        crash.judge(fault).await?;
        let shards = fleet.map().await?.shards;
        ensure!(shards == before.shards, "shards were moved");

        leave(fleet, "work-1", "worker shut down").await?;
        fleet.is_sound()
    });
    while_edited(edits, faults).await
}
