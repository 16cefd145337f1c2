//! The whole, as real processes against a real API server.

mod bad_answers;
mod bad_api_server;
mod bad_flags;
mod bad_hooks;
mod bad_kinds;
mod bad_rights;
mod canary;
mod claim;
mod controllers;
mod crds;
mod decorators;
mod fault;
mod finalize;
mod first_start;
mod hook_credentials;
mod hook_security;
mod instances;
mod languages;
mod parents;
mod related;
mod rolling;
mod support;
mod sync;
mod target;
mod triggers;
mod update;
