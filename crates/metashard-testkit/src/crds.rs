//! Small custom resources to reconcile, one for each trait of a schema that matters.
