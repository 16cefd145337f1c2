//! The terminal: drawn over and over, keys read one by one. Put back as it was when the screen is dropped.

use std::io::{IsTerminal, Read, Stdout, Write, stdin, stdout};

use anyhow::Context;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use super::board::Line;
use crate::talk::coloured;

/// Other screen buffer, no cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";

/// Back again.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// A terminal in our hands.
#[derive(Debug)]
pub(super) struct Screen {
    before: Termios,
    output: Stdout,
    /// Keys pressed. Bounded: keys beyond are lost, as nobody can have meant them all.
    keys: mpsc::Receiver<char>,
}

impl Screen {
    /// Takes the terminal; `None` if input or output is none.
    ///
    /// # Errors
    /// If the terminal refuses.
    pub(super) fn take() -> anyhow::Result<Option<Self>> {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(stdin()).context("read the terminal's modes")?;
        let mut raw = before.clone();
        // Each key at once and unseen; Ctrl-C still interrupts.
        raw.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Now, &raw).context("set the terminal's modes")?;
        let (sender, keys) = mpsc::channel(16);
        // Ends with the process: a read of the terminal cannot be taken back.
        std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || read_keys(&sender))
            .context("start a thread for keys")?;
        let mut screen = Self {
            before,
            output: stdout(),
            keys,
        };
        screen.write(ENTER)?;
        Ok(Some(screen))
    }

    /// The next key; pending for ever once input has ended.
    pub(super) async fn key(&mut self) -> char {
        match self.keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }

    /// Draws lines from the top, cut to the terminal's size.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(super) fn draw(&mut self, lines: &[Line]) -> anyhow::Result<()> {
        let size = tcgetwinsize(&self.output).context("read the terminal's size")?;
        let text = fit(lines, usize::from(size.ws_col), usize::from(size.ws_row));
        self.write(&text)
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.output
            .write_all(text.as_bytes())
            .and_then(|()| self.output.flush())
            .context("write to the terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to tell if it fails.
        drop(self.write(LEAVE));
        tcsetattr(stdin(), OptionalActions::Now, &self.before).unwrap_or_default();
    }
}

fn read_keys(sender: &mpsc::Sender<char>) {
    for byte in stdin().lock().bytes() {
        let Ok(byte) = byte else { return };
        if matches!(
            sender.try_send(char::from(byte)),
            Err(mpsc::error::TrySendError::Closed(_))
        ) {
            return;
        }
    }
}

/// From the top left, each line cut to `width` and cleared to its end, at most `height` lines, nothing below.
fn fit(lines: &[Line], width: usize, height: usize) -> String {
    let cut = |text: &str| text.chars().take(width).collect::<String>();
    let shown: Vec<String> = lines
        .iter()
        .take(height)
        .map(|line| match line.tone {
            Some(tone) => format!("{}\x1b[K", coloured(tone, &cut(&line.text))),
            None => format!("{}\x1b[K", cut(&line.text)),
        })
        .collect();
    format!("\x1b[H{}\x1b[J", shown.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_cut_and_what_was_there_is_cleared() {
        let lines = ["abcdef", "gh", "not shown"].map(|text| Line {
            tone: None,
            text: text.to_owned(),
        });

        let text = fit(&lines, 4, 2);

        assert_eq!(text, "\x1b[Habcd\x1b[K\ngh\x1b[K\x1b[J");
    }
}
