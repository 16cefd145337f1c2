//! `shards explain`: the shard of a parent, why it is where it is, and who would be next.

use std::sync::Arc;

use metashard_api::id::{ControllerUid, Slice};
use metashard_fleet::{
    shard::{Layout, slice_of},
    shards::{Explained, Reason, Shard},
};
use metashard_reconcile::object::Object;
use serde_json::{Value, json};

use super::{View, cost, is_served, last_hand_over, phase};
use crate::{
    Found,
    argv::{Format, shards::Explain},
    cluster::Cluster,
    commands::{self, why},
    output::Output,
};

/// What is said of one controller of a parent.
struct Place<'a> {
    controller: &'a Object,
    slice: Slice,
    slices: u16,
    shard: &'a Shard,
    explained: Explained,
}

pub(in crate::commands) async fn run(
    flags: &Explain,
    output: &mut Output,
) -> anyhow::Result<Found> {
    let (kind, name) = commands::object(&flags.object)?;
    let cluster = Cluster::connect(&flags.live).await?;
    let resource = cluster.resource_called(kind).await?;
    let parent = cluster.read(&resource, name).await?;
    let controllers = controllers(&cluster, &parent, flags).await?;
    let view = View::of(&cluster, &flags.leader.server, &flags.leader.asking).await?;
    let places: Vec<Place<'_>> = controllers
        .iter()
        .filter_map(|it| place(&view, &parent, it))
        .collect();
    match flags.output {
        Format::Json | Format::Yaml => {
            let all: Vec<Value> = places.iter().map(Place::value).collect();
            let value = json!({
                "parent": { "kind": parent.kind(), "namespace": parent.namespace(), "name": parent.name() },
                "controllers": all,
            });
            output.value(flags.output, &value)?;
        }
        Format::Name => {
            for place in &places {
                output.line(&place.shard.shard.to_string())?;
            }
        }
        Format::Text | Format::Wide => {
            output.line(&format!("{} {}", parent.kind(), path(&parent)))?;
            for place in &places {
                for line in place.told(&view, &parent) {
                    output.line(&line)?;
                }
            }
        }
    }
    let are_served = places.iter().all(|it| is_served(it.shard));
    Ok(if are_served {
        Found::Same
    } else {
        Found::Differs
    })
}

/// The controllers whose parent it is.
async fn controllers(
    cluster: &Cluster,
    parent: &Object,
    flags: &Explain,
) -> anyhow::Result<Vec<Arc<Object>>> {
    let known = cluster.resources();
    let all = cluster.controllers().await?;
    let is_asked = |it: &Object| {
        let named = flags.controller.as_ref();
        named.is_none_or(|name| commands::is_called(it, name))
    };
    if let Some(name) = &flags.controller
        && !all.iter().any(|it| is_asked(it))
    {
        return Err(commands::no_controller(name, &all));
    }
    let is_its = |it: &Arc<Object>| {
        is_asked(it) && why::compiled(it, &known).is_some_and(|it| it.concerns(parent))
    };
    let its: Vec<_> = all.iter().filter(|it| is_its(it)).cloned().collect();
    anyhow::ensure!(
        !its.is_empty(),
        "{} {} is no parent of a controller",
        parent.kind(),
        path(parent)
    );
    Ok(its)
}

fn place<'a>(view: &'a View, parent: &Object, controller: &'a Object) -> Option<Place<'a>> {
    let layout = Layout::of(view.fleet.map());
    let uid = ControllerUid::new(controller.uid());
    let slices = layout.slices(&uid);
    let slice = slice_of(parent.namespace(), parent.name(), slices);
    let shard = layout.shard(&uid, slice);
    Some(Place {
        controller,
        slice,
        slices,
        shard: view.shards.get(shard)?,
        explained: view.shards.explain(shard)?,
    })
}

/// As parents are hashed: `namespace/name`.
fn path(parent: &Object) -> String {
    match parent.namespace() {
        Some(namespace) => format!("{namespace}/{}", parent.name()),
        None => parent.name().to_owned(),
    }
}

impl Place<'_> {
    fn value(&self) -> Value {
        json!({
            "controller": self.controller.name(),
            "uid": self.controller.uid(),
            "slice": self.slice,
            "slices": self.slices,
            "shard": self.shard,
            "explained": self.explained,
        })
    }

    fn told(&self, view: &View, parent: &Object) -> Vec<String> {
        let (slice, slices, shard) = (self.slice, self.slices, self.shard);
        let controller = match slices {
            1 => self.controller.name().to_owned(),
            _ => format!(
                "{}, slice {slice} of {slices}: xxh3 of {:?} modulo {slices}",
                self.controller.name(),
                path(parent)
            ),
        };
        let hashed = format!(
            "{} of {}: xxh3 of the uid {}, seeded with {slice}, modulo {}",
            shard.shard,
            view.fleet.map().shard_count,
            self.controller.uid(),
            view.fleet.map().shard_count
        );
        let owner = shard.owner.as_ref();
        let owner = owner.map_or_else(|| "nobody".to_owned(), ToString::to_string);
        let owner = format!("{owner}, epoch {}", shard.epoch);
        let order = self.explained.preference.iter().map(ToString::to_string);
        let next = self.explained.next.as_ref().map(ToString::to_string);
        let lines = [
            ("controller", controller),
            ("shard", hashed),
            ("owner", owner),
            ("phase", phase(shard)),
            (
                "because",
                self.explained
                    .reason
                    .as_ref()
                    .map_or_else(String::new, because),
            ),
            ("preference", order.collect::<Vec<_>>().join(", ")),
            (
                "next",
                next.unwrap_or_else(|| "nobody: there is no other replica".to_owned()),
            ),
            ("cost", shard.cost_micros.map_or_else(String::new, cost)),
            ("last hand-over", last_hand_over(shard)),
        ];
        let lines = lines.iter().filter(|(_, it)| !it.is_empty());
        lines
            .map(|(what, it)| format!("  {what:<16}{it}"))
            .collect()
    }
}

fn because(reason: &Reason) -> String {
    match reason {
        Reason::Pinned => "it is pinned there".to_owned(),
        Reason::Cordoned => "its owner is cordoned; it has not gone yet".to_owned(),
        Reason::Home => "it prefers this replica".to_owned(),
        Reason::Kept { home } => {
            format!("it is kept: it prefers {home}, but what has an owner is not moved for that")
        }
        Reason::Full { home } => {
            format!("it prefers {home}, which would have more than its share with it")
        }
    }
}
