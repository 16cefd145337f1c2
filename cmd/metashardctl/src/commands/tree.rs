//! `tree`: what belongs to an object, and how it is.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use metashard_api::resource::Resource;
use metashard_plan::{
    health::{self, Health},
    tree::{self, Branch},
};
use metashard_reconcile::object::Object;
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

/// How often is looked again.
const PERIOD: Duration = Duration::from_secs(2);

pub(super) async fn run(flags: &Tree, output: &mut Output) -> anyhow::Result<Found> {
    let (kind, name) = asked(flags)?;
    let cluster = Cluster::connect(&flags.live).await?;
    let resource = cluster.resource_called(kind).await?;
    let kinds = kinds(&cluster, flags.all_kinds).await?;
    let mut before = Vec::new();
    loop {
        let roots = match name {
            Some(name) => vec![cluster.read(&resource, name).await?],
            None => all_of(&cluster, &resource, flags).await?,
        };
        let objects = below(&cluster, &kinds, &roots, flags.all_kinds).await;
        let branches = tree::trees(&roots, &objects);
        // Ages alone are no news.
        let now: Vec<_> = branches.iter().map(version).collect();
        if before != now {
            show(flags, &cluster, &branches, output)?;
            before = now;
        }
        if !flags.watch {
            let is_bad = branches.iter().any(|it| health_of(it).0 == Health::Failed);
            return Ok(if is_bad { Found::Differs } else { Found::Same });
        }
        output.flush()?;
        cluster.clock.sleep(PERIOD).await;
    }
}

/// Type and name; without a name all of the type are meant.
fn asked(flags: &Tree) -> anyhow::Result<(&str, Option<&str>)> {
    match &flags.object[..] {
        [kind] if !kind.contains('/') => Ok((kind, None)),
        words => {
            anyhow::ensure!(
                flags.live.selector.is_empty(),
                "name an object, or give -l: not both"
            );
            let (kind, name) = super::object(words)?;
            Ok((kind, Some(name)))
        }
    }
}

async fn all_of(
    cluster: &Cluster,
    resource: &Resource,
    flags: &Tree,
) -> anyhow::Result<Vec<Arc<Object>>> {
    let namespace = cluster.namespace().filter(|_| resource.namespaced);
    let roots = cluster
        .list(resource, namespace, &flags.live.selector)
        .await?;
    if roots.is_empty() {
        output::complain(&match namespace {
            Some(namespace) => format!("No {} found in namespace {namespace}", resource.plural),
            None => format!("No {} found", resource.plural),
        });
    }
    Ok(roots)
}

/// All objects of some kinds in the namespaces of the roots.
async fn below(
    cluster: &Cluster,
    kinds: &[Arc<Resource>],
    roots: &[Arc<Object>],
    is_all: bool,
) -> Vec<Arc<Object>> {
    let mut namespaces: Vec<_> = roots.iter().map(|it| it.namespace()).collect();
    namespaces.dedup();
    let namespace = match namespaces[..] {
        [] => return Vec::new(),
        [one] => one,
        _ => None,
    };
    let mut objects = Vec::new();
    for kind in kinds {
        match cluster.list(kind, namespace, "").await {
            Ok(listed) => objects.extend(listed),
            // The rest of the tree is worth showing.
            Err(error) if !is_all => {
                output::complain(&format!("{} are left out: {error:#}", kind.plural));
            }
            Err(_) => {}
        }
    }
    objects
}

fn show(
    flags: &Tree,
    cluster: &Cluster,
    branches: &[Branch],
    output: &mut Output,
) -> anyhow::Result<()> {
    match flags.output {
        Format::Json | Format::Yaml => {
            let nodes: Vec<_> = branches.iter().map(node).collect();
            return output.value(flags.output, &json!({"objects": nodes}));
        }
        Format::Name => {
            for branch in branches {
                output.line(&super::full_name(&branch.object))?;
            }
            return Ok(());
        }
        Format::Text | Format::Wide => {}
    }
    if branches.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&COLUMNS);
    for branch in branches {
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
    output.table(&table, flags.output)?;
    Ok(())
}

fn version(branch: &Branch) -> (String, String) {
    let object = &branch.object;
    (
        object.uid().to_owned(),
        object.resource_version().to_owned(),
    )
}

fn health_of(branch: &Branch) -> (Health, String) {
    health::of(&serde_json::from_slice(branch.object.bytes()).unwrap_or_default())
}

fn node(branch: &Branch) -> Value {
    let object = &branch.object;
    let (health, reason) = health_of(branch);
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
