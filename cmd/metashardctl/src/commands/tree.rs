//! `tree`: what belongs to an object, and how it is.

use std::{collections::BTreeSet, sync::Arc};

use metashard_api::resource::Resource;
use metashard_plan::{health, tree};
use serde_json::{Value, json};

use crate::{
    Found, age,
    argv::{Format, Tree},
    cluster::Cluster,
    output::{self, Output},
    table::Table,
};

/// Columns, and how dispensable each is on a narrow terminal.
const COLUMNS: [(&str, u8); 4] = [("NAME", 0), ("HEALTH", 0), ("REASON", 1), ("AGE", 2)];

/// Kinds of what workloads make of themselves.
const WORKLOADS: [(&str, &str); 5] = [
    ("apps/v1", "replicasets"),
    ("apps/v1", "controllerrevisions"),
    ("batch/v1", "jobs"),
    ("v1", "pods"),
    ("v1", "persistentvolumeclaims"),
];

pub(super) async fn run(flags: &Tree, output: &mut Output) -> anyhow::Result<Found> {
    let (kind, name) = super::object(&flags.object)?;
    let cluster = Cluster::connect(&flags.live).await?;
    let resource = cluster.resource(kind)?;
    let root = cluster.read(&resource, name).await?;
    let kinds = kinds(&cluster, flags.all_kinds).await?;
    let mut objects = Vec::new();
    for kind in &kinds {
        match cluster.list(kind, root.namespace(), "").await {
            Ok(listed) => objects.extend(listed),
            // The rest of the tree is worth showing.
            Err(error) if !flags.all_kinds => {
                output::complain(&format!("{} are left out: {error:#}", kind.plural));
            }
            Err(_) => {}
        }
    }
    let branches = tree::tree(&root, &objects);
    if matches!(flags.output, Format::Json | Format::Yaml) {
        let nodes: Vec<_> = branches.iter().map(node).collect();
        output.value(flags.output, &json!({"objects": nodes}))?;
        return Ok(Found::Same);
    }
    let mut table = Table::new(&COLUMNS);
    for branch in &branches {
        let object = &branch.object;
        let value: Value = serde_json::from_slice(object.bytes()).unwrap_or_default();
        let (health, reason) = health::of(&value);
        let created = value["metadata"]["creationTimestamp"].as_str();
        table.row(vec![
            format!("{}{}/{}", branch.lead, object.kind(), object.name()),
            health.as_str().to_owned(),
            reason,
            age::since(created.unwrap_or_default(), cluster.clock.wall()),
        ]);
    }
    let width = if flags.output == Format::Wide {
        usize::MAX
    } else {
        output.width
    };
    for line in table.lines(width) {
        output.line(&line)?;
    }
    Ok(Found::Same)
}

fn node(branch: &tree::Branch) -> Value {
    let object = &branch.object;
    let (health, reason) = health::of(&serde_json::from_slice(object.bytes()).unwrap_or_default());
    json!({
        "depth": branch.depth,
        "apiVersion": object.api_version(),
        "kind": object.kind(),
        "namespace": object.namespace(),
        "name": object.name(),
        "uid": object.uid(),
        "controlled": branch.is_controlled,
        "health": health.as_str(),
        "reason": reason,
    })
}

/// The kinds among which children are looked for.
async fn kinds(cluster: &Cluster, all: bool) -> anyhow::Result<Vec<Arc<Resource>>> {
    let served = cluster.served();
    if all {
        // Each kind once, however many versions it has.
        let mut seen = BTreeSet::new();
        let is_new = |it: &Arc<Resource>| seen.insert((it.group.clone(), it.plural.clone()));
        return Ok(served.into_iter().filter(is_new).collect());
    }
    let mut wanted: BTreeSet<(String, String)> = WORKLOADS
        .iter()
        .map(|(version, plural)| ((*version).to_owned(), (*plural).to_owned()))
        .collect();
    for controller in cluster.controllers().await? {
        let value: Value = serde_json::from_slice(controller.bytes()).unwrap_or_default();
        for field in ["childResources", "attachments"] {
            for rule in value["spec"][field].as_array().into_iter().flatten() {
                let text = |field: &str| rule[field].as_str().unwrap_or_default().to_owned();
                wanted.insert((text("apiVersion"), text("resource")));
            }
        }
    }
    let is_wanted = |it: &Arc<Resource>| wanted.contains(&(it.api_version(), it.plural.clone()));
    Ok(served.into_iter().filter(is_wanted).collect())
}
