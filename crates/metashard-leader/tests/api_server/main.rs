//! Election and coordination against a real API server.

mod coordinator;
mod kit;
mod race;
