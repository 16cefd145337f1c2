//! Cases: a controller, a parent, its children and an answer in; what was written comes out and is compared.
//!
//! A file holds one case, or `cases:` with some; fields beside `cases` count for all of them. What is expected lies
//! beside it, in `<name>.expected.yaml`, and is rewritten as a whole on request.

mod junit;
mod read;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use metashard_runtime::clock::Clock;
use serde_json::Value;

pub use self::junit::junit;
use self::read::Case;
use crate::{
    changes,
    document::{self},
    hook::{Holders, Hook},
    input,
    render::{self, render},
    resources::Resources,
    show,
};

/// Ending of the files that hold what is expected.
const EXPECTED: &str = "expected.yaml";

/// Longest time for the answer of a command.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// A file of cases that were run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suite {
    /// The file.
    pub file: PathBuf,
    /// What came of its cases, in their order.
    pub results: Vec<CaseResult>,
}

/// What came of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// Its name.
    pub name: String,
    /// What came of it.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
}

/// What came of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is as expected.
    Same,
    /// It is otherwise; a line for each difference.
    Differs(Vec<String>),
    /// What was expected has been rewritten.
    Updated,
    /// It could not be run.
    Failed(String),
}

/// Why a file of cases cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error(transparent)]
    Document(#[from] document::Error),
    /// It holds no cases in the right form.
    #[error("read {file}: {text}")]
    Form {
        /// The file.
        file: String,
        /// What is wrong.
        text: String,
    },
    /// What is expected cannot be written.
    #[error("write {file}")]
    Write {
        /// The file.
        file: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// Whether a file holds what is expected of cases, and no cases.
pub fn is_expectation(file: &Path) -> bool {
    file.to_string_lossy().ends_with(EXPECTED)
}

/// Runs the cases of a file. With `update`, what comes out is what is expected from now on.
///
/// # Errors
/// When the file cannot be read, or what is expected cannot be written.
pub async fn run(file: &Path, update: bool, clock: &Clock) -> Result<Suite, Error> {
    let cases = read::cases(file)?;
    let beside = expectations(file);
    let expected = read_expected(&beside)?;
    let mut found = BTreeMap::new();
    let mut results = Vec::with_capacity(cases.len());
    for case in cases {
        let began = clock.now().mono;
        let name = case.name.clone();
        let outcome = outcome(case).await;
        let verdict = match outcome {
            Err(text) => Verdict::Failed(text),
            Ok(value) => {
                let verdict = compare(expected.get(&name), &value, update);
                found.insert(name.clone(), value);
                verdict
            }
        };
        results.push(CaseResult {
            name,
            verdict,
            took: clock.now().mono.since(began),
        });
    }
    if update && results.iter().any(|it| it.verdict == Verdict::Updated) {
        // A case that could not be run keeps what it had.
        for result in &results {
            if let Some(old) = expected.get(&result.name) {
                found
                    .entry(result.name.clone())
                    .or_insert_with(|| old.clone());
            }
        }
        write_expected(&beside, &found)?;
    }
    Ok(Suite {
        file: file.to_owned(),
        results,
    })
}

fn compare(expected: Option<&Value>, found: &Value, update: bool) -> Verdict {
    let differences = match expected {
        Some(expected) if expected == found => return Verdict::Same,
        _ if update => return Verdict::Updated,
        Some(expected) => changes::between(expected, found)
            .into_iter()
            .map(|it| format!("{} {}: {}", it.mark, it.path, it.text))
            .collect(),
        None => vec!["nothing is expected of this case yet: --update writes it down".to_owned()],
    };
    Verdict::Differs(differences)
}

/// What one case comes to, as [`show::value`] says it.
async fn outcome(case: Case) -> Result<Value, String> {
    let chain = |error: &dyn std::error::Error| metashard_runtime::log::chain(error);
    let mut resources = Resources::default();
    for crd in case.crds {
        resources.add_crd(crd);
    }
    let controller = input::controller_applying(&case.controller, &resources, case.apply)
        .map_err(|it| chain(&it))?;
    let namespace = case
        .namespace
        .unwrap_or_else(|| input::DEFAULT_NAMESPACE.to_owned());
    let (resource, parent) =
        input::parent(case.parent, &controller, &namespace).map_err(|error| chain(&error))?;
    let others = input::others(case.children, &controller, &parent, &resources)
        .map_err(|error| chain(&error))?;
    let holders = Holders::of_files(&case.secrets, &namespace);
    let hook = match (case.answer, case.exec, case.url) {
        (Some(answer), ..) => Hook::recorded(answer.to_string()),
        (None, Some(words), _) => Hook::Command {
            words,
            limit: COMMAND_LIMIT,
        },
        (None, None, url) => {
            Hook::remote(&controller, url.as_deref()).map_err(|error| chain(&error))?
        }
    };
    hook.secure(&holders).map_err(|error| chain(&error))?;
    let input = render::Input {
        controller,
        resource,
        parent,
        others,
        resources: Arc::new(resources),
    };
    Ok(show::value(&render(input, &hook).await))
}

fn expectations(file: &Path) -> PathBuf {
    file.with_extension(EXPECTED)
}

fn read_expected(file: &Path) -> Result<BTreeMap<String, Value>, Error> {
    if !file.exists() {
        return Ok(BTreeMap::new());
    }
    let documents = document::read(file)?;
    Ok(documents
        .into_iter()
        .filter_map(|document| match document.value {
            Value::Object(cases) => Some(cases),
            _ => None,
        })
        .flatten()
        .collect())
}

fn write_expected(file: &Path, found: &BTreeMap<String, Value>) -> Result<(), Error> {
    let text = serde_saphyr::to_string(found).unwrap_or_default();
    let text = format!("# Written by `metashardctl test --update`.\n{text}");
    std::fs::write(file, text).map_err(|source| Error::Write {
        file: file.display().to_string(),
        source,
    })
}

impl Verdict {
    /// Whether it is as it should be.
    pub const fn is_good(&self) -> bool {
        matches!(self, Self::Same | Self::Updated)
    }
}

#[cfg(test)]
mod tests;
