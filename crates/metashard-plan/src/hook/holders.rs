//! The Secrets and ConfigMaps that hold what hooks are called with, from files or from a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use metashard_api::endpoint::{Source, SourceKind};
use metashard_hook::Found;
use serde_json::{Map, Value};

/// What is known of the objects that hold certificates and credentials. What it does not know does not exist.
#[derive(Clone, Default)]
pub struct Holders(BTreeMap<Source, Held>);

#[derive(Clone)]
enum Held {
    Object(Bytes),
    Unreadable(String),
}

impl Holders {
    /// Those among the objects of files. `namespace`: of objects that name none.
    pub fn of_files<'a>(objects: impl IntoIterator<Item = &'a Value>, namespace: &str) -> Self {
        let mut holders = Self::default();
        for object in objects {
            if let Some(source) = source_of(object, namespace) {
                holders.add(source, as_stored(object).to_string());
            }
        }
        holders
    }

    /// Adds one as the API server has it.
    pub fn add(&mut self, source: Source, object: impl Into<Bytes>) {
        self.0.insert(source, Held::Object(object.into()));
    }

    /// Adds one that cannot be read, and why.
    pub fn add_unreadable(&mut self, source: Source, why: String) {
        self.0.insert(source, Held::Unreadable(why));
    }

    /// Those of `sources` that it does not know.
    pub fn lacking(&self, sources: BTreeSet<Source>) -> impl Iterator<Item = Source> {
        sources.into_iter().filter(|it| !self.0.contains_key(it))
    }

    pub(super) fn find(&self, source: &Source) -> Found<'_> {
        match self.0.get(source) {
            Some(Held::Object(object)) => Found::Object(object),
            Some(Held::Unreadable(why)) => Found::Unreadable(why),
            None => Found::Missing,
        }
    }
}

/// Names only: what they hold is secret.
impl fmt::Debug for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The name of an object by which hooks refer to it; `None` if it is neither a Secret nor a ConfigMap.
pub fn source_of(object: &Value, namespace: &str) -> Option<Source> {
    let kind = match object["kind"].as_str()? {
        "Secret" => SourceKind::Secret,
        "ConfigMap" => SourceKind::ConfigMap,
        _ => return None,
    };
    let metadata = &object["metadata"];
    Some(Source {
        kind,
        namespace: metadata["namespace"]
            .as_str()
            .unwrap_or(namespace)
            .to_owned(),
        name: metadata["name"].as_str()?.to_owned(),
    })
}

/// As the API server stores it: texts of a Secret become part of its data.
fn as_stored(object: &Value) -> Value {
    let mut stored = object.clone();
    let Some(texts) = stored["stringData"].as_object().cloned() else {
        return stored;
    };
    if !stored["data"].is_object() {
        stored["data"] = Value::Object(Map::new());
    }
    for (key, text) in texts {
        let text = text.as_str().unwrap_or_default();
        stored["data"][key] = STANDARD.encode(text).into();
    }
    stored
}
