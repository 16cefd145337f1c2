//! Syncs without a worker: what would be written, cases that say what should be, and what is wrong with a controller.
//!
//! The decisions are those of `metashard_reconcile`, byte for byte; here is what brings files, a hook and a reader to them.
//! Start reading at [`render::render`].

pub mod case;
pub mod document;
pub mod health;
pub mod hook;
pub mod input;
pub mod lint;
pub mod migrate;
pub mod render;
pub mod replay;
pub mod resources;
pub mod show;
pub mod suggest;
pub mod tree;

mod builtin;
mod changes;
