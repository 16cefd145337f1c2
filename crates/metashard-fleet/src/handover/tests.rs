//! The rules of handover.
