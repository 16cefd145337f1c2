//! `shards simulate`: where shards would be with another number of replicas. Also tells what a levelling would move.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context;
use metashard_api::shard_map::ShardMap;
use metashard_fleet::{
    placement::Level,
    shards::{Carried, Shards, Simulated},
};
use metashard_plan::document;

use super::{View, cost};
use crate::{
    Found,
    argv::{Format, shards::Simulate},
    cluster::Cluster,
    output::{self, Output},
    table::Table,
};

/// Most moves that are listed for people.
const LISTED: usize = 20;

const REPLICAS: [(&str, u8); 7] = [
    ("REPLICA", 0),
    ("SHARDS", 0),
    ("THEN", 0),
    ("CONTROLLERS", 1),
    ("THEN", 1),
    ("OF MEAN", 0),
    ("THEN", 0),
];

const MOVES: [(&str, u8); 5] = [
    ("SHARD", 0),
    ("FROM", 0),
    ("TO", 0),
    ("CONTROLLERS", 1),
    ("COST", 1),
];

pub(in crate::commands) async fn run(
    flags: &Simulate,
    output: &mut Output,
) -> anyhow::Result<Found> {
    let shards = if let Some(file) = &flags.file {
        read(file)?
    } else {
        let cluster = Cluster::connect(&flags.live).await?;
        let view = View::of(&cluster, &flags.leader.server, &flags.leader.asking).await?;
        view.shards
    };
    let n = usize::from(flags.replicas.get());
    let simulated = shards.simulated(Some(n), Level::Rest);
    tell(&simulated, flags.output, output)
}

/// A ShardMap, or what `shards --all` printed.
fn read(file: &Path) -> anyhow::Result<Shards> {
    let what = || {
        let file = file.display();
        format!("{file} is neither a ShardMap nor what `shards --all` printed")
    };
    let value = document::read_one(file).with_context(what)?.value;
    let shards: Shards = if value["kind"] == "ShardMap" {
        let map: ShardMap = serde_json::from_value(value).with_context(what)?;
        output::complain("a map knows no controllers and no costs: all shards count the same");
        Shards::of_map(&map.spec, &BTreeMap::new())
    } else {
        serde_json::from_value(value).with_context(what)?
    };
    // What `shards` printed without --all has gaps, and shards are known by their places.
    let is_whole = (0..)
        .zip(&shards.shards)
        .all(|(number, it)| it.shard.0 == number);
    anyhow::ensure!(is_whole && !shards.shards.is_empty(), "{}", what());
    Ok(shards)
}

/// Shows what would come to be; 1 where something would move.
pub(in crate::commands) fn tell(
    simulated: &Simulated,
    format: Format,
    output: &mut Output,
) -> anyhow::Result<Found> {
    match format {
        Format::Json | Format::Yaml => output.value(format, simulated)?,
        Format::Name => {
            for it in &simulated.moves {
                output.line(&it.shard.to_string())?;
            }
        }
        Format::Text | Format::Wide => show(simulated, format, output)?,
    }
    Ok(if simulated.moves.is_empty() {
        Found::Same
    } else {
        Found::Differs
    })
}

fn show(simulated: &Simulated, format: Format, output: &mut Output) -> anyhow::Result<()> {
    let mut replicas = Table::new(&REPLICAS);
    for part in &simulated.replicas {
        let (before, after) = (part.before, part.after);
        let of_both = |it: fn(Carried) -> String| [it(before), it(after)];
        let cells = [
            of_both(|it| it.shards.to_string()),
            of_both(|it| it.controllers.to_string()),
            of_both(|it| format!("{}%", it.percent)),
        ];
        let name = std::iter::once(part.replica.to_string());
        replicas.row(name.chain(cells.into_iter().flatten()).collect());
    }
    output.table(&replicas, format)?;
    let n_listed = match format {
        Format::Wide => simulated.moves.len(),
        _ => LISTED,
    };
    let mut moves = Table::new(&MOVES);
    for it in simulated.moves.iter().take(n_listed) {
        let from = it.from.as_ref().map(ToString::to_string);
        moves.row(vec![
            it.shard.to_string(),
            from.unwrap_or_default(),
            it.to.to_string(),
            it.controllers.to_string(),
            if it.weight == 0 {
                String::new()
            } else {
                cost(it.weight)
            },
        ]);
    }
    if !simulated.moves.is_empty() {
        output.line("")?;
        output.table(&moves, format)?;
    }
    output.line("")?;
    output.line(&summary(simulated, n_listed))?;
    Ok(())
}

fn summary(simulated: &Simulated, n_listed: usize) -> String {
    let n = simulated.moves.len();
    let busy = simulated
        .moves
        .iter()
        .filter(|it| it.controllers > 0)
        .count();
    let hidden = match n.checked_sub(n_listed) {
        Some(more) if more > 0 => format!(", of which {n_listed} are listed (-o wide: all)"),
        _ => String::new(),
    };
    format!(
        "{n} shards would move{hidden}, {busy} of them with controllers; the hottest replica has {}% of the mean, and would have {}%",
        simulated.hottest_percent, simulated.hottest_percent_after
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn written(text: &str) -> anyhow::Result<Shards> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), text)?;
        read(file.path())
    }

    #[test]
    fn map_and_what_the_tool_printed_are_read_and_other_things_are_not() {
        let map = "apiVersion: metashard.io/v1beta1\nkind: ShardMap\nmetadata: {name: metashard}\n\
                   spec: {term: 1, seq: 2, shardCount: 1, members: [{replica: a, incarnation: i}], shards: [{owner: 0, epoch: 3}]}\n";
        let from_map = written(map).unwrap();
        let printed = serde_json::to_string(&from_map).unwrap();

        assert_eq!(from_map.shards[0].owner.as_ref().unwrap().as_str(), "a");
        assert_eq!(written(&printed).unwrap(), from_map);
        let gap = r#"{"term": 1, "seq": 1, "shards": [{"shard": 4, "epoch": 1}]}"#;
        for wrong in ["kind: Pod", "nonsense", "", gap] {
            let error = written(wrong).unwrap_err();
            assert!(error.to_string().contains("neither a ShardMap"), "{error}");
        }
    }
}
