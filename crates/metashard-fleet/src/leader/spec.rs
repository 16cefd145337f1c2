//! The next content of the map: a new term, a map made anew, or shards with new owners.

use std::collections::{BTreeMap, BTreeSet};

use metashard_api::{
    id::{ControllerUid, Epoch, Incarnation, ReplicaId, Seq, ShardId, Term},
    shard_map::{FORMAT, Member, ShardEntry, ShardMapSpec},
};

use crate::{
    leader::table::Table,
    shard::{Layout, Recut},
};

/// A replica in one of its incarnations, as the map writes it.
pub(crate) fn member(replica: &ReplicaId, incarnation: &Incarnation) -> Member {
    Member {
        replica: replica.to_string(),
        incarnation: incarnation.to_string(),
    }
}

/// The same owners under a new term of `leader`. A map without shards gets `n_shards`.
pub(crate) fn with_new_term(
    map: &ShardMapSpec,
    table: &Table,
    leader: Member,
    n_shards: u16,
) -> ShardMapSpec {
    let mut spec = map.clone();
    spec.format = FORMAT;
    spec.term = table.highest().0.max(map.term).next();
    spec.seq = Seq(1);
    spec.leader = Some(leader);
    if spec.shard_count == 0 {
        spec.shard_count = n_shards;
    }
    // Of one map only: what somebody took away by hand comes back without an owner, above all epochs.
    let epoch = table.highest().1;
    let missing = ShardEntry { owner: None, epoch };
    spec.shards.resize(usize::from(spec.shard_count), missing);
    spec
}

/// A map made anew: nobody owns anything, and all numbers begin above those that were given out, and above
/// `unix_seconds`, for what was given out is perhaps not all known.
pub(crate) fn made_anew(
    table: &Table,
    leader: Member,
    n_shards: u16,
    unix_seconds: u64,
) -> ShardMapSpec {
    let (term, epoch) = table.highest();
    let shard_count = match table.shard_count() {
        0 => n_shards,
        count => count,
    };
    let unowned = ShardEntry {
        owner: None,
        epoch: epoch.next().max(Epoch(unix_seconds)),
    };
    ShardMapSpec {
        format: FORMAT,
        term: term.next().max(Term(unix_seconds)),
        seq: Seq(1),
        leader: Some(leader),
        shard_count,
        splits: Vec::new(),
        members: Vec::new(),
        shards: vec![unowned; usize::from(shard_count)],
    }
}

/// The next map of the same term, with `new_owners`, each at its shard's next epoch. Only owners stay in the table.
pub(crate) fn with_new_owners(
    map: &ShardMapSpec,
    new_owners: &BTreeMap<ShardId, Member>,
) -> ShardMapSpec {
    let owners: Vec<Option<&Member>> = (0..=u16::MAX)
        .zip(&map.shards)
        .map(|(shard, entry)| {
            let old = || map.members.get(usize::from(entry.owner?));
            new_owners.get(&ShardId(shard)).or_else(old)
        })
        .collect();
    let named: BTreeSet<&Member> = owners.iter().flatten().copied().collect();
    let indexes: BTreeMap<&Member, u16> = named.iter().copied().zip(0..).collect();

    let shards = (0..=u16::MAX).zip(&map.shards).zip(&owners);
    let shards = shards.map(|((shard, entry), owner)| ShardEntry {
        owner: owner.and_then(|owner| indexes.get(owner).copied()),
        epoch: if new_owners.contains_key(&ShardId(shard)) {
            entry.epoch.next()
        } else {
            entry.epoch
        },
    });
    ShardMapSpec {
        format: FORMAT,
        term: map.term,
        seq: map.seq.next(),
        leader: map.leader.clone(),
        shard_count: map.shard_count,
        splits: map.splits.clone(),
        members: named.iter().copied().cloned().collect(),
        shards: shards.collect(),
    }
}

/// Splits controllers otherwise in a map with `new_owners`. These all get one epoch, above that of each: whichever shard a
/// parent belongs to afterwards, its next ownership has a higher number than its last.
pub(crate) fn recut(
    map: &mut ShardMapSpec,
    changes: &BTreeMap<ControllerUid, Recut>,
    new_owners: &BTreeMap<ShardId, Member>,
) {
    map.splits = Layout::of(map).with(changes).to_spec();
    let index = |shard: &ShardId| usize::from(shard.0);
    let given = new_owners.keys().filter_map(|it| map.shards.get(index(it)));
    let highest = given.map(|entry| entry.epoch).max().unwrap_or_default();
    for shard in new_owners.keys() {
        if let Some(entry) = map.shards.get_mut(index(shard)) {
            entry.epoch = highest;
        }
    }
}

/// The members that the map names as owners.
pub(crate) fn named(map: &ShardMapSpec) -> BTreeSet<Incarnation> {
    map.members
        .iter()
        .map(|member| Incarnation::new(member.incarnation.as_str()))
        .collect()
}

/// How many shards the map gives to each incarnation.
pub(crate) fn count_owned(map: &ShardMapSpec) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for entry in &map.shards {
        let owner = entry.owner.and_then(|it| map.members.get(usize::from(it)));
        if let Some(owner) = owner {
            *counts.entry(owner.incarnation.as_str()).or_default() += 1;
        }
    }
    counts
}
