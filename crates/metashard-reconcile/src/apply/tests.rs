//! Unit tests of the merge.
