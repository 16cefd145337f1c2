//! A group of processes that cannot outlive the process that made it, not even after SIGKILL.

use std::{
    fs::File,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::Context;
use rustix::process::Pid;

/// Waits until its standard input ends, which the kernel sees to when the owner dies in whatever way,
/// then kills group `$1` and removes folder `$2`.
const SUPERVISE: &str =
    r#"trap "" HUP INT TERM; cat >/dev/null; kill -s KILL -- "-$1" 2>/dev/null; rm -rf -- "$2""#;

/// Processes that end together: when this value is dropped, or when the process that holds it ends.
///
/// Two helpers make that so. The anchor leads the process group, so that the group exists before its first member;
/// the supervisor, outside the group, holds the other end of a pipe and kills the group when it closes.
#[derive(Debug)]
pub(crate) struct Group {
    anchor: Child,
    supervisor: Child,
}

impl Group {
    /// Makes an empty group; `folder` is removed when it ends.
    pub(crate) fn new(folder: &Path) -> anyhow::Result<Self> {
        let anchor =
            helper("exec cat >/dev/null", &[]).context("start the leader of a process group")?;
        let id = anchor.id().to_string();
        let supervisor = helper(SUPERVISE, &[id.as_ref(), folder.as_os_str()])
            .context("start the supervisor of a process group")?;
        Ok(Self { anchor, supervisor })
    }

    /// Starts `command` in the group, its output going to the file `log`.
    pub(crate) fn spawn(&self, command: &mut Command, log: &Path) -> anyhow::Result<Child> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open {}", log.display()))?;
        let group = i32::try_from(self.anchor.id()).context("read a process id")?;
        command
            .process_group(group)
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("share a log file")?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {}", command.get_program().to_string_lossy()))
    }

    /// Ends all members now. They stay zombies until their owners have waited for them.
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
fn helper(script: &str, arguments: &[&std::ffi::OsStr]) -> std::io::Result<Child> {
    Command::new("sh")
        .args(["-c", script, "metashard-testkit"])
        .args(arguments)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// The number of a child of ours.
pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}
