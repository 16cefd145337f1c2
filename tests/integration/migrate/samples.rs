//! The samples of the guide are what the commands show: names, and what is waited for meanwhile, aside.

use std::{fs, path::Path};

use anyhow::{Context, ensure};

use metashard_testkit::Terminal;

use super::scene::{Scene, scene};
use crate::support::{CONTROLLER, WITHIN, eventually};

/// Time for a whole move.
const WHOLE: std::time::Duration = WITHIN.saturating_mul(4);

/// What is shown while something takes its time. Which of it is a matter of chance.
const WAITING: &str = "  waiting for ";

/// Commands of the guide, each with what it shows.
struct Samples(Vec<(String, Vec<String>)>);

impl Samples {
    /// All that begin with `$ metashardctl migrate`.
    fn read() -> anyhow::Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/migrate.md");
        let text = fs::read_to_string(path)?;
        let mut samples: Vec<(String, Vec<String>)> = Vec::new();
        let mut is_in = false;
        for line in text.lines() {
            let line = match line.strip_prefix("    ") {
                Some(line) => line,
                None if line.is_empty() => line,
                None => {
                    is_in = false;
                    continue;
                }
            };
            if let Some(command) = line.strip_prefix("$ metashardctl ") {
                samples.push((command.to_owned(), Vec::new()));
                is_in = true;
            } else if let Some((_, lines)) = samples.last_mut().filter(|_| is_in) {
                lines.push(line.to_owned());
            }
        }
        for (_, lines) in &mut samples {
            while lines.last().is_some_and(String::is_empty) {
                lines.pop();
            }
        }
        samples.reverse();
        Ok(Self(samples))
    }

    /// The next one is this command, and shows this.
    fn next(&mut self, command: &str, shown: &[String]) -> anyhow::Result<()> {
        let (sample, lines) = self.0.pop().context("the guide has no further sample")?;
        ensure!(
            sample == command,
            "the guide has {sample:?} where {command:?} comes next"
        );
        let said = |lines: &[String]| -> Vec<String> {
            let said = lines.iter().filter(|it| !it.starts_with(WAITING));
            said.cloned().collect()
        };
        let real = shown.join("\n");
        ensure!(
            said(&lines) == said(shown),
            "`{command}` does not show what the guide says, but:\n{real}"
        );
        // What a wait may come to is said only once it is known that it goes on.
        let awaited = |line: &str| line.split(';').next().unwrap_or_default().to_owned();
        for waiting in lines.iter().filter(|it| it.starts_with(WAITING)) {
            let is_among = shown.iter().any(|it| awaited(it) == awaited(waiting));
            ensure!(is_among, "{waiting:?} is not among:\n{real}");
        }
        Ok(())
    }
}

impl Scene {
    /// As if it were the installation of the guide.
    fn as_in_the_guide(&self, shown: &str) -> Vec<String> {
        let ops = self.ops();
        let [a, b] = self.controllers();
        let renamed = shown
            .replace(&a, "websites")
            .replace(&b, "wikis")
            .replace(&format!("{ops}/mc"), "metacontroller/metacontroller")
            .replace(
                &format!("{ops}/metacontroller"),
                "metacontroller/metacontroller",
            )
            .replace("mc-0_1", "metacontroller-0_1")
            .replace(&format!("{ops}/"), "shop/");
        renamed.trim_end().lines().map(str::to_owned).collect()
    }

    /// Runs a command at a terminal, and compares.
    async fn is_as(&self, samples: &mut Samples, command: &str) -> anyhow::Result<()> {
        let terminal = self.begun(samples, command).await?;
        self.ends_as(samples, command, terminal).await
    }

    /// A command at a terminal, with yes as the answer if it asks.
    async fn begun(&self, samples: &Samples, command: &str) -> anyhow::Result<Terminal> {
        let words: Vec<&str> = command.split(' ').collect();
        let mut terminal = self.at_terminal(&words)?;
        let lines = samples.0.last().map(|(_, lines)| lines.iter());
        if lines.is_some_and(|mut it| it.any(|it| it.ends_with("[y/N] y"))) {
            terminal.shows("[y/N] ", WITHIN).await?;
            terminal.types("y\n")?;
        }
        Ok(terminal)
    }

    async fn ends_as(
        &self,
        samples: &mut Samples,
        command: &str,
        terminal: Terminal,
    ) -> anyhow::Result<()> {
        let (_, shown) = terminal.ended(WHOLE).await?;
        samples.next(command, &self.as_in_the_guide(&shown))
    }
}

#[tokio::test]
async fn the_guides_samples_are_what_the_commands_show() -> anyhow::Result<()> {
    let mut samples = Samples::read()?;
    let mut scene = scene().await?;
    for name in ["a2", "a3"] {
        scene.left_by_metacontroller(CONTROLLER, "a", name).await?;
    }
    scene.is_as(&mut samples, "migrate plan").await?;
    scene.is_as(&mut samples, "migrate apply --dry-run").await?;
    let observe = "migrate apply --only-observe";
    let terminal = scene.begun(&samples, observe).await?;
    terminal.shows(WAITING, WITHIN).await?;
    scene.start()?;
    scene.ends_as(&mut samples, observe, terminal).await?;

    scene.drift("drifted").await?;
    let seen = async |writes: u32| {
        eventually("the write to be seen", async || {
            let controller = scene.stage.objects(CONTROLLER).get(&scene.names[0]).await?;
            let answer = &controller["status"]["migration"];
            ensure!(answer["writes"] == writes, "{answer:#}");
            Ok(())
        })
        .await
    };
    seen(1).await?;
    scene.is_as(&mut samples, "migrate apply").await?;
    scene.drift("").await?;
    seen(0).await?;

    // The Pods end once they were waited for.
    let cluster = &scene.stage.shared.cluster;
    cluster.hold_controller_manager(true)?;
    let waits = async {
        let terminal = scene.begun(&samples, "migrate apply").await?;
        terminal.shows(WAITING, WITHIN).await?;
        anyhow::Ok(terminal)
    };
    let waits = waits.await;
    cluster.hold_controller_manager(false)?;
    let terminal = waits?;
    scene
        .ends_as(&mut samples, "migrate apply", terminal)
        .await?;
    scene.is_as(&mut samples, "migrate rollback").await?;
    ensure!(
        samples.0.is_empty(),
        "the guide has further samples: {:?}",
        samples.0
    );
    Ok(())
}
