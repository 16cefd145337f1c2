//! What is wrong with a controller before it is applied: its fields, its kinds, its hooks.

mod connect;
mod fields;
mod kinds;
mod places;
mod scope;

use metashard_api::{crd, validate::Finding};
use metashard_reconcile::controller;
use serde_json::Value;

pub use self::connect::{connect, sources};
use crate::{
    document::{Document, name_of},
    input,
    resources::Resources,
};

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It is refused, or it cannot work.
    Error,
    /// It works, but probably not as meant.
    Warning,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Where: the file.
    pub place: String,
    /// `Kind name` of the object.
    pub object: String,
    /// Which field, what is wrong, and what to do.
    pub finding: Finding,
}

/// What was looked at, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Names of the controllers that were looked at.
    pub controllers: Vec<String>,
    /// What is wrong, in the order of the documents.
    pub problems: Vec<Problem>,
    /// How many of the parents among the documents each controller selects, for people.
    pub scopes: Vec<String>,
}

/// Looks at all controllers among some documents. CustomResourceDefinitions among them are known to it.
pub fn lint(documents: &[Document], resources: &Resources) -> Report {
    let mut resources = resources.clone();
    for document in documents {
        if document.value["kind"] == "CustomResourceDefinition" {
            resources.add_crd(document.value.clone());
        }
    }
    let mut report = Report::default();
    for document in documents {
        let value = &document.value;
        let crd = match value["kind"].as_str() {
            Some("CompositeController") => crd::composite_controllers(),
            Some("DecoratorController") => crd::decorator_controllers(),
            _ => continue,
        };
        report.controllers.push(name_of(value));
        let crd = serde_json::to_value(crd).unwrap_or_default();
        let mut found = fields::unknown(value, &crd);
        if value["apiVersion"] != metashard_api::v1alpha1::API_VERSION {
            found.push(error(
                "apiVersion",
                format!("{} is not that of controllers", value["apiVersion"]),
                format!("write {}", metashard_api::v1alpha1::API_VERSION),
            ));
        }
        compile(value, &resources, &mut found);
        found.extend(kinds::problems(value, &resources));
        found.extend(places::problems(value));
        report
            .scopes
            .extend(scope::scope(value, documents, &resources));
        report
            .problems
            .extend(found.into_iter().map(|(severity, finding)| Problem {
                severity,
                place: document.place.to_string(),
                object: name_of(value),
                finding,
            }));
    }
    report
}

type Found = (Severity, Finding);

fn error(field: &str, message: impl Into<String>, fix: impl Into<String>) -> Found {
    (Severity::Error, Finding::invalid(field, message, fix))
}

fn warning(field: &str, message: impl Into<String>, fix: impl Into<String>) -> Found {
    (Severity::Warning, Finding::no_effect(field, message, fix))
}

/// What a worker would say of it.
fn compile(value: &Value, resources: &Resources, found: &mut Vec<Found>) {
    let graded = |finding: Finding| {
        let severity = if finding.refuses() {
            Severity::Error
        } else {
            Severity::Warning
        };
        (severity, finding)
    };
    match input::controller(value, resources) {
        Ok(controller) => {
            found.extend(controller.notes.iter().cloned().map(graded));
            found.extend(controller.missing.iter().cloned().map(|mut finding| {
                finding.fix = format!(
                    "{}, or give its CustomResourceDefinition to this command",
                    finding.fix
                );
                graded(finding)
            }));
        }
        Err(input::Error::Controller { source, hint, .. }) => match *source {
            controller::Error::Refused(findings) => found.extend(findings.into_iter().map(graded)),
            controller::Error::ParentNotFound(mut finding) => {
                finding.message.push_str(&hint);
                found.push(graded(finding));
            }
            // The kinds' own checks say it better.
            controller::Error::NoStatus(_) => {}
            controller::Error::Unreadable(text) => {
                found.push(error("metadata", text, "correct it"));
            }
        },
        Err(other) => found.push(error("spec", other.to_string(), "correct its type")),
    }
}

impl Report {
    /// Whether something is refused, or cannot work.
    pub fn has_errors(&self) -> bool {
        self.problems
            .iter()
            .any(|it| it.severity == Severity::Error)
    }
}

impl Severity {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// `<file>: <severity>: <object>: <field>: <message>; <fix>`.
impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let severity = self.severity.as_str();
        write!(
            f,
            "{}: {severity}: {}: {}",
            self.place, self.object, self.finding
        )
    }
}

#[cfg(test)]
mod tests;
