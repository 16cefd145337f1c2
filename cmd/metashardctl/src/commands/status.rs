//! `status`: the controllers of a cluster, and how they are.

mod live;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use metashard_api::{
    names::condition, resource::Resource, selector::Selector, v1alpha1::status::ControllerStatus,
};
use metashard_reconcile::object::Object;
use serde_json::{Value, json};

use self::live::LastSyncs;
use crate::{
    Found, age,
    argv::{Format, Status},
    cluster::Cluster,
    output::{self, Output},
    table::Table,
};

/// Columns, and how dispensable each is on a narrow terminal.
const COLUMNS: [(&str, u8); 7] = [
    ("NAME", 0),
    ("READY", 0),
    ("REASON", 1),
    ("SHARD", 4),
    ("WORKER", 3),
    ("PARENTS", 2),
    ("AGE", 5),
];

/// What a wide table has besides: the last sync, as the replica tells it.
const WIDE: (&str, u8) = ("LAST SYNC", 6);

/// Most questions to the API server that are under way at once.
const AT_ONCE: usize = 16;

/// How often is looked again.
const PERIOD: Duration = Duration::from_secs(2);

pub(super) async fn run(flags: &Status, output: &mut Output) -> anyhow::Result<Found> {
    let cluster = Cluster::connect(&flags.live).await?;
    let mut before = BTreeMap::new();
    loop {
        let controllers = chosen(&cluster, flags).await?;
        match flags.output {
            Format::Json | Format::Yaml => values(flags, &controllers, output)?,
            Format::Name => names(&controllers, output)?,
            Format::Text | Format::Wide => {
                show(&cluster, flags, &controllers, &mut before, output).await?;
            }
        }
        if !flags.watch {
            let are_ready = controllers.iter().all(|it| is_ready(it));
            return Ok(if are_ready {
                Found::Same
            } else {
                Found::Differs
            });
        }
        output.flush()?;
        cluster.clock.sleep(PERIOD).await;
    }
}

/// The controllers of these names, or all of them, with the labels that were asked for.
async fn chosen(cluster: &Cluster, flags: &Status) -> anyhow::Result<Vec<Arc<Object>>> {
    let mut all = cluster.controllers_with(&flags.live.selector).await?;
    let names = &flags.names;
    for name in names {
        if !all.iter().any(|it| super::is_called(it, name)) {
            return Err(super::no_controller(name, &all));
        }
    }
    let is_chosen = |it: &Object| names.iter().any(|name| super::is_called(it, name));
    all.retain(|it| names.is_empty() || is_chosen(it));
    Ok(all)
}

/// As `kubectl get` prints them: one that was named is itself, and others are a list.
fn values(flags: &Status, controllers: &[Arc<Object>], output: &mut Output) -> anyhow::Result<()> {
    let value = |it: &Arc<Object>| {
        let mut value: Value = serde_json::from_slice(it.bytes()).unwrap_or_default();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        value
    };
    if let ([_], [one]) = (&flags.names[..], controllers) {
        return output.value(flags.output, &value(one));
    }
    let items: Vec<Value> = controllers.iter().map(value).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    output.value(flags.output, &list)
}

fn names(controllers: &[Arc<Object>], output: &mut Output) -> anyhow::Result<()> {
    for it in controllers {
        output.line(&super::full_name(it))?;
    }
    Ok(())
}

async fn show(
    cluster: &Cluster,
    flags: &Status,
    controllers: &[Arc<Object>],
    before: &mut BTreeMap<String, Vec<String>>,
    output: &mut Output,
) -> anyhow::Result<()> {
    if controllers.is_empty() {
        output::complain("No controllers found");
        return Ok(());
    }
    let is_wide = flags.output == Format::Wide;
    let last = if is_wide {
        Some(LastSyncs::ask(cluster, &flags.asking, controllers).await)
    } else {
        None
    };
    let columns: Vec<_> = COLUMNS.into_iter().chain(is_wide.then_some(WIDE)).collect();
    let mut table = Table::new(&columns);
    let counts = Counts::of(cluster, controllers).await;
    let mut rows = 0;
    let is_first = before.is_empty();
    for controller in controllers {
        let mut row = row(cluster, controller, &counts);
        // What grows older is no news.
        let told = row.get(..row.len() - 1).unwrap_or_default().to_vec();
        row.extend(last.as_ref().map(|last| last.of(controller, cluster)));
        let key = format!("{}/{}", controller.kind(), controller.name());
        if before.get(&key) != Some(&told) {
            table.row(row);
            rows += 1;
        }
        before.insert(key, told);
    }
    let width = if is_wide { usize::MAX } else { output.width };
    let skip = usize::from(!is_first);
    for line in table.lines(width).iter().skip(skip).take(rows + 1 - skip) {
        output.line(line)?;
    }
    Ok(())
}

fn row(cluster: &Cluster, controller: &Object, counts: &Counts) -> Vec<String> {
    let value: Value = serde_json::from_slice(controller.bytes()).unwrap_or_default();
    let status: ControllerStatus =
        serde_json::from_value(value["status"].clone()).unwrap_or_default();
    let (is_ready, reason) = readiness(controller, &status);
    let created = value["metadata"]["creationTimestamp"].as_str();
    vec![
        controller.name().to_owned(),
        is_ready,
        reason,
        status.shard.map_or_else(String::new, |it| it.to_string()),
        status.worker.unwrap_or_default(),
        counts.tell(cluster, controller),
        age::since(created.unwrap_or_default(), cluster.clock.wall()),
    ]
}

fn is_ready(controller: &Object) -> bool {
    let value: Value = serde_json::from_slice(controller.bytes()).unwrap_or_default();
    let status = serde_json::from_value(value["status"].clone()).unwrap_or_default();
    readiness(controller, &status).0 == "True"
}

/// Whether a controller is ready, in a word, and why.
fn readiness(controller: &Object, status: &ControllerStatus) -> (String, String) {
    let unknown = |why: &str| ("Unknown".to_owned(), why.to_owned());
    let is_old = status
        .observed_generation
        .is_some_and(|seen| seen < controller.generation());
    match status.condition(condition::READY) {
        None => unknown("nobody has reported a status"),
        Some(_) if is_old => unknown("the last change has not been seen yet"),
        Some(ready) if ready.status == "True" => (ready.status.clone(), ready.reason.clone()),
        Some(ready) => (
            ready.status.clone(),
            format!("{}: {}", ready.reason, ready.message),
        ),
    }
}

/// Parents of one kind that one selector selects.
type Parents = (Arc<Resource>, String);

/// How many of them there are: controllers may share their parents. `None`: that cannot be found out.
#[derive(Debug)]
struct Counts(BTreeMap<Parents, Option<usize>>);

impl Counts {
    /// Counts the parents of all these controllers.
    async fn of(cluster: &Cluster, controllers: &[Arc<Object>]) -> Self {
        let all = controllers.iter().flat_map(|it| parents(cluster, it));
        let wanted: BTreeSet<Parents> = all.flatten().collect();
        let counted = wanted.into_iter().map(async |(resource, selector)| {
            let count = cluster.count(&resource, &selector).await.ok();
            ((resource, selector), count)
        });
        Self(stream::iter(counted).buffered(AT_ONCE).collect().await)
    }

    /// How many parents a controller has; `?` if that cannot be found out.
    fn tell(&self, cluster: &Cluster, controller: &Object) -> String {
        let mut counts = parents(cluster, controller)
            .into_iter()
            .map(|it| self.0.get(&it?).copied().flatten());
        let total = counts.try_fold(0, |total, count| Some(total + count?));
        total.map_or_else(|| "?".to_owned(), |total| total.to_string())
    }
}

/// The parents of a controller; `None` of a kind that is not served.
fn parents(cluster: &Cluster, controller: &Object) -> Vec<Option<Parents>> {
    let value: Value = serde_json::from_slice(controller.bytes()).unwrap_or_default();
    let spec = &value["spec"];
    let composite = std::iter::once(&spec["parentResource"]).filter(|it| it.is_object());
    let decorator = spec["resources"].as_array().into_iter().flatten();
    let of = |rule: &Value| {
        let text = |field: &str| rule[field].as_str().unwrap_or_default();
        let resources = cluster.resources();
        let resource = resources.lookup(text("apiVersion"), text("resource"))?;
        let selector = serde_json::from_value(rule["labelSelector"].clone())
            .ok()
            .and_then(|it| Selector::compile(&it).ok())
            .and_then(|it| it.to_query());
        Some((resource, selector.unwrap_or_default()))
    };
    composite.chain(decorator).map(of).collect()
}
