//! The revisions of one parent: found among observed objects, read, and as they are to be written.

use std::{cmp::Ordering, collections::BTreeSet, sync::Arc};

use metashard_api::{
    names::{LABEL_REVISION_GROUP, LABEL_REVISION_RESOURCE},
    resource::Resource,
    selector::Selector,
    v1alpha1::{API_VERSION, revision::RevisionChildren},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::patch::{self, Error};
use crate::{
    claim::{self, Change, Claims},
    controller::{Controller, History},
    diff,
    object::{Object, compare_versions},
    write::{Op, Propagation, Purpose, Write},
};

/// Children, by index of their rule and name. A namespaced parent has children in its own namespace only.
pub(crate) type Members = BTreeSet<(usize, String)>;

/// One revision of the parent.
#[derive(Debug)]
pub(crate) struct Revision {
    pub(crate) name: String,
    /// The stored object; `None` for a new one.
    object: Option<Arc<Object>>,
    patch: Value,
    /// The children that are at it, of kinds that are moved one at a time.
    pub(crate) members: Members,
    /// Whether it names others besides.
    has_strangers: bool,
}

/// The revisions of one parent.
#[derive(Debug)]
pub(crate) struct Revisions {
    /// The one that equals the parent as it is.
    pub(crate) latest: Revision,
    /// Others that children are at, the one written last first.
    pub(crate) older: Vec<Revision>,
    /// Others that no child is at.
    empty: Vec<Revision>,
    /// The parent as it is.
    parent: Value,
}

/// What revisions are kept for.
pub(crate) struct Scope<'a> {
    pub(crate) controller: &'a Controller,
    pub(crate) history: &'a History,
    /// The resource that the parent is of.
    pub(crate) resource: &'a Resource,
    pub(crate) parent: &'a Object,
}

/// The content of a stored revision.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    #[serde(default)]
    parent_patch: Map<String, Value>,
    #[serde(default)]
    children: Option<Vec<RevisionChildren>>,
}

impl Scope<'_> {
    /// Sorts out what may be a revision of the parent. Its own are known by their owner; one without is adopted if its labels
    /// are right, or if its name is the one that the latest revision must have.
    pub(crate) fn claim(&self, selector: &Selector, candidates: &[Arc<Object>]) -> Claims {
        let mut claims = Claims::default();
        for object in candidates {
            if object.namespace() != self.parent.namespace() {
                continue;
            }
            match object.controller_owner() {
                Some(owner) if owner.uid == self.parent.uid() => {
                    claims.mine.push(Arc::clone(object));
                }
                None if self.adopts(selector, object) => {
                    claims.changes.push(Change {
                        object: Arc::clone(object),
                        write: self.adopt(object),
                    });
                }
                Some(_) | None => {}
            }
        }
        claims
    }

    fn adopts(&self, selector: &Selector, object: &Object) -> bool {
        let resource = self.resource;
        let is_of_kind = object.label(LABEL_REVISION_GROUP) == Some(&resource.group)
            && object.label(LABEL_REVISION_RESOURCE) == Some(&resource.plural);
        is_of_kind
            && !self.parent.is_deleting()
            && !object.is_deleting()
            && (selector.matches(|key| object.label(key))
                || self.latest_name().is_ok_and(|name| name == object.name()))
    }

    fn adopt(&self, object: &Object) -> Write {
        let owners = object
            .owner_references()
            .filter(|owner| owner.uid != self.parent.uid())
            .map(claim::reference)
            .chain([claim::owner(self.resource, self.parent)])
            .collect();
        let fields = Map::from_iter([("ownerReferences".to_owned(), owners)]);
        Write {
            resource: Arc::clone(&self.history.resource),
            namespace: object.namespace().map(Into::into),
            name: object.name().into(),
            op: Op::Update {
                body: object.with_metadata(fields),
            },
            purpose: Purpose::AdoptChild,
            why: "it is a revision of the parent and nothing controls it".into(),
        }
    }

    fn latest_name(&self) -> Result<String, Error> {
        let parent: Value = serde_json::from_slice(self.parent.bytes())?;
        let patch = patch::cut(&parent, &self.history.paths)?;
        Ok(patch::name(self.resource, self.parent.uid(), &patch))
    }

    /// Reads the parent's revisions, and finds the latest or makes it.
    pub(crate) fn read(&self, objects: &[Arc<Object>]) -> Result<Revisions, Error> {
        let parent: Value = serde_json::from_slice(self.parent.bytes())?;
        let patch = patch::cut(&parent, &self.history.paths)?;
        let (mut latest, mut older, mut empty) = (None, Vec::new(), Vec::new());
        for object in objects.iter().filter(|it| !it.is_deleting()) {
            let revision = self.stored(object)?;
            if latest.is_none() && diff::equal(&revision.patch, &patch) {
                latest = Some(revision);
            } else if revision.members.is_empty() {
                empty.push(revision);
            } else {
                older.push(revision);
            }
        }
        // A child of two revisions is at the one that was written last.
        older.sort_by(|a, b| b.order(a));
        let latest = latest.unwrap_or_else(|| Revision {
            name: patch::name(self.resource, self.parent.uid(), &patch),
            object: None,
            patch,
            members: Members::new(),
            has_strangers: false,
        });
        Ok(Revisions {
            latest,
            older,
            empty,
            parent,
        })
    }

    fn stored(&self, object: &Arc<Object>) -> Result<Revision, Error> {
        let content: Content = serde_json::from_slice(object.bytes())?;
        let mut revision = Revision {
            name: object.name().to_owned(),
            object: Some(Arc::clone(object)),
            patch: Value::Object(content.parent_patch),
            members: Members::new(),
            has_strangers: false,
        };
        for group in content.children.unwrap_or_default() {
            let of = self.controller.children.iter().position(|rule| {
                rule.rolling.is_some()
                    && rule.resource.group == group.api_group
                    && rule.resource.kind == group.kind
            });
            match of {
                Some(rule) => {
                    let names = group.names.into_iter().map(|name| (rule, name));
                    revision.members.extend(names);
                }
                None => revision.has_strangers = true,
            }
        }
        Ok(revision)
    }

    /// The parent as it was at an older revision: all else of it as it is now.
    pub(crate) fn parent_at(
        &self,
        revisions: &Revisions,
        older: &Revision,
    ) -> Result<Object, Error> {
        let mut parent = revisions.parent.clone();
        patch::lay_over(&mut parent, &older.patch, &self.history.paths)?;
        Ok(Object::parse(parent.to_string())?)
    }

    /// The write that the latest revision needs to hold these children.
    pub(crate) fn write_latest(
        &self,
        revisions: &Revisions,
        members: &Members,
    ) -> Result<Option<Write>, Error> {
        let latest = &revisions.latest;
        if let Some(object) = &latest.object {
            return self.update(latest, object, members);
        }
        let labels = patch::labels(
            self.resource,
            self.controller.generate_selector,
            &revisions.parent,
            self.parent.uid(),
        )?;
        let body = json!({
            "apiVersion": API_VERSION,
            "kind": self.history.resource.kind,
            "metadata": {
                "name": latest.name,
                "namespace": self.parent.namespace(),
                "labels": labels,
                "ownerReferences": [claim::owner(self.resource, self.parent)],
            },
            "parentPatch": latest.patch,
            "children": self.groups(members),
        });
        let op = Op::Create {
            body: body.to_string().into(),
        };
        Ok(Some(self.write(latest, op, Purpose::CreateRevision)))
    }

    /// The writes that the other revisions need, each to hold these children: one that holds none goes.
    pub(crate) fn write_older(
        &self,
        revisions: &Revisions,
        members: &[Members],
    ) -> Result<Vec<Write>, Error> {
        let mut writes = Vec::new();
        let empty = revisions.empty.iter().map(|it| (it, None));
        let older = revisions.older.iter().zip(members.iter().map(Some));
        for (revision, members) in older.chain(empty) {
            let Some(object) = &revision.object else {
                continue;
            };
            if let Some(members) = members.filter(|it| !it.is_empty()) {
                writes.extend(self.update(revision, object, members)?);
                continue;
            }
            let op = Op::Delete {
                uid: object.uid().into(),
                resource_version: object.resource_version().into(),
                propagation: Propagation::Background,
            };
            writes.push(self.write(revision, op, Purpose::DeleteRevision));
        }
        Ok(writes)
    }

    fn update(
        &self,
        revision: &Revision,
        object: &Object,
        members: &Members,
    ) -> Result<Option<Write>, Error> {
        if revision.members == *members && !revision.has_strangers {
            return Ok(None);
        }
        let mut body = object.to_value()?;
        body["children"] = self.groups(members);
        let op = Op::Update {
            body: body.to_string().into(),
        };
        Ok(Some(self.write(revision, op, Purpose::UpdateRevision)))
    }

    fn groups(&self, members: &Members) -> Value {
        let rules = self.controller.children.iter().enumerate();
        let groups = rules.filter_map(|(index, rule)| {
            let names: Vec<_> = members
                .iter()
                .filter(|(rule, _)| *rule == index)
                .map(|(_, name)| name.as_str())
                .collect();
            let (group, kind) = (&rule.resource.group, &rule.resource.kind);
            (!names.is_empty()).then(|| json!({ "apiGroup": group, "kind": kind, "names": names }))
        });
        groups.collect()
    }

    fn write(&self, revision: &Revision, op: Op, purpose: Purpose) -> Write {
        let why = match purpose {
            Purpose::CreateRevision => "the parent has not been like this",
            Purpose::DeleteRevision => "no child is at it",
            _ => "other children are at it now",
        };
        Write {
            resource: Arc::clone(&self.history.resource),
            namespace: self.parent.namespace().map(Into::into),
            name: revision.name.as_str().into(),
            op,
            purpose,
            why: why.into(),
        }
    }
}

impl Revision {
    fn order(&self, other: &Self) -> Ordering {
        let version = |it: &Self| {
            it.object
                .as_ref()
                .map(|it| it.resource_version().to_owned())
        };
        match (version(self), version(other)) {
            (Some(ours), Some(theirs)) => compare_versions(&ours, &theirs),
            _ => None,
        }
        .unwrap_or(Ordering::Equal)
        .then_with(|| self.name.cmp(&other.name))
    }
}
