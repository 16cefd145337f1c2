//! `fleet`: the decisions of the fleet's machines, taken from a replica and made again here.

pub(super) mod record;
pub(super) mod replay;
mod told;
