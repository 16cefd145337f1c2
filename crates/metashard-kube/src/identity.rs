//! On whose behalf the API server is asked. The only place where an [`Identity`] is made.
//!
//! Every cache and every write has one as an argument, so that nothing can be asked on nobody's behalf, and so that what
//! one identity read is never shown to another.

use std::fmt;

/// On whose behalf a request is made: part of the key of every cache, argument of every write.
///
/// It cannot be empty. Later it also names a controller's ServiceAccount, which the process then impersonates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(Subject);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Subject {
    /// The process itself, with the credentials that it was started with.
    Process,
}

impl Identity {
    /// The process itself, with the credentials that it was started with.
    pub const fn process() -> Self {
        Self(Subject::Process)
    }
}

/// The form used in logs.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Subject::Process => f.write_str("process"),
        }
    }
}
