//! The demo with a person: a board that is drawn four times a second, and keys. Without a terminal: the news alone.

use std::time::Duration;

use anyhow::Context;
use tokio::time::{MissedTickBehavior, interval};

use super::{
    board::Board, screen::Screen, snapshot::Snapshot, stage::Stage, story::changes,
    takeover::Takeover, tenants::cast,
};
use crate::talk::{length, say};

/// Time between two looks.
const TICK: Duration = Duration::from_millis(250);

/// What goes on until a person ends it.
struct Show<'a> {
    stage: &'a mut Stage,
    screen: Option<Screen>,
    snapshot: Snapshot,
    news: Vec<(Duration, String)>,
    takeover: Option<Takeover>,
    /// Number of edits by key, to go round the controllers.
    edits: usize,
}

/// Plays until `q` or Ctrl-C.
///
/// # Errors
/// If the terminal fails. A cluster that does not answer for a while is shown, not an error.
pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    let screen = Screen::take()?;
    let mut show = Show {
        stage,
        screen,
        snapshot: Snapshot::default(),
        news: Vec::new(),
        takeover: None,
        edits: 0,
    };
    show.tell("3 replicas have started; one will lead, all will work".to_owned());
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            _ = ticks.tick() => show.look().await?,
            key = next_key(&mut show.screen) => {
                if key == 'q' {
                    return Ok(());
                }
                if let Err(error) = show.press(key).await {
                    show.tell(format!("that did not work: {error:#}"));
                }
            }
            outcome = &mut interrupt => return outcome.context("wait for Ctrl-C"),
        }
    }
}

async fn next_key(screen: &mut Option<Screen>) -> char {
    match screen {
        Some(screen) => screen.key().await,
        None => std::future::pending().await,
    }
}

impl Show<'_> {
    /// Reads the present state, tells what is new, and draws.
    async fn look(&mut self) -> anyhow::Result<()> {
        match self.stage.read().await {
            Ok(now) => {
                for sentence in changes(&self.snapshot, &now) {
                    self.tell(sentence);
                }
                self.snapshot = now;
                self.measure();
            }
            Err(error) => self.tell(format!("the cluster does not answer: {error:#}")),
        }
        self.draw()
    }

    /// Tells how long a take-over has taken, once it is over.
    fn measure(&mut self) {
        let Some(takeover) = &mut self.takeover else {
            return;
        };
        takeover.look(&self.snapshot);
        if !takeover.is_over() {
            return;
        }
        let sentence = format!(
            "take-over of {}: its {} controllers resumed after {}; those of the others waited at most {}",
            takeover.victim,
            takeover.orphans.len(),
            length(takeover.of_orphans()),
            length(takeover.of_others()),
        );
        self.takeover = None;
        self.tell(sentence);
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        let Some(screen) = &mut self.screen else {
            return Ok(());
        };
        let replicas: Vec<(String, Option<Duration>)> = self
            .stage
            .actors
            .iter()
            .map(|it| (it.name.clone(), it.died.map(|at| at.elapsed())))
            .collect();
        let board = Board {
            place: &self.stage.place,
            kubeconfig: &self.stage.kubeconfig.to_string_lossy(),
            elapsed: self.stage.start.elapsed(),
            replicas: &replicas,
            snapshot: &self.snapshot,
            news: &self.news,
        };
        screen.draw(&board.lines())
    }

    fn tell(&mut self, sentence: String) {
        let time = self.stage.start.elapsed();
        // The same complaint four times a second is no news.
        if self.news.last().is_some_and(|(_, last)| *last == sentence) {
            return;
        }
        if self.screen.is_none() {
            say(&format!("{:>6.1} s  {sentence}", time.as_secs_f64()));
        }
        self.news.push((time, sentence));
    }

    async fn press(&mut self, key: char) -> anyhow::Result<()> {
        match key {
            'k' => self.kill().await,
            'l' => {
                self.stage.take_lead().await?;
                self.tell("a stranger's name is in the leader's Lease: the leader stops leading, all workers go on".to_owned());
                Ok(())
            }
            'e' => {
                let cast = cast();
                let cast = &cast[self.edits % cast.len()];
                self.edits += 1;
                let (name, generation) = self.stage.edit(cast).await?;
                self.tell(format!("{name} was edited (generation {generation})"));
                Ok(())
            }
            'a' => {
                let name = self.stage.add_replica()?;
                self.tell(format!("{name} is starting"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Kills the busiest worker that does not lead, unless it is the last replica.
    async fn kill(&mut self) -> anyhow::Result<()> {
        let leader = self.snapshot.leader.clone();
        let running = self.stage.actors.iter().filter(|it| it.replica.is_some());
        let names: Vec<String> = running.map(|it| it.name.clone()).collect();
        if names.len() < 2 {
            self.tell("the last replica is spared; add one first".to_owned());
            return Ok(());
        }
        let load = |name: &&String| {
            (
                leader.as_ref() != Some(*name),
                self.snapshot.served_by(name).len(),
            )
        };
        let Some(victim) = names.iter().max_by_key(load) else {
            return Ok(());
        };
        let orphans: Vec<String> = self
            .snapshot
            .served_by(victim)
            .into_iter()
            .map(str::to_owned)
            .collect();
        let served = if orphans.is_empty() {
            "nothing".to_owned()
        } else {
            orphans.join(", ")
        };
        let died = self.stage.kill(victim)?;
        self.tell(format!(
            "{victim} was killed by SIGKILL; it served {served}"
        ));
        self.tell(
            "its Lease runs out; then the leader fences it and gives its shards to the others, who go on meanwhile"
                .to_owned(),
        );
        let edits = self.stage.edit_all().await?;
        self.takeover = Some(Takeover::new(victim, orphans, died, edits));
        Ok(())
    }
}
