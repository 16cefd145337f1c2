//! What the example hooks share: the bodies of the hook protocol, and a server for a function that answers them.
//!
//! A hook is a function: given a parent and its children, what should exist? It keeps no state and asks nobody;
//! metashard calls it whenever the parent or a child has changed, and brings about what it answers.

mod protocol;
mod server;

pub use protocol::{Metadata, Object, SyncRequest, SyncResponse};
pub use server::serve;
