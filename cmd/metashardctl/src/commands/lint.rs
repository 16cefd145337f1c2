//! `lint`: what is wrong with controllers before they are applied.

use metashard_plan::{lint, resources::Resources};
use serde_json::json;

use super::files::documents;
use crate::{
    Found,
    argv::{Format, Lint},
    output::Output,
};

pub(super) async fn run(flags: &Lint, output: &mut Output) -> anyhow::Result<Found> {
    let documents = documents(&flags.files)?;
    let mut report = lint::lint(&documents, &Resources::default());
    anyhow::ensure!(
        !report.controllers.is_empty(),
        "the files hold no controller"
    );
    if flags.connect {
        lint::connect(&documents, &mut report).await;
    }
    match flags.output {
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
            output.value(flags.output, &json!({"problems": problems}))?;
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
    let is_bad = report.has_errors() || (flags.strict && !report.problems.is_empty());
    Ok(if is_bad { Found::Differs } else { Found::Same })
}

/// `1 problem`, `2 problems`.
fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}
