//! What a sync remembers for the next one of the same parent: what was found to need no write, and what was written.

/// What a sync remembers for the next one of the same parent. Kept by the worker; an empty one costs a sync that looks at everything.
#[derive(Debug, Default)]
pub struct Memory {}
