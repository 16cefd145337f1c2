//! `status`: the controllers of a cluster, and how they are.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metashard_api::{names::condition, selector::Selector, v1alpha1::status::ControllerStatus};
use metashard_plan::suggest;
use metashard_reconcile::object::Object;
use serde_json::{Value, json};

use crate::{
    Found, age,
    argv::{Format, Status},
    cluster::Cluster,
    output::Output,
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

/// How often is looked again.
const PERIOD: Duration = Duration::from_secs(2);

pub(super) async fn run(flags: &Status, output: &mut Output) -> anyhow::Result<Found> {
    let cluster = Cluster::connect(&flags.live).await?;
    let mut before = BTreeMap::new();
    loop {
        let controllers = chosen(&cluster, &flags.names).await?;
        show(&cluster, flags, controllers, &mut before, output).await?;
        if !flags.watch {
            return Ok(Found::Same);
        }
        output.flush()?;
        cluster.clock.sleep(PERIOD).await;
    }
}

/// The controllers of these names, or all of them.
async fn chosen(cluster: &Cluster, names: &[String]) -> anyhow::Result<Vec<Arc<Object>>> {
    let mut all = cluster.controllers().await?;
    for name in names {
        if !all.iter().any(|it| it.name() == name) {
            let meant = suggest::nearest(name, all.iter().map(|it| it.name()));
            let hint = meant.map_or_else(String::new, |it| format!("; did you mean {it}?"));
            anyhow::bail!("controller {name:?} not found{hint}");
        }
    }
    all.retain(|it| names.is_empty() || names.iter().any(|name| name == it.name()));
    Ok(all)
}

async fn show(
    cluster: &Cluster,
    flags: &Status,
    controllers: Vec<Arc<Object>>,
    before: &mut BTreeMap<String, Vec<String>>,
    output: &mut Output,
) -> anyhow::Result<()> {
    match flags.output {
        Format::Json | Format::Yaml => {
            let items: Vec<Value> = controllers
                .iter()
                .map(|it| serde_json::from_slice(it.bytes()).unwrap_or_default())
                .collect();
            return output.value(
                flags.output,
                &json!({"apiVersion": "v1", "kind": "List", "items": items}),
            );
        }
        Format::Name => {
            for it in &controllers {
                output.line(&format!(
                    "{}.metacontroller.k8s.io/{}",
                    it.kind().to_lowercase(),
                    it.name()
                ))?;
            }
            return Ok(());
        }
        Format::Text | Format::Wide => {}
    }
    let mut table = Table::new(&COLUMNS);
    let mut rows = 0;
    let is_first = before.is_empty();
    for controller in &controllers {
        let row = row(cluster, controller).await;
        // The age alone is no news.
        let key = format!("{}/{}", controller.kind(), controller.name());
        let told = row.get(..row.len() - 1).unwrap_or_default().to_vec();
        if before.get(&key) != Some(&told) {
            table.row(row);
            rows += 1;
        }
        before.insert(key, told);
    }
    if controllers.is_empty() {
        return Ok(output.line("no controllers found")?);
    }
    let width = if flags.output == Format::Wide {
        usize::MAX
    } else {
        output.width
    };
    let skip = usize::from(!is_first);
    for line in table.lines(width).iter().skip(skip).take(rows + 1 - skip) {
        output.line(line)?;
    }
    Ok(())
}

async fn row(cluster: &Cluster, controller: &Object) -> Vec<String> {
    let value: Value = serde_json::from_slice(controller.bytes()).unwrap_or_default();
    let status: ControllerStatus =
        serde_json::from_value(value["status"].clone()).unwrap_or_default();
    let ready = status.condition(condition::READY);
    let is_old = status
        .observed_generation
        .is_some_and(|seen| seen < controller.generation());
    let (is_ready, reason) = match ready {
        None => (
            "Unknown".to_owned(),
            "nobody has reported a status".to_owned(),
        ),
        Some(_) if is_old => (
            "Unknown".to_owned(),
            "the last change has not been seen yet".to_owned(),
        ),
        Some(ready) if ready.status == "True" => (ready.status.clone(), ready.reason.clone()),
        Some(ready) => (
            ready.status.clone(),
            format!("{}: {}", ready.reason, ready.message),
        ),
    };
    let created = value["metadata"]["creationTimestamp"].as_str();
    vec![
        controller.name().to_owned(),
        is_ready,
        reason,
        status.shard.map_or_else(String::new, |it| it.to_string()),
        status.worker.unwrap_or_default(),
        parents(cluster, &value).await,
        age::since(created.unwrap_or_default(), cluster.clock.wall()),
    ]
}

/// How many parents a controller has; `?` if that cannot be found out.
async fn parents(cluster: &Cluster, controller: &Value) -> String {
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
        match cluster
            .count(&resource, &selector.unwrap_or_default())
            .await
        {
            Ok(count) => total += count,
            Err(_) => return "?".to_owned(),
        }
    }
    total.to_string()
}
