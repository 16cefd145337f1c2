//! A terminal of a given width, and a program at it.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, OwnedFd},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, ensure};
use parking_lot::Mutex;
use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::wait::eventually;

/// Lines of each terminal.
const ROWS: u16 = 24;

/// A pseudo-terminal with a program whose standard input, output and error it is. Dropping it kills the program.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Starts a program at a terminal of so many columns.
    ///
    /// # Errors
    /// If there are no pseudo-terminals, or the program cannot be started.
    pub fn start(mut command: Command, columns: u16) -> anyhow::Result<Self> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("open a terminal")?;
        grantpt(&ours).context("open a terminal")?;
        unlockpt(&ours).context("open a terminal")?;
        let name = ptsname(&ours, Vec::new()).context("name a terminal")?;
        let theirs = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())
            .context("open a terminal")?;
        let size = Winsize {
            ws_row: ROWS,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&theirs, size).context("size a terminal")?;
        let stream = |fd: &OwnedFd| -> anyhow::Result<Stdio> {
            Ok(fd.as_fd().try_clone_to_owned().map(Stdio::from)?)
        };
        command
            .stdin(stream(&theirs)?)
            .stdout(stream(&theirs)?)
            .stderr(Stdio::from(theirs));
        let child = command.spawn().context("start a program at a terminal")?;
        // What is open in the command would keep the terminal open when the program has ended.
        drop(command);
        let keyboard = File::from(ours);
        let screen = Arc::<Mutex<Vec<u8>>>::default();
        let (seen, mut from) = (Arc::clone(&screen), keyboard.try_clone()?);
        let reader = thread::Builder::new()
            .name("terminal".to_owned())
            .spawn(move || {
                let mut some = [0; 4096];
                // Linux ends it with an error.
                while let Ok(length @ 1..) = from.read(&mut some) {
                    seen.lock()
                        .extend_from_slice(some.get(..length).unwrap_or_default());
                }
            })
            .context("read a terminal")?;
        Ok(Self {
            child,
            keyboard,
            screen,
            reader,
        })
    }

    /// What it shows so far: what was typed is part of it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock()).replace("\r\n", "\n")
    }

    /// Types.
    ///
    /// # Errors
    /// If the program has gone.
    pub fn types(&mut self, text: &str) -> anyhow::Result<()> {
        self.keyboard
            .write_all(text.as_bytes())
            .context("type at a terminal")
    }

    /// Returns once it shows a text.
    ///
    /// # Errors
    /// If it does not within this time; the text has what it shows.
    pub async fn shows(&self, text: &str, within: Duration) -> anyhow::Result<()> {
        eventually(within, &format!("{text:?} on the terminal"), async || {
            let shown = self.text();
            ensure!(shown.contains(text), "it shows {shown}");
            Ok(())
        })
        .await
    }

    /// The exit code of the program and all that was shown, once it has ended.
    ///
    /// # Errors
    /// If it does not within this time, or ended by a signal; the text has what it shows.
    pub async fn ended(mut self, within: Duration) -> anyhow::Result<(i32, String)> {
        let status = eventually(within, "the end of the program", async || {
            let status = self.child.try_wait()?;
            status.with_context(|| format!("it shows {}", self.text()))
        })
        .await?;
        // The reader ends when nobody is left who could write.
        eventually(within, "the end of the output", async || {
            ensure!(self.reader.is_finished(), "it is read");
            Ok(())
        })
        .await?;
        let (code, shown) = (status.code(), self.text());
        Ok((code.with_context(|| format!("{status}: {shown}"))?, shown))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Err: it has ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
