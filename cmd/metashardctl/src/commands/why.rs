//! `why`: what the last syncs of an object did, and what made them run.
//!
//! Who serves the object's controller is asked first, and the other replicas too if it remembers fewer syncs than were asked
//! for: the controller may have moved to it lately.

mod told;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::join_all;
use metashard_api::resource::Resource;
use metashard_plan::{input, resources::Resources};
use metashard_reconcile::{controller::Controller, object::Object};
use metashard_runtime::clock::Clock;
use serde_json::{Value, json};

use self::told::told;
use crate::{
    Found, age,
    argv::{Format, Why},
    cluster::Cluster,
    fleet::{Fleet, Replica},
    output::{self, Output},
    replica,
};

/// How often is asked again.
const PERIOD: Duration = Duration::from_secs(2);

pub(super) async fn run(flags: &Why, output: &mut Output) -> anyhow::Result<Found> {
    let (kind, name) = super::object(&flags.object)?;
    anyhow::ensure!(
        flags.live.selector.is_empty(),
        "name an object, or give -l to `tree`: not both"
    );
    let cluster = match Cluster::connect(&flags.live).await {
        Ok(cluster) => Some(cluster),
        Err(error) if flags.server.is_empty() => return Err(error),
        // The replicas may be reached where the API server is not.
        Err(_) => None,
    };
    // Of the last answer only: a watch may go on for long.
    let mut told = BTreeSet::new();
    loop {
        let mut syncs = match &cluster {
            Some(cluster) if flags.server.is_empty() => {
                by_cluster(cluster, kind, name, flags).await?
            }
            cluster => by_servers(cluster.as_ref(), kind, name, flags).await?,
        };
        syncs.sort_by(|left, right| right["at"].as_str().cmp(&left["at"].as_str()));
        syncs.truncate(flags.limit);
        let known: BTreeSet<_> = syncs.iter().map(Value::to_string).collect();
        syncs.retain(|it| !told.contains(&it.to_string()));
        told = known;
        if flags.watch {
            // Those that come are told below those that were.
            syncs.reverse();
        }
        if !flags.watch || !syncs.is_empty() {
            show(flags, &syncs, output)?;
        }
        if !flags.watch {
            if syncs.is_empty() {
                output::complain(&format!(
                    "no sync of {kind} {name} is remembered: a replica forgets when it is restarted, and the oldest first"
                ));
                return Ok(Found::Differs);
            }
            return Ok(Found::Same);
        }
        output.flush()?;
        Clock::system().sleep(PERIOD).await;
    }
}

fn show(flags: &Why, syncs: &[Value], output: &mut Output) -> anyhow::Result<()> {
    match flags.output {
        Format::Json | Format::Yaml => {
            output.value(flags.output, &json!({"syncs": syncs}))?;
        }
        Format::Name => {
            let parents: BTreeSet<String> = syncs.iter().map(parent).collect();
            for parent in parents {
                output.line(&parent)?;
            }
        }
        Format::Text | Format::Wide => {
            let now = Clock::system().wall();
            for sync in syncs {
                let ago = age::since(sync["at"].as_str().unwrap_or_default(), now);
                output.text(&told(sync, &ago))?;
            }
        }
    }
    Ok(())
}

/// `foo/name` of the parent of a sync.
fn parent(sync: &Value) -> String {
    let text = |field: &str| sync["parent"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("kind").to_lowercase(), text("name"))
}

/// From the processes that were named.
async fn by_servers(
    cluster: Option<&Cluster>,
    kind: &str,
    name: &str,
    flags: &Why,
) -> anyhow::Result<Vec<Value>> {
    let (kind, namespace) = match cluster {
        Some(cluster) => {
            let resource = cluster.resource_called(kind).await?;
            let namespace = cluster.namespace().filter(|_| resource.namespaced);
            (resource.kind.clone(), namespace.map(str::to_owned))
        }
        // The replicas may be reached where the API server is not; then the type must be the kind.
        None => (kind.to_owned(), flags.live.namespace.clone()),
    };
    let query = query(&kind, namespace.as_deref(), name, flags);
    let asked = flags
        .server
        .iter()
        .map(|server| async move { (server, replica::syncs(server, &query).await) });
    let (mut syncs, mut reached) = (Vec::new(), 0);
    for (server, answer) in join_all(asked).await {
        match answer {
            Ok(found) => {
                reached += 1;
                syncs.extend(found);
            }
            Err(error) => output::complain(&format!("{server} is left out: {error:#}")),
        }
    }
    anyhow::ensure!(reached > 0, "no replica could be asked");
    Ok(syncs)
}

fn query<'a>(
    kind: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
    flags: &'a Why,
) -> [(&'static str, &'a str); 4] {
    [
        ("kind", kind),
        ("namespace", namespace.unwrap_or_default()),
        ("name", name),
        (
            "controller",
            flags.controller.as_deref().unwrap_or_default(),
        ),
    ]
}

/// From the replicas that the cluster knows: those that serve the object's controllers, and then the others.
async fn by_cluster(
    cluster: &Cluster,
    kind: &str,
    name: &str,
    flags: &Why,
) -> anyhow::Result<Vec<Value>> {
    let resource = cluster.resource_called(kind).await?;
    let object = cluster.find(&resource, name).await?;
    let controllers = concerned(cluster, &resource, object.as_deref(), flags).await?;
    if controllers.is_empty() {
        anyhow::bail!(match object {
            Some(_) => stranger(&resource, name, flags),
            None => cluster.not_found(&resource, name).await,
        });
    }
    let namespace = cluster.namespace_of(&resource, name)?;
    let query = query(&resource.kind, namespace, name, flags);
    let fleets = Fleet::all(cluster, &flags.asking).await?;
    let (mut owners, mut others) = (Vec::new(), Vec::new());
    for fleet in &fleets {
        let mut own: Vec<Replica> = Vec::new();
        for owner in controllers.iter().filter_map(|it| fleet.owner(it.uid())) {
            if !own.contains(&owner) {
                own.push(owner);
            }
        }
        let rest = fleet.replicas().iter().filter(|it| !own.contains(it));
        others.extend(rest.cloned().map(|it| (fleet, it)));
        owners.extend(own.into_iter().map(|it| (fleet, it)));
    }
    let (mut syncs, mut errors) = ask(cluster, owners, &query).await;
    let enough = syncs.len() >= flags.limit;
    if !enough {
        let (more, further) = ask(cluster, others, &query).await;
        syncs.extend(more);
        errors.extend(further);
    }
    // Whoever remembers an object that is there may be the one that could not be asked.
    if syncs.is_empty()
        && object.is_some()
        && let Some(error) = errors.pop()
    {
        return Err(error);
    }
    for error in &errors {
        output::complain(&format!("left out: {error:#}"));
    }
    if syncs.is_empty() && object.is_none() {
        return Err(cluster.not_found(&resource, name).await);
    }
    Ok(syncs)
}

/// What replicas remember, and why some could not be asked.
async fn ask(
    cluster: &Cluster,
    replicas: Vec<(&Fleet, Replica)>,
    query: &[(&str, &str)],
) -> (Vec<Value>, Vec<anyhow::Error>) {
    let asked = replicas
        .iter()
        .map(|(fleet, replica)| fleet.syncs(cluster, replica, query));
    let (mut syncs, mut errors) = (Vec::new(), Vec::new());
    for answer in join_all(asked).await {
        match answer {
            Ok(found) => syncs.extend(found),
            Err(error) => errors.push(error),
        }
    }
    (syncs, errors)
}

/// The controllers that an object is a parent or a child of; of one that is not there, those that its kind is of.
async fn concerned(
    cluster: &Cluster,
    resource: &Resource,
    object: Option<&Object>,
    flags: &Why,
) -> anyhow::Result<Vec<Arc<Object>>> {
    let known = cluster.resources();
    let all = cluster.controllers().await?;
    if let Some(name) = &flags.controller {
        let chosen: Vec<_> = all.iter().filter(|it| it.name() == name).cloned().collect();
        if chosen.is_empty() {
            return Err(super::no_controller(name, &all));
        }
        return Ok(chosen);
    }
    let concerns = |it: &Arc<Object>| {
        compiled(it, &known).is_some_and(|controller| match object {
            Some(object) => controller.concerns(object) || is_child(&controller, object),
            None => is_of_kind(&controller, resource),
        })
    };
    Ok(all.iter().filter(|it| concerns(it)).cloned().collect())
}

/// A controller as a replica sees it; `None` if it is not served.
pub(super) fn compiled(controller: &Object, known: &Resources) -> Option<Arc<Controller>> {
    let value = serde_json::from_slice(controller.bytes()).ok()?;
    input::controller(&value, known).ok()
}

fn is_child(controller: &Controller, object: &Object) -> bool {
    controller.parent_of(object).is_some()
}

fn is_of_kind(controller: &Controller, resource: &Resource) -> bool {
    let is_it = |it: &Resource| it.group == resource.group && it.kind == resource.kind;
    controller.parents.iter().any(|it| is_it(&it.resource))
        || controller.children.iter().any(|it| is_it(&it.resource))
}

fn stranger(resource: &Resource, name: &str, flags: &Why) -> anyhow::Error {
    let namespace = flags.live.namespace.as_deref();
    let place = namespace.filter(|_| resource.namespaced);
    let place = place.map_or_else(String::new, |it| format!("{it}/"));
    anyhow::anyhow!(
        "{} {place}{name} is neither a parent of a controller, nor is a parent of one its controller owner",
        resource.kind
    )
}
