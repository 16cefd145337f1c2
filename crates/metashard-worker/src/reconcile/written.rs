//! Which of the versions that writes were answered with counts.

use metashard_reconcile::{object::Object, sync::Outcome};

/// The parent's resourceVersion after our own last write to it.
pub(super) fn status_written(parent: &Object, outcome: &Outcome) -> Option<Box<str>> {
    let mut written = outcome.written.iter().rev();
    written
        .find(|object| object.uid() == parent.uid())
        .map(|object| object.resource_version().into())
}

/// Whether an object is of a later version than another.
pub(super) fn is_newer(object: &Object, than: &Object) -> bool {
    metashard_reconcile::object::compare_versions(
        object.resource_version(),
        than.resource_version(),
    ) == Some(std::cmp::Ordering::Greater)
}
