//! The rules of the election.
