//! `migrate apply` and `migrate rollback`: looks, does the one next step, and looks again.
//!
//! Each step is one write, and what is next follows from what is seen alone. So it may be interrupted between any two.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    time::Duration,
};

use metashard_fleet::time::MonoTime;
use metashard_kube::error::Error;
use metashard_plan::{
    migrate::{
        seen::Seen,
        stages::{self, Ahead, BOTH_WAYS, Next, Wishes},
    },
    suggest,
};
use metashard_runtime::log::chain;

use super::{
    act::{Done, act},
    look::{Look, Scene},
    telling::Telling,
};
use crate::{
    Found,
    argv::{Live, MigrateApply, Rollback, Way},
    output::Output,
};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// Moves to metashard.
pub(crate) async fn apply(flags: &MigrateApply, output: &mut Output) -> anyhow::Result<Found> {
    let wishes = Wishes {
        controllers: flags.controllers.clone(),
        accept_writes: flags.accept_writes,
        let_others_rest: flags.let_others_rest,
        only_observe: flags.only_observe,
    };
    let way = &flags.way;
    let mut look = Look::new(&live(way), &way.system_namespace).await?;
    let scene = look.see().await?;
    check_names(&scene.seen, &wishes)?;
    let ahead = stages::ahead(&scene.seen, &wishes);
    let walk = Walk {
        way,
        decide: &|seen| stages::apply(seen, &wishes),
        question: "Move from Metacontroller to metashard?",
    };
    walk.run(look, scene, &ahead, output).await
}

/// Goes back to Metacontroller.
pub(crate) async fn rollback(flags: &Rollback, output: &mut Output) -> anyhow::Result<Found> {
    let way = &flags.way;
    let mut look = Look::new(&live(way), &way.system_namespace).await?;
    let scene = look.see().await?;
    let ahead = stages::ahead_back(&scene.seen);
    let walk = Walk {
        way,
        decide: &stages::rollback,
        question: "Go back to Metacontroller?",
    };
    walk.run(look, scene, &ahead, output).await
}

struct Walk<'a> {
    way: &'a Way,
    decide: &'a dyn Fn(&Seen) -> Next,
    question: &'a str,
}

/// What is waited for, and until when.
struct Patience {
    limit: Duration,
    what: String,
    until: MonoTime,
}

impl Walk<'_> {
    async fn run(
        &self,
        mut look: Look,
        mut scene: Scene,
        ahead: &[Ahead],
        output: &mut Output,
    ) -> anyhow::Result<Found> {
        let mut telling = Telling::new(output, self.way.output);
        let ended = self.begin(&mut look, &mut scene, ahead, &mut telling).await;
        telling.close(&scene.seen, &ended)?;
        ended
    }

    /// Says what is ahead, asks, and goes.
    async fn begin(
        &self,
        look: &mut Look,
        scene: &mut Scene,
        ahead: &[Ahead],
        telling: &mut Telling<'_>,
    ) -> anyhow::Result<Found> {
        if let Some(found) = ended(&(self.decide)(&scene.seen), telling)? {
            return Ok(found);
        }
        telling.ahead(ahead)?;
        if self.way.dry_run {
            return Ok(Found::Same);
        }
        telling.flush()?;
        look.check_rights(&scene.seen).await?;
        if !self.way.yes {
            if !self.ask(telling)? {
                telling.end(&["Nothing was done.".to_owned()])?;
                return Ok(Found::Differs);
            }
            // Whoever was asked may have thought about it for long.
            *scene = look.see().await?;
        }
        self.go(look, scene, telling).await
    }

    async fn go(
        &self,
        look: &mut Look,
        scene: &mut Scene,
        telling: &mut Telling<'_>,
    ) -> anyhow::Result<Found> {
        let clock = look.cluster.clock.clone();
        let mut patience = Patience {
            limit: self.way.timeout,
            what: String::new(),
            until: clock.now().mono + self.way.timeout,
        };
        let mut next = (self.decide)(&scene.seen);
        loop {
            if let Some(found) = ended(&next, telling)? {
                return Ok(found);
            }
            let is_done = act(look, scene, &next).await;
            let stuck = match (&next, is_done) {
                (Next::Wait(what), _) => Some(what.clone()),
                (_, Ok(Done::Written)) => {
                    telling.step(&next, &scene.seen)?;
                    None
                }
                (_, Ok(Done::Overtaken)) => {
                    Some("a moment at which nobody else writes to the same object".to_owned())
                }
                (_, Err(error)) => Some(transient(error)?),
            };
            patience.note(stuck, clock.now().mono, telling)?;
            if !patience.what.is_empty() {
                clock.sleep(PAUSE).await;
            }
            match look.see().await {
                Ok(seen) => {
                    *scene = seen;
                    next = (self.decide)(&scene.seen);
                }
                Err(error) => next = Next::Wait(transient(error)?),
            }
        }
    }

    /// Asks; whether the answer is yes.
    fn ask(&self, telling: &Telling<'_>) -> anyhow::Result<bool> {
        anyhow::ensure!(
            io::stdin().is_terminal() && telling.is_seen(),
            "there is no terminal to ask at: add --yes, or --dry-run to see what would be done"
        );
        let mut terminal = io::stderr();
        write!(terminal, "{} [y/N] ", self.question)?;
        terminal.flush()?;
        let mut answer = String::new();
        if io::stdin().lock().read_line(&mut answer)? == 0 {
            // Nobody has ended the line of the question.
            writeln!(terminal)?;
        }
        Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }
}

impl Patience {
    /// Takes in what is waited for; `None`: it went on.
    fn note(
        &mut self,
        stuck: Option<String>,
        now: MonoTime,
        telling: &mut Telling<'_>,
    ) -> anyhow::Result<()> {
        let stuck = stuck.unwrap_or_default();
        if stuck.is_empty() || stuck != self.what {
            self.until = now + self.limit;
            if !stuck.is_empty() {
                telling.wait(&stuck)?;
            }
            self.what = stuck;
        }
        anyhow::ensure!(
            now < self.until,
            "waited {}s in vain for {}. {BOTH_WAYS}",
            self.limit.as_secs(),
            self.what
        );
        Ok(())
    }
}

/// Prints an end, if it is one.
fn ended(next: &Next, telling: &mut Telling<'_>) -> anyhow::Result<Option<Found>> {
    let (lines, found) = match next {
        Next::Stop(lines) => (lines, Found::Differs),
        Next::Finished(lines) => (lines, Found::Same),
        Next::Record(_) | Next::Mark { .. } | Next::Scale(_) | Next::Wait(_) => return Ok(None),
    };
    telling.end(lines)?;
    Ok(Some(found))
}

/// What to wait for after an error that may end by itself; the error, if it does not.
fn transient(error: anyhow::Error) -> anyhow::Result<String> {
    let is_transient = |error: &Error| error.is_transient();
    let found = error.chain().find_map(|it| it.downcast_ref::<Error>());
    if found.is_some_and(is_transient) {
        return Ok(format!("the API server: {}", chain(error.as_ref())));
    }
    Err(error)
}

fn check_names(seen: &Seen, wishes: &Wishes) -> anyhow::Result<()> {
    let names = || seen.controllers.iter().map(|it| it.name.as_str());
    for name in &wishes.controllers {
        if !seen.controllers.iter().any(|it| it.is_called(name)) {
            let hint = suggest::hint(name, names());
            anyhow::bail!("controller {name:?} not found{hint}");
        }
    }
    Ok(())
}

fn live(way: &Way) -> Live {
    Live {
        kubeconfig: way.kubeconfig.clone(),
        context: way.context.clone(),
        namespace: None,
        all_namespaces: true,
        selector: String::new(),
    }
}
