//! What a request asks for, from its path and query.

use std::{collections::BTreeMap, time::Duration};

use hyper::Uri;

use super::{Key, LONGEST};

/// Path and query, understood.
#[derive(Debug)]
pub(super) struct Target {
    /// The collection if it names no object.
    pub(super) key: Key,
    pub(super) api_version: String,
    query: BTreeMap<String, String>,
}

impl Target {
    /// `None` for a path that names no resource.
    pub(super) fn parse(uri: &Uri) -> Option<Self> {
        let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let (api_version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ((*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let (resource, name) = match rest {
            [resource] => (*resource, ""),
            [resource, name] => (*resource, *name),
            _ => return None,
        };
        Some(
            Self {
                key: Key {
                    resource: resource.to_owned(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                },
                api_version,
                query: query(uri.query().unwrap_or_default()),
            }
            .with_field_selector(),
        )
    }

    /// The only selector of fields that is used names one object.
    fn with_field_selector(mut self) -> Self {
        let name = self.get("fieldSelector").strip_prefix("metadata.name=");
        if let Some(name) = name.map(str::to_owned) {
            self.key.name = name;
        }
        self
    }

    /// A parameter; empty if it is absent.
    pub(super) fn get(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub(super) fn is_watch(&self) -> bool {
        self.get("watch") == "true"
    }

    /// How long the server may work on it.
    pub(super) fn timeout(&self) -> Duration {
        let millis = self.get("timeout").strip_suffix("ms");
        let millis = millis.and_then(|millis| millis.parse().ok());
        millis.map_or(LONGEST, Duration::from_millis)
    }
}

fn query(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.replace("%3D", "=")))
        .collect()
}
