//! Inputs and actions of the fleet's machines, each in a line for people.

mod leader;
mod worker;

use metashard_api::{id::ShardId, shard_map::ShardMapSpec};
use metashard_fleet::{
    lease, map,
    message::{Claim, FromWorker, Order},
    record::{Record, Seen, Written},
};

/// How many shards a line names.
const MOST_SHARDS: usize = 8;

/// Something that a machine was told, or does.
pub(super) trait Told {
    /// What it is, in one line.
    fn told(&self) -> String;

    /// Whether it is of the steady kind that goes on while nothing happens.
    fn is_routine(&self) -> bool;
}

fn of_claims(claims: &[Claim]) -> String {
    few(claims.iter().map(|it| of_claim(*it)))
}

/// The first of them, and how many more there are.
fn few(all: impl Iterator<Item = String>) -> String {
    let mut named: Vec<String> = all.collect();
    let n_more = named.len().saturating_sub(MOST_SHARDS);
    named.truncate(MOST_SHARDS);
    match (named.is_empty(), n_more) {
        (true, _) => "nothing".to_owned(),
        (false, 0) => named.join(", "),
        (false, more) => format!("{} and {more} more", named.join(", ")),
    }
}

fn of_claim(claim: Claim) -> String {
    format!("shard {} (epoch {})", claim.shard, claim.epoch)
}

fn of_record(record: &Record) -> String {
    let holder = record.holder.to_text();
    if holder.is_empty() {
        "nobody holds it".to_owned()
    } else {
        format!("{holder}, attempt {}", record.attempt)
    }
}

fn of_seen(seen: &Seen) -> String {
    match seen {
        Seen::Present(record) => of_record(record),
        Seen::Absent => "absent".to_owned(),
    }
}

fn of_map(seen: &map::Seen) -> String {
    match seen {
        map::Seen::Present(map) => format!(
            "{} at resourceVersion {}",
            version(&map.spec),
            map.resource_version
        ),
        map::Seen::Absent => "absent".to_owned(),
        map::Seen::Unreadable => "one that cannot be read".to_owned(),
    }
}

fn version(spec: &ShardMapSpec) -> String {
    format!("map {}.{}", spec.term, spec.seq)
}

/// What a write of the map changes.
fn of_write(write: &map::Write) -> String {
    let Some(base) = &write.base else {
        return format!(
            "create {} with {} shards",
            version(&write.spec),
            write.spec.shards.len()
        );
    };
    let owner = |spec: &ShardMapSpec, shard| {
        let owner = spec.owner(shard);
        owner.map_or_else(|| "nobody".to_owned(), |(member, _)| member.replica.clone())
    };
    let n_shards = u16::try_from(write.spec.shards.len()).unwrap_or(u16::MAX);
    let entry =
        |spec: &ShardMapSpec, shard: u16| spec.shards.get(usize::from(shard)).map(|it| it.epoch);
    let changed = (0..n_shards)
        .filter(|it| entry(&base.spec, *it) != entry(&write.spec, *it))
        .map(|it| {
            let (from, to) = (&base.spec, &write.spec);
            let shard = ShardId(it);
            format!(
                "shard {it} from {} to {}",
                owner(from, shard),
                owner(to, shard)
            )
        });
    format!("write {}: {}", version(&write.spec), few(changed))
}

fn of_written<T>(written: &Written<T>, accepted: impl FnOnce(&T) -> String) -> String {
    match written {
        Written::Accepted(it) => format!("accepted: {}", accepted(it)),
        Written::Conflict => "conflict: it has changed meanwhile".to_owned(),
        Written::Refused(why) => format!("refused: {why}"),
        Written::Unknown => "no answer: it may have been carried out".to_owned(),
    }
}

fn of_answer(answer: &lease::Input) -> String {
    match answer {
        lease::Input::Read(None) => "no answer to a read".to_owned(),
        lease::Input::Read(Some(seen)) => format!("reads {}", of_seen(seen)),
        lease::Input::Written(written) => of_written(written, of_record),
        lease::Input::ReleaseAsked => "it is to be released".to_owned(),
    }
}

fn of_request(request: &lease::Request) -> String {
    match request {
        lease::Request::Create(record) => format!("create it: {}", of_record(record)),
        lease::Request::Put(record) => format!("write it: {}", of_record(record)),
        lease::Request::Read => "read it".to_owned(),
    }
}

fn of_message(message: &FromWorker) -> String {
    match message {
        FromWorker::Hello {
            replica,
            held,
            released,
            ..
        } => format!(
            "Hello of {replica}; holds {}; released {}",
            of_claims(held),
            of_claims(released)
        ),
        FromWorker::Load(load) => {
            let cost: u64 = load.shards.iter().map(|it| it.cost_micros).sum();
            format!(
                "Load: {} shards cost {cost} microseconds a second",
                load.shards.len()
            )
        }
        FromWorker::WarmReady { shard } => format!("WarmReady: shard {shard}"),
        FromWorker::Released { claim, .. } => format!("Released: {}", of_claim(*claim)),
        FromWorker::Leaving { grace } => format!("Leaving within {grace:?}"),
    }
}

fn of_order(order: &Order) -> String {
    match order {
        Order::Warm { shard } => format!("Warm: shard {shard}"),
        Order::Assign { claim, .. } => format!("Assign: {}", of_claim(*claim)),
        Order::Drain { claim, grace } => format!("Drain: {} within {grace:?}", of_claim(*claim)),
    }
}
