//! Passes as they run, recorded in files for whoever wants to run them again: off unless a folder is given.
//!
//! A file has one pass, line by line as it goes on: of a process that is killed in the middle the file tells how far the
//! pass had come. What is in the lines says `metashard_reconcile::recording`.

use std::{
    collections::VecDeque,
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use k8s_openapi::jiff::Timestamp;
use metashard_api::id::ReplicaId;
use metashard_reconcile::{
    recording::{Origin, Scribe},
    sync::{Fed, Outcome, SyncInput},
};
use parking_lot::Mutex;
use tracing::warn;

/// Most files that are kept.
const MAX_FILES: usize = 10_000;

/// Most bytes of one file: a pass that has more is not recorded further.
const MAX_PASS: u64 = 16 << 20;

/// Longest name of a file without its number.
const MAX_NAME: usize = 150;

/// How the names of files end.
const EXTENSION: &str = "jsonl";

/// Where passes are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordTo {
    /// The folder; each replica has one of its own in it.
    pub folder: PathBuf,
    /// Most bytes of all files of a replica: the oldest make room.
    pub max_bytes: u64,
    /// Whether values of Secrets are recorded too.
    pub secrets: bool,
}

/// The recordings of one replica.
#[derive(Debug)]
pub struct Recordings {
    /// Of this replica.
    folder: PathBuf,
    replica: ReplicaId,
    max_bytes: u64,
    /// Makes other texts of the values of Secrets, equal ones of equal values; `None`: they are recorded.
    hide: Option<RandomState>,
    /// Orders the files of this process after those of the ones before it.
    started: u128,
    next: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The oldest first.
    files: VecDeque<(PathBuf, u64)>,
    bytes: u64,
}

/// The recording of one pass under way.
#[derive(Debug)]
pub(crate) struct Tape<'a> {
    recordings: &'a Recordings,
    path: PathBuf,
    /// `None` once nothing more is written.
    file: Option<File>,
    size: u64,
}

impl Recordings {
    /// Makes the folder, and counts what is in it from before.
    ///
    /// # Errors
    ///
    /// When it cannot be written to.
    pub fn open(to: &RecordTo, replica: &ReplicaId, now: SystemTime) -> io::Result<Self> {
        let folder = to.folder.join(replica.as_str());
        fs::create_dir_all(&folder)?;
        let mut files = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|it| it == EXTENSION) {
                files.push((entry.path(), entry.metadata()?.len()));
            }
        }
        files.sort_unstable();
        let kept = Kept {
            bytes: files.iter().map(|file| file.1).sum(),
            files: files.into(),
        };
        Ok(Self {
            folder,
            replica: replica.clone(),
            max_bytes: to.max_bytes,
            hide: (!to.secrets).then(RandomState::new),
            started: now
                .duration_since(UNIX_EPOCH)
                .map_or(0, |it| it.as_millis()),
            next: AtomicU64::new(0),
            kept: Mutex::new(kept),
        })
    }

    /// Begins the recording of a pass.
    pub(crate) fn start(
        &self,
        input: &SyncInput,
        observed: bool,
        (now, wall): (Duration, SystemTime),
    ) -> Tape<'_> {
        let at = Timestamp::try_from(wall).map_or_else(|_| String::new(), |it| format!("{it:.3}"));
        let origin = Origin {
            at: &at,
            replica: self.replica.as_str(),
            observed,
        };
        let path = self.path(input);
        let mut tape = Tape {
            recordings: self,
            file: create(&path),
            path,
            size: 0,
        };
        tape.write(|scribe, out| scribe.start(&origin, input, Some(now), out));
        tape
    }

    fn path(&self, input: &SyncInput) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (controller, parent) = (&input.controller, &input.parent);
        let namespace = parent.namespace().unwrap_or_default();
        let mut name = [&controller.name, parent.kind(), namespace, parent.name()].join("_");
        name.retain(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        name.truncate(MAX_NAME);
        let started = self.started;
        let file = format!("{started:013}-{number:08}-{name}.{EXTENSION}");
        self.folder.join(file)
    }

    fn keep(&self, path: PathBuf, size: u64) {
        let mut kept = self.kept.lock();
        kept.files.push_back((path, size));
        kept.bytes += size;
        while kept.files.len() > MAX_FILES || kept.bytes > self.max_bytes {
            let Some((oldest, size)) = kept.files.pop_front() else {
                return;
            };
            kept.bytes -= size;
            // Whoever has removed it before has made room as well.
            drop(fs::remove_file(oldest));
        }
    }
}

/// For the owner's eyes only, as parents and answers of hooks are in it.
fn create(path: &Path) -> Option<File> {
    let mut options = File::options();
    options.create_new(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(file) => Some(file),
        Err(error) => {
            warn!(path = %path.display(), %error, "a pass is not recorded");
            None
        }
    }
}

impl Tape<'_> {
    /// Records what came of a step, before the pass goes on.
    pub(crate) fn fed(&mut self, fed: &Fed) {
        self.write(|scribe, out| scribe.fed(fed, out));
    }

    /// Records what the pass came to.
    pub(crate) fn end(mut self, outcome: &Outcome) {
        self.write(|scribe, out| scribe.end(outcome, out));
    }

    /// Nothing is waited for but the system's own copy of what is written: what is sent next must be on record by then.
    fn write(&mut self, line: impl FnOnce(Scribe<'_>, &mut dyn io::Write) -> io::Result<()>) {
        let Some(file) = &self.file else {
            return;
        };
        let hide = self.recordings.hide.as_ref();
        let hide =
            hide.map(|keyed| move |text: &str| format!("hidden-{:016x}", keyed.hash_one(text)));
        let scribe = Scribe {
            hide: hide.as_ref().map(|it| it as &dyn Fn(&str) -> String),
        };
        let mut out = Bounded {
            out: BufWriter::new(file),
            left: MAX_PASS.min(self.recordings.max_bytes) - self.size,
            is_full: false,
        };
        let left = out.left;
        let written = line(scribe, &mut out).and_then(|()| out.flush());
        self.size += left - out.left;
        let is_full = out.is_full;
        drop(out);
        let path = self.path.display();
        match written {
            Ok(()) => return,
            Err(_) if is_full => warn!(%path, "a pass is not recorded: it is too large"),
            Err(error) => warn!(%path, %error, "a pass is not recorded"),
        }
        self.file = None;
        drop(fs::remove_file(&self.path));
    }
}

/// Takes so many bytes and no more. A line goes through it piece by piece: one of many objects is never there as a whole.
struct Bounded<W> {
    out: W,
    left: u64,
    /// More was to be written.
    is_full: bool,
}

impl<W: io::Write> io::Write for Bounded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        self.out.write_all(bytes)?;
        self.left = left;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for Tape<'_> {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            self.recordings
                .keep(std::mem::take(&mut self.path), self.size);
        }
    }
}

#[cfg(test)]
mod tests;
