//! A group of processes that cannot outlive the process that made it, not even after SIGKILL.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::Context;
use tempfile::TempDir;

/// Waits until its standard input ends, which the kernel sees to when the owner dies in whatever way,
/// then kills group `$1` and removes folder `$2`.
const SUPERVISE: &str =
    r#"trap "" HUP INT TERM; cat >/dev/null; kill -s KILL -- "-$1" 2>/dev/null; rm -rf -- "$2""#;

/// Processes, and a folder for their files, that end together: when this value is dropped, or when the process that
/// holds it ends in whatever way.
///
/// Two helpers make that so. The anchor leads the process group, so that the group exists before its first member;
/// the supervisor, outside the group, holds the other end of a pipe and kills the group when it closes.
#[derive(Debug)]
pub struct Group {
    anchor: Child,
    supervisor: Child,
    folder: TempDir,
}

impl Group {
    /// Makes an empty group.
    ///
    /// # Errors
    /// If its folder cannot be made or its helpers not be started.
    pub fn new() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("metashard-")
            .tempdir()
            .context("make a folder for a group of processes")?;
        let anchor =
            helper("exec cat >/dev/null", &[]).context("start the leader of a process group")?;
        let id = anchor.id().to_string();
        let supervisor = helper(SUPERVISE, &[id.as_ref(), folder.path().as_os_str()])
            .context("start the supervisor of a process group")?;
        Ok(Self {
            anchor,
            supervisor,
            folder,
        })
    }

    /// Folder of the files and logs of its processes.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Path of the log of process `name`.
    pub fn log(&self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}.log"))
    }

    /// Starts `command` in the group, its output appended to the [log](Self::log) of `name`.
    /// The caller waits for the child; until then it is a zombie after its end.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(&self, command: &mut Command, name: &str) -> anyhow::Result<Child> {
        let log = self.log(name);
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("open {}", log.display()))?;
        let group = i32::try_from(self.anchor.id()).context("read a process id")?;
        command
            .process_group(group)
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("share a log file")?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {}", command.get_program().display()))
    }

    /// Ends all members now.
    pub(crate) fn end(&mut self) {
        drop(self.supervisor.stdin.take());
        drop(self.supervisor.wait());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
        // The last to be reaped: until here nobody else can get the group's number.
        drop(self.anchor.wait());
    }
}

/// A shell in a group of its own, its input a pipe from us. It must not hold our output open.
fn helper(script: &str, arguments: &[&OsStr]) -> std::io::Result<Child> {
    Command::new("sh")
        .args(["-c", script, "metashard-testkit"])
        .args(arguments)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// The last lines of a log, for an error's text.
pub(crate) fn tail(log: &Path) -> String {
    const LINES: usize = 40;
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
