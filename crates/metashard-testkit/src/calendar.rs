//! The calendar clock of one process, which can be set while it runs. Its other clocks are left alone.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

/// Where Debian's package `libfaketime` puts the library, below a folder named for the machine.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// A clock that is right until it is [set](Self::set).
#[derive(Debug)]
pub struct Calendar {
    library: PathBuf,
    /// By how much it is wrong.
    file: PathBuf,
}

impl Calendar {
    /// A clock whose file is in `folder`; `None`: the library is not installed.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn new(folder: &Path) -> anyhow::Result<Option<Self>> {
        let folders = fs::read_dir(LIBRARIES).into_iter().flatten().flatten();
        let mut paths = folders.map(|machine| machine.path().join(LIBRARY));
        let Some(library) = paths.find(|path| path.is_file()) else {
            return Ok(None);
        };
        let file = folder.join("calendar");
        let this = Self { library, file };
        this.set(0)?;
        Ok(Some(this))
    }

    /// What a process needs in its environment to go by it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![
            of("LD_PRELOAD", &self.library.to_string_lossy()),
            of("FAKETIME_TIMESTAMP_FILE", &self.file.to_string_lossy()),
            of("FAKETIME_NO_CACHE", "1"),
            of("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            of("FAKETIME_DONT_RESET", "1"),
        ]
    }

    /// From now on the clock is ahead by so many seconds, or behind.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn set(&self, ahead: i64) -> anyhow::Result<()> {
        // In one step: it is read at any time.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{ahead:+}\n")).context("set a clock")?;
        fs::rename(&new, &self.file).context("set a clock")
    }
}
