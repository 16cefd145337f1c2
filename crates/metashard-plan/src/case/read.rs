//! Reads files of cases.

use std::path::Path;

use metashard_api::names::FIELD_MANAGER;
use metashard_reconcile::controller::Apply;
use serde_json::{Map, Value};

use super::Error;
use crate::{document, suggest};

/// One case, with everything read that it names.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) controller: Value,
    pub(super) crds: Vec<Value>,
    pub(super) parent: Value,
    pub(super) children: Vec<Value>,
    /// Secrets and ConfigMaps that hold what the hook is called with.
    pub(super) secrets: Vec<Value>,
    pub(super) namespace: Option<String>,
    pub(super) answer: Option<Value>,
    pub(super) exec: Option<Vec<String>>,
    pub(super) url: Option<String>,
    /// How the replicas write children.
    pub(super) apply: Apply,
}

/// Fields of a case.
const FIELDS: [&str; 12] = [
    "name",
    "controller",
    "crds",
    "parent",
    "children",
    "namespace",
    "answer",
    "exec",
    "url",
    "applyStrategy",
    "fieldManager",
    "secrets",
];

/// The cases of a file.
pub(super) fn cases(file: &Path) -> Result<Vec<Case>, Error> {
    let mut all = Vec::new();
    for document in document::read(file)? {
        let form = |text: String| Error::Form {
            file: document.place.to_string(),
            text,
        };
        let Value::Object(mut shared) = document.value else {
            return Err(form("a mapping is expected".to_owned()));
        };
        let cases = match shared.remove("cases") {
            None => vec![Value::Object(Map::new())],
            Some(Value::Array(cases)) => cases,
            Some(_) => return Err(form("`cases` must be a list".to_owned())),
        };
        for (index, case) in cases.into_iter().enumerate() {
            let Value::Object(own) = case else {
                return Err(form(format!("case {} is no mapping", index + 1)));
            };
            let mut fields = shared.clone();
            fields.extend(own);
            let folder = file.parent().unwrap_or_else(|| Path::new(""));
            all.push(case_of(fields, folder, index).map_err(form)?);
        }
    }
    Ok(all)
}

fn case_of(mut fields: Map<String, Value>, folder: &Path, index: usize) -> Result<Case, String> {
    if let Some(unknown) = fields.keys().find(|it| !FIELDS.contains(&it.as_str())) {
        let hint = suggest::hint(unknown, FIELDS);
        return Err(format!("a case has no field {unknown:?}{hint}"));
    }
    let name = match fields.remove("name") {
        Some(Value::String(name)) => name,
        None => format!("case {}", index + 1),
        Some(_) => return Err("`name` must be a text".to_owned()),
    };
    let mut text = |field: &str| match fields.remove(field) {
        Some(Value::String(text)) => Ok(Some(text)),
        None | Some(Value::Null) => Ok(None),
        Some(_) => Err(format!("{name}: `{field}` must be a text")),
    };
    let (namespace, url) = (text("namespace")?, text("url")?);
    let (strategy, manager) = (text("applyStrategy")?, text("fieldManager")?);
    let apply = Apply::of_flags(
        strategy.as_deref().unwrap_or_default(),
        manager.as_deref().unwrap_or(FIELD_MANAGER),
    )
    .map_err(|error| format!("{name}: {error}"))?;
    let exec = fields.remove("exec").map(serde_json::from_value);
    let exec = exec
        .transpose()
        .map_err(|_| format!("{name}: `exec` must be a list of words"))?;
    let mut objects = |field: &str| {
        let value = fields.remove(field).unwrap_or_default();
        objects(value, folder).map_err(|error| format!("{name}: {field}: {error}"))
    };
    let one = |field: &str, mut objects: Vec<Value>| match (objects.pop(), objects.len()) {
        (Some(object), 0) => Ok(object),
        _ => Err(format!("{name}: one {field} is needed")),
    };
    Ok(Case {
        controller: one("controller", objects("controller")?)?,
        crds: objects("crds")?,
        parent: one("parent", objects("parent")?)?,
        children: objects("children")?,
        secrets: objects("secrets")?,
        answer: objects("answer")?.pop(),
        namespace,
        exec,
        url,
        apply,
        name: name.clone(),
    })
}

/// An object, the name of a file with objects, or a list of both.
fn objects(value: Value, folder: &Path) -> Result<Vec<Value>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(file) => {
            let documents = document::read(&folder.join(file));
            let documents = documents.map_err(|error| metashard_runtime::log::chain(&error))?;
            Ok(documents.into_iter().map(|it| it.value).collect())
        }
        Value::Array(values) => {
            let mut all = Vec::new();
            for value in values {
                all.extend(objects(value, folder)?);
            }
            Ok(all)
        }
        value @ Value::Object(_) => Ok(vec![value]),
        other => Err(format!("{other} is neither an object nor a file")),
    }
}
