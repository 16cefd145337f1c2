//! `shards`: who has each shard, how it stands, and what it costs.

pub(super) mod explain;
pub(super) mod moving;
pub(super) mod simulate;
pub(super) mod view;

use metashard_fleet::shards::{Phase, Shard};
use serde_json::{Value, json};

use self::view::View;
use crate::{
    Found, age,
    argv::{
        Format,
        shards::{Command, List, Shards},
    },
    cluster::Cluster,
    output::{self, Output},
    table::Table,
};

/// Columns, and how dispensable each is on a narrow terminal.
const COLUMNS: [(&str, u8); 7] = [
    ("SHARD", 0),
    ("OWNER", 0),
    ("EPOCH", 4),
    ("PHASE", 0),
    ("COST", 2),
    ("CONTROLLERS", 1),
    ("LAST HAND-OVER", 3),
];

/// What a wide table has besides.
const WIDE: [(&str, u8); 3] = [("MEMORY", 5), ("PINNED TO", 5), ("RESTS", 5)];

/// Columns of replicas.
const REPLICAS: [(&str, u8); 6] = [
    ("REPLICA", 0),
    ("STATUS", 0),
    ("SHARDS", 0),
    ("CONTROLLERS", 0),
    ("COST", 1),
    ("OF MEAN", 0),
];

/// Most controllers that a row names.
const NAMED: usize = 3;

pub(super) async fn run(flags: &Shards, output: &mut Output) -> anyhow::Result<Found> {
    match &flags.command {
        None => list(&flags.list, output).await,
        Some(Command::Explain(flags)) => explain::run(flags, output).await,
        Some(Command::Move(flags)) => moving::run(flags, output).await,
        Some(Command::Unpin(flags)) => moving::unpin(flags, output).await,
        Some(Command::Simulate(flags)) => simulate::run(flags, output).await,
    }
}

async fn list(flags: &List, output: &mut Output) -> anyhow::Result<Found> {
    let cluster = Cluster::connect(&flags.live).await?;
    let view = View::of(&cluster, &flags.leader.server, &flags.leader.asking).await?;
    if flags.by_replica {
        return by_replica(&view, flags.output, output);
    }
    let shown: Vec<&Shard> = view
        .shards
        .shards
        .iter()
        .filter(|it| flags.all || it.controllers > 0)
        .collect();
    match flags.output {
        Format::Json | Format::Yaml => {
            let mut value = serde_json::to_value(&view.shards)?;
            value["shards"] = shown.iter().map(|it| valued(&view, it)).collect();
            output.value(flags.output, &value)?;
        }
        Format::Name => {
            for shard in &shown {
                output.line(&shard.shard.to_string())?;
            }
        }
        Format::Text | Format::Wide if shown.is_empty() => {
            output::complain("No shard holds a controller; --all shows them all");
        }
        Format::Text | Format::Wide => table(&view, &shown, flags.output, output)?,
    }
    let are_served = shown.iter().all(|it| is_served(it));
    Ok(if are_served {
        Found::Same
    } else {
        Found::Differs
    })
}

fn is_served(shard: &Shard) -> bool {
    shard.owner.is_some() && shard.phase.is_none_or(Phase::is_served)
}

/// For programs: with the names of its controllers.
fn valued(view: &View, shard: &Shard) -> Value {
    let mut value = serde_json::to_value(shard).unwrap_or_default();
    value["names"] = view.names(shard).into();
    value
}

fn table(view: &View, shown: &[&Shard], format: Format, output: &mut Output) -> anyhow::Result<()> {
    let is_wide = format == Format::Wide;
    let wide = is_wide.then_some(WIDE).into_iter().flatten();
    let columns: Vec<_> = COLUMNS.into_iter().chain(wide).collect();
    let mut table = Table::new(&columns);
    for shard in shown {
        let mut row = row(shard, &view.names(shard));
        if is_wide {
            row.extend(wide_cells(shard));
        }
        table.row(row);
    }
    output.table(&table, format)?;
    Ok(())
}

fn row(shard: &Shard, names: &[String]) -> Vec<String> {
    let owner = shard.owner.as_ref().map(ToString::to_string);
    vec![
        shard.shard.to_string(),
        owner.unwrap_or_default(),
        shard.epoch.to_string(),
        phase(shard),
        shard.cost_micros.map_or_else(String::new, cost),
        controllers(shard, names),
        last_hand_over(shard),
    ]
}

fn wide_cells(shard: &Shard) -> [String; 3] {
    let rests = shard.rests_seconds.and_then(|it| i64::try_from(it).ok());
    let pinned = shard.pinned_to.as_ref().map(ToString::to_string);
    [
        memory(shard.cached_bytes),
        pinned.unwrap_or_default(),
        rests.map_or_else(String::new, age::of),
    ]
}

/// The phase, and while it is on its way where to.
fn phase(shard: &Shard) -> String {
    let Some(phase) = shard.phase else {
        return String::new();
    };
    let target = shard.hand_over.as_ref().and_then(|it| it.to.as_ref());
    match target {
        Some(to) => format!("{} to {to}", phase.as_str()),
        None => phase.as_str().to_owned(),
    }
}

/// The names of the first controllers; their number where no name is known.
fn controllers(shard: &Shard, names: &[String]) -> String {
    if names.is_empty() {
        return match shard.controllers {
            0 => String::new(),
            n => n.to_string(),
        };
    }
    let first = names.get(..NAMED).unwrap_or(names).join(",");
    match names.len().checked_sub(NAMED) {
        Some(more) if more > 0 => format!("{first} +{more}"),
        _ => first,
    }
}

/// `5m (balance)`.
fn last_hand_over(shard: &Shard) -> String {
    shard
        .last_hand_over
        .as_ref()
        .map_or_else(String::new, |it| {
            let ago = i64::try_from(it.ago_seconds).unwrap_or(i64::MAX);
            format!("{} ({})", age::of(ago), it.reason)
        })
}

/// Of microseconds for each second: `12 ms/s`.
fn cost(micros: u64) -> String {
    match micros {
        10_000.. => format!("{} ms/s", (micros + 500) / 1000),
        micros => format!("{}.{} ms/s", micros / 1000, micros % 1000 / 100),
    }
}

fn memory(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        1..0x10_0000 => format!("{} KiB", bytes.div_ceil(1024)),
        bytes => format!("{} MiB", bytes.div_ceil(1024 * 1024)),
    }
}

fn by_replica(view: &View, format: Format, output: &mut Output) -> anyhow::Result<Found> {
    let parts = view.shards.parts();
    let state = |name: &str| view.shards.replica(name);
    match format {
        Format::Json | Format::Yaml => {
            let replicas: Vec<Value> = parts
                .iter()
                .map(|(name, carried)| {
                    let known = state(name.as_str());
                    json!({
                        "replica": name, "carried": carried,
                        "cordoned": known.is_some_and(|it| it.cordoned),
                        "leaving": known.is_some_and(|it| it.leaving),
                    })
                })
                .collect();
            output.value(format, &json!({ "replicas": replicas }))?;
        }
        Format::Name => {
            for (name, _) in &parts {
                output.line(name.as_str())?;
            }
        }
        Format::Text | Format::Wide => {
            let mut table = Table::new(&REPLICAS);
            for (name, carried) in &parts {
                let status = match state(name.as_str()) {
                    None => "Gone",
                    Some(it) if it.leaving => "Leaving",
                    Some(it) if it.cordoned => "Ready,Cordoned",
                    Some(_) => "Ready",
                };
                table.row(vec![
                    name.to_string(),
                    status.to_owned(),
                    carried.shards.to_string(),
                    carried.controllers.to_string(),
                    view.cost_of(carried.weight),
                    format!("{}%", carried.percent),
                ]);
            }
            output.table(&table, Format::Text)?;
        }
    }
    Ok(Found::Same)
}

#[cfg(test)]
mod tests {
    use metashard_api::id::{Epoch, ReplicaId, ShardId};
    use metashard_fleet::shards::{LastHandOver, UnderWay};

    use super::*;

    #[test]
    fn row_says_where_a_shard_goes_what_it_costs_and_holds() {
        let shard = Shard {
            owner: Some(ReplicaId::new("a")),
            phase: Some(Phase::Warming),
            hand_over: Some(UnderWay {
                to: Some(ReplicaId::new("b")),
                reason: "pin".to_owned(),
                since_seconds: 1,
            }),
            controllers: 4,
            cost_micros: Some(12_400),
            last_hand_over: Some(LastHandOver {
                ago_seconds: 330,
                reason: "balance".to_owned(),
                took_millis: 5,
            }),
            ..Shard::new(ShardId(7), Epoch(3))
        };
        let names = ["c1", "c2", "c3[1]", "c4"].map(str::to_owned);

        assert_eq!(
            row(&shard, &names),
            [
                "7",
                "a",
                "3",
                "Warming to b",
                "12 ms/s",
                "c1,c2,c3[1] +1",
                "5m30s (balance)"
            ]
        );
        assert_eq!(controllers(&shard, &[]), "4");
        let unknown = row(&Shard::new(ShardId(1), Epoch(0)), &[]);
        assert_eq!(unknown, ["1", "", "0", "", "", "", ""]);
    }

    #[test]
    fn small_costs_keep_a_digit() {
        assert_eq!(cost(5_040), "5.0 ms/s");
        assert_eq!(cost(340), "0.3 ms/s");
        assert_eq!(cost(1_234_567), "1235 ms/s");
        assert_eq!(memory(3 << 20), "3 MiB");
    }
}
