//! `status`: the controllers of a cluster, and how they are.

mod live;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

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
    let mut counts = Counts::default();
    let mut rows = 0;
    let is_first = before.is_empty();
    for controller in controllers {
        let mut row = row(cluster, controller, &mut counts).await;
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

async fn row(cluster: &Cluster, controller: &Object, counts: &mut Counts) -> Vec<String> {
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
        parents(cluster, &value, counts).await,
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

/// How many objects there are of each kind and selector: controllers may share their parents.
#[derive(Debug, Default)]
struct Counts(BTreeMap<(Arc<Resource>, String), Option<usize>>);

impl Counts {
    /// `None` if that cannot be found out.
    async fn of(
        &mut self,
        cluster: &Cluster,
        resource: Arc<Resource>,
        selector: String,
    ) -> Option<usize> {
        let key = (resource, selector);
        if let Some(known) = self.0.get(&key) {
            return *known;
        }
        let counted = cluster.count(&key.0, &key.1).await.ok();
        self.0.insert(key, counted);
        counted
    }
}

/// How many parents a controller has; `?` if that cannot be found out.
async fn parents(cluster: &Cluster, controller: &Value, counts: &mut Counts) -> String {
    let spec = &controller["spec"];
    let composite = std::iter::once(&spec["parentResource"]).filter(|it| it.is_object());
    let decorator = spec["resources"].as_array().into_iter().flatten();
    let mut total = 0;
    for rule in composite.chain(decorator) {
        let text = |field: &str| rule[field].as_str().unwrap_or_default();
        let Some(resource) = cluster
            .resources()
            .lookup(text("apiVersion"), text("resource"))
        else {
            return "?".to_owned();
        };
        let selector = serde_json::from_value(rule["labelSelector"].clone())
            .ok()
            .and_then(|it| Selector::compile(&it).ok())
            .and_then(|it| it.to_query());
        match counts
            .of(cluster, resource, selector.unwrap_or_default())
            .await
        {
            Some(count) => total += count,
            None => return "?".to_owned(),
        }
    }
    total.to_string()
}
