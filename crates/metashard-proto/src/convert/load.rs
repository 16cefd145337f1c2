//! What a worker's work costs, on the wire.

use metashard_api::{
    id::{ControllerUid, Slice},
    shard_map::{MAX_SHARDS, MAX_SLICES},
};
use metashard_fleet::message::{ControllerLoad, Load, ShardLoad};

use super::{Error, each, name, shard};
use crate::wire;

/// Most controllers of one message that are read: a newer worker may name some more than we do.
const MAX_CONTROLLERS: usize = 1024;

/// All of what the process can do.
const ALL_PERMILLE: u32 = 1000;

/// Longest uid of an object; Kubernetes' own have 36 bytes.
const MAX_UID_BYTES: usize = 64;

/// Checks a Load.
pub(super) fn load(load: wire::Load) -> Result<Load, Error> {
    at_most("load.shards", load.shards.len(), usize::from(MAX_SHARDS))?;
    at_most("load.controllers", load.controllers.len(), MAX_CONTROLLERS)?;
    Ok(Load {
        shards: each(load.shards, shard_load)?,
        controllers: each(load.controllers, controller_load)?,
        busy_permille: load.busy_permille.min(ALL_PERMILLE),
    })
}

fn at_most(field: &'static str, count: usize, most: usize) -> Result<(), Error> {
    if count > most {
        return Err(Error::TooMany { field, count });
    }
    Ok(())
}

fn shard_load(load: wire::ShardLoad) -> Result<ShardLoad, Error> {
    Ok(ShardLoad {
        shard: shard(load.shard)?,
        cost_micros: load.cost_micros,
        queued: load.queued,
        cached_bytes: load.cached_bytes,
    })
}

fn controller_load(load: wire::ControllerLoad) -> Result<ControllerLoad, Error> {
    let controller = name("load.controller", load.controller)?;
    if controller.len() > MAX_UID_BYTES {
        return Err(Error::Name {
            field: "load.controller",
            bytes: controller.len(),
        });
    }
    let slice = u16::try_from(load.slice)
        .ok()
        .filter(|slice| *slice < MAX_SLICES)
        .ok_or(Error::Slice(load.slice))?;
    Ok(ControllerLoad {
        controller: ControllerUid::new(controller),
        slice: Slice(slice),
        cost_micros: load.cost_micros,
    })
}

impl From<Load> for wire::Load {
    fn from(load: Load) -> Self {
        Self {
            shards: load.shards.into_iter().map(Into::into).collect(),
            controllers: load.controllers.into_iter().map(Into::into).collect(),
            busy_permille: load.busy_permille,
        }
    }
}

impl From<ShardLoad> for wire::ShardLoad {
    fn from(load: ShardLoad) -> Self {
        Self {
            shard: load.shard.0.into(),
            cost_micros: load.cost_micros,
            queued: load.queued,
            cached_bytes: load.cached_bytes,
        }
    }
}

impl From<ControllerLoad> for wire::ControllerLoad {
    fn from(load: ControllerLoad) -> Self {
        Self {
            controller: load.controller.to_string(),
            slice: load.slice.0.into(),
            cost_micros: load.cost_micros,
        }
    }
}
