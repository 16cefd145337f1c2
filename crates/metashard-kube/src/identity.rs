//! On whose behalf the API server is asked. The only place where an [`Identity`] is made.
//!
//! Every cache and every write has one as an argument, so that nothing can be asked on nobody's behalf, and so that what
//! one identity read is never shown to another.

use std::fmt;

use http::{HeaderMap, HeaderName};

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

    /// Makes a request speak for this identity: no header of it names another one.
    pub(crate) fn sign(&self, headers: &mut HeaderMap) {
        let is_impersonation = |name: &&HeaderName| name.as_str().starts_with("impersonate-");
        let foreign: Vec<_> = headers.keys().filter(is_impersonation).cloned().collect();
        for name in foreign {
            headers.remove(name);
        }
        match self.0 {
            // The connection's own credentials say it.
            Subject::Process => {}
        }
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_process_impersonates_nobody_even_if_asked_to() {
        let mut headers = HeaderMap::new();
        headers.insert("impersonate-user", HeaderValue::from_static("admin"));
        headers.insert(
            "impersonate-group",
            HeaderValue::from_static("system:masters"),
        );
        headers.insert("accept", HeaderValue::from_static("application/json"));

        Identity::process().sign(&mut headers);

        assert_eq!(headers.len(), 1);
    }
}
