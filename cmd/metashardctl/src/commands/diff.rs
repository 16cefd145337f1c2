//! `diff`: what the next sync would write to the cluster.

use std::sync::Arc;

use metashard_api::resource::Resource;
use metashard_plan::{
    hook::Hook,
    input,
    render::{Input, Rendered, render},
    suggest,
};
use metashard_reconcile::{controller::Controller, object::Object};
use serde_json::Value;

use super::{
    files::Files,
    render::{has_failed, hook, print},
};
use crate::{Found, argv::Diff, cluster::Cluster, output::Output};

pub(super) async fn run(flags: &Diff, output: &mut Output) -> anyhow::Result<Found> {
    let cluster = Cluster::connect(&flags.live).await?;
    let controller = match &flags.controller {
        Some(name) => live_controller(&cluster, name).await?,
        None => Files::read(&flags.files)?.controller(None)?.clone(),
    };
    let resources = Arc::new(cluster.resources());
    let compiled = input::controller(&controller, &resources)?;
    let hook = hook(&flags.answer, &compiled)?;
    let mut all = Vec::new();
    for rule in &compiled.parents {
        let query = rule.labels.to_query().unwrap_or_default();
        let namespace = cluster.namespace().filter(|_| rule.resource.namespaced);
        for parent in cluster.list(&rule.resource, namespace, &query).await? {
            let is_asked = flags.parent.as_deref().is_none_or(|it| it == parent.name());
            if is_asked && compiled.concerns(&parent) {
                let input = Input {
                    others: others(&cluster, &compiled, &parent).await?,
                    controller: Arc::clone(&compiled),
                    resource: Arc::clone(&rule.resource),
                    parent,
                    resources: Arc::clone(&resources),
                };
                all.push(with_related(&cluster, input, &hook).await?);
            }
        }
    }
    if let (Some(parent), true) = (&flags.parent, all.is_empty()) {
        anyhow::bail!("{} has no parent {parent:?} here", compiled.name);
    }
    print(&all, flags.output, output)?;
    Ok(found(&all))
}

/// Renders once to learn what the customize hook asks for, and again with that.
async fn with_related(cluster: &Cluster, input: Input, hook: &Hook) -> anyhow::Result<Rendered> {
    let rendered = render(input.clone(), hook).await;
    if rendered.related.is_empty() {
        return Ok(rendered);
    }
    let mut input = input;
    for resource in &rendered.related {
        input.others.extend(cluster.list(resource, None, "").await?);
    }
    Ok(render(input, hook).await)
}

fn found(all: &[Rendered]) -> Found {
    if all.iter().any(has_failed) {
        Found::Failed
    } else if all.iter().any(|it| !it.writes.is_empty()) {
        Found::Differs
    } else {
        Found::Same
    }
}

async fn live_controller(cluster: &Cluster, name: &str) -> anyhow::Result<Value> {
    let all = cluster.controllers().await?;
    if let Some(found) = all.iter().find(|it| it.name() == name) {
        return Ok(serde_json::from_slice(found.bytes())?);
    }
    let meant = suggest::nearest(name, all.iter().map(|it| it.name()));
    let hint = meant.map_or_else(String::new, |it| format!("; did you mean {it}?"));
    anyhow::bail!("controller {name:?} not found{hint}")
}

/// What may be a child of a parent.
async fn others(
    cluster: &Cluster,
    controller: &Controller,
    parent: &Object,
) -> anyhow::Result<Vec<Arc<Object>>> {
    let mut all = Vec::new();
    for rule in &controller.children {
        let namespace = parent.namespace().filter(|_| rule.resource.namespaced);
        all.extend(cluster.list(&rule.resource, namespace, "").await?);
    }
    if controller.history.is_some() && parent.namespace().is_some() {
        let revisions = Resource::of_revisions();
        all.extend(cluster.list(&revisions, parent.namespace(), "").await?);
    }
    Ok(all)
}
