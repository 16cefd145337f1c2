//! `lint`: what is wrong with controllers before they are applied.

use std::sync::Arc;

use metashard_plan::{
    document::{Document, Place},
    hook::Holders,
    input::DEFAULT_NAMESPACE,
    lint::{self, Report},
    resources::Resources,
};
use metashard_reconcile::object::Object;
use serde_json::{Value, json};

use super::files::documents;
use crate::{
    Found,
    argv::{Format, Lint},
    cluster::Cluster,
    output::Output,
};

pub(super) async fn run(flags: &Lint, output: &mut Output) -> anyhow::Result<Found> {
    let mut documents = documents(&flags.files)?;
    let cluster = if flags.cluster {
        Some(Cluster::connect(&flags.live).await?)
    } else {
        None
    };
    let mut resources = Resources::default();
    if let Some(cluster) = &cluster {
        resources = with_crds(cluster).await;
        if flags.files.is_empty() {
            documents.extend(controllers(cluster, flags).await?);
        }
    }
    let mut report = lint::lint(&documents, &resources);
    anyhow::ensure!(
        !report.controllers.is_empty(),
        "there is no controller to look at"
    );
    if flags.connect {
        let namespace = flags.live.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let objects = documents.iter().map(|it| &it.value);
        let mut holders = Holders::of_files(objects, namespace);
        if let Some(cluster) = &cluster {
            cluster.hold(lint::sources(&documents), &mut holders).await;
        }
        lint::connect(&documents, &holders, &mut report).await;
    }
    tell(&report, flags.output, output)?;
    let is_bad = report.has_errors() || (flags.strict && !report.problems.is_empty());
    Ok(if is_bad { Found::Differs } else { Found::Same })
}

fn tell(report: &Report, format: Format, output: &mut Output) -> anyhow::Result<()> {
    match format {
        Format::Json | Format::Yaml => {
            let problems: Vec<_> = report
                .problems
                .iter()
                .map(|it| {
                    json!({
                        "severity": it.severity.as_str(),
                        "file": it.place,
                        "object": it.object,
                        "field": it.finding.field,
                        "message": it.finding.message,
                        "fix": it.finding.fix,
                    })
                })
                .collect();
            output.value(format, &json!({"problems": problems}))?;
        }
        _ => {
            for problem in &report.problems {
                output.line(&problem.to_string())?;
            }
            for scope in &report.scopes {
                output.line(scope)?;
            }
            let (problems, controllers) = (report.problems.len(), report.controllers.len());
            output.line(&format!(
                "{} in {}",
                counted(problems, "problem"),
                counted(controllers, "controller")
            ))?;
        }
    }
    Ok(())
}

/// What the cluster serves, with the schemas of custom kinds, for those who may read them.
async fn with_crds(cluster: &Cluster) -> Resources {
    let mut resources = (*cluster.resources()).clone();
    if let Ok(crds) = cluster.resource("customresourcedefinitions.apiextensions.k8s.io") {
        for crd in cluster.list_all(&crds).await.unwrap_or_default() {
            resources.add_crd(serde_json::from_slice(crd.bytes()).unwrap_or_default());
        }
    }
    resources
}

/// The controllers of the cluster, as if they came from a file.
async fn controllers(cluster: &Cluster, flags: &Lint) -> anyhow::Result<Vec<Document>> {
    let found = cluster.controllers_with(&flags.live.selector).await?;
    let document = |it: &Arc<Object>| {
        let mut value: Value = serde_json::from_slice(it.bytes())?;
        // What the API server adds is nobody's mistake.
        if let Some(object) = value.as_object_mut() {
            object.remove("status");
        }
        let place = Place {
            file: "cluster".to_owned(),
            number: 0,
        };
        Ok(Document { place, value })
    };
    found.iter().map(document).collect()
}

/// `1 problem`, `2 problems`.
fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}
