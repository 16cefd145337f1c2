//! What the files of `-f` hold, sorted by what it is for.

use std::path::PathBuf;

use metashard_plan::{
    document::{self, Document},
    resources::Resources,
    suggest,
};
use serde_json::Value;

/// Kinds of controllers.
const CONTROLLERS: [&str; 2] = ["CompositeController", "DecoratorController"];

/// What some files hold.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) controllers: Vec<Value>,
    pub(super) resources: Resources,
    /// Everything else.
    pub(super) objects: Vec<Value>,
}

impl Files {
    /// Reads and sorts them.
    pub(super) fn read(files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut sorted = Self::default();
        for document in documents(files)? {
            let value = document.value;
            match value["kind"].as_str() {
                Some("CustomResourceDefinition") => sorted.resources.add_crd(value),
                Some(kind) if CONTROLLERS.contains(&kind) => sorted.controllers.push(value),
                Some(_) => sorted.objects.push(value),
                None => anyhow::bail!(
                    "read {}: it is no object, for it has no kind",
                    document.place
                ),
            }
        }
        Ok(sorted)
    }

    /// The controller of this name, or the only one.
    pub(super) fn controller(&self, name: Option<&str>) -> anyhow::Result<&Value> {
        let names = || {
            let name = |it: &'_ Value| {
                it["metadata"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            self.controllers.iter().map(name).collect::<Vec<_>>()
        };
        match (name, &self.controllers[..]) {
            (None, [controller]) => Ok(controller),
            (None, []) => anyhow::bail!("the files hold no controller"),
            (None, _) => anyhow::bail!(
                "the files hold several controllers: choose one by --controller ({})",
                names().join(", ")
            ),
            (Some(name), all) => {
                let found = all.iter().find(|it| it["metadata"]["name"] == name);
                found.ok_or_else(|| {
                    let names = names();
                    let hint = suggest::hint(name, names.iter().map(String::as_str));
                    anyhow::anyhow!("the files hold no controller {name:?}{hint}")
                })
            }
        }
    }
}

/// All documents of some files.
pub(super) fn documents(files: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
    let mut all = Vec::new();
    for file in files {
        all.extend(document::read(file)?);
    }
    Ok(all)
}
