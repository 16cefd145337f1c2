//! `diff`: what the next sync would write to the cluster.

mod stock;

use std::sync::Arc;

use metashard_api::resource::Resource;
use metashard_plan::{
    hook::{Holders, Hook},
    input,
    render::{Input, Rendered, render},
};
use metashard_reconcile::{controller::Controller, object::Object};
use serde_json::Value;

use self::stock::Stock;
use super::{
    files::Files,
    render::{hook, print},
};
use crate::{
    Found,
    argv::Diff,
    cluster::Cluster,
    output::{self, Output},
};

pub(super) async fn run(flags: &Diff, output: &mut Output) -> anyhow::Result<Found> {
    let cluster = Cluster::connect(&flags.live).await?;
    let files = Files::read(&flags.files)?;
    let controller = match &flags.controller {
        Some(name) => live_controller(&cluster, name).await?,
        None => files.controller(None)?.clone(),
    };
    let resources = cluster.resources();
    let compiled = input::controller_applying(&controller, &resources, flags.applying.read()?)?;
    let hook = hook(&flags.answer, &compiled)?;
    let mut holders = Holders::of_files(&files.objects, cluster.default_namespace());
    cluster.hold(hook.sources(), &mut holders).await;
    hook.secure(&holders)?;
    let parents = parents(&cluster, &compiled, flags).await?;
    let mut stock = Stock::new(&cluster, parents.iter().map(|(_, parent)| &**parent));
    let mut all = Vec::with_capacity(parents.len());
    for (resource, parent) in parents {
        let input = Input {
            others: stock.beside(&parent, &compiled).await?,
            controller: Arc::clone(&compiled),
            resource,
            parent,
            resources: Arc::clone(&resources),
        };
        all.push(with_related(&mut stock, input, &hook).await?);
    }
    if all.is_empty() {
        output::complain(&nobody(&cluster, &compiled, flags)?);
    }
    print(&all, flags.output, output)?;
    Ok(found(&all))
}

/// The parents that were asked for.
async fn parents(
    cluster: &Cluster,
    controller: &Controller,
    flags: &Diff,
) -> anyhow::Result<Vec<(Arc<Resource>, Arc<Object>)>> {
    let mut parents = Vec::new();
    for rule in &controller.parents {
        let labels = rule.labels.to_query().unwrap_or_default();
        let labels = [labels.as_str(), flags.live.selector.as_str()];
        let labels: Vec<_> = labels.into_iter().filter(|it| !it.is_empty()).collect();
        let labels = labels.join(",");
        let namespace = cluster.namespace().filter(|_| rule.resource.namespaced);
        let listed = cluster.list(&rule.resource, namespace, &labels);
        for parent in listed.await? {
            let is_asked = flags.parent.as_deref().is_none_or(|it| it == parent.name());
            if is_asked && controller.concerns(&parent) {
                parents.push((Arc::clone(&rule.resource), parent));
            }
        }
    }
    Ok(parents)
}

/// That there was nothing to look at, which looks like no difference.
fn nobody(cluster: &Cluster, controller: &Controller, flags: &Diff) -> anyhow::Result<String> {
    let name = &controller.name;
    if let Some(parent) = &flags.parent {
        anyhow::bail!("{name} has no parent {parent:?} here");
    }
    Ok(match cluster.namespace() {
        Some(namespace) => {
            format!("{name} has no such parents in namespace {namespace}; -A looks in all")
        }
        None => format!("{name} has no such parents"),
    })
}

/// Renders once to learn what the customize hook asks for, and again with that.
async fn with_related(
    stock: &mut Stock<'_>,
    input: Input,
    hook: &Hook,
) -> anyhow::Result<Rendered> {
    let rendered = render(input.clone(), hook).await;
    if rendered.related.is_empty() {
        return Ok(rendered);
    }
    let mut input = input;
    for resource in &rendered.related {
        input
            .others
            .extend(stock.all(resource).await?.iter().cloned());
    }
    Ok(render(input, hook).await)
}

fn found(all: &[Rendered]) -> Found {
    if all.iter().any(Rendered::has_failed) {
        Found::Failed
    } else if all.iter().any(|it| !it.writes.is_empty()) {
        Found::Differs
    } else {
        Found::Same
    }
}

async fn live_controller(cluster: &Cluster, name: &str) -> anyhow::Result<Value> {
    let all = cluster.controllers().await?;
    if let Some(found) = all.iter().find(|it| super::is_called(it, name)) {
        return Ok(serde_json::from_slice(found.bytes())?);
    }
    Err(super::no_controller(name, &all))
}
