//! The rules of membership.
