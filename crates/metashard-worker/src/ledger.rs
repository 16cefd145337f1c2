//! Which kinds of parents carry a controller's finalizer, as the cluster remembers it.
//!
//! A controller object may be deleted while no replica runs, and with it goes its spec, which names the kinds of its
//! parents. So there is a ConfigMap in the system namespace for each controller that holds its parents by its finalizer. It is written before
//! the controller's first sync, only ever gains kinds, and is deleted when the controller is gone and its finalizer is on
//! no parent any more.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use metashard_api::{
    endpoint::SourceKind,
    id::{ControllerKind, ControllerUid},
    names::{LABEL_RECORD, RECORD_FINALIZERS, RECORD_FINALIZERS_PREFIX},
    resource::Resource,
};
use metashard_fleet::message::Claim;
use metashard_kube::{
    identity::Identity,
    informer::{Informers, TroubleKind, View, ViewKey, ViewState},
};
use metashard_reconcile::{
    controller::Controller,
    object::Object,
    sync::Refused,
    write::{Op, Propagation, Purpose, Write, WriteError},
};
use serde_json::{Value, json};
use tracing::warn;

use crate::{catalog::ControllerName, context::Context};

/// How long the first list of the records is waited for; without it, a record that exists is found by a conflict.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two attempts to write a record.
const RETRY: Duration = Duration::from_secs(1);

/// The records of all controllers.
#[derive(Debug)]
pub(crate) struct Ledger {
    view: View,
    resource: Arc<Resource>,
    namespace: Box<str>,
}

/// What is recorded of one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) controller: ControllerName,
    /// `apiVersion` and plural of each kind of parents that it ever had.
    pub(crate) parents: BTreeSet<(String, String)>,
    /// Uid and resourceVersion of the ConfigMap.
    stored: (Box<str>, Box<str>),
}

impl Ledger {
    /// Follows the records in `namespace`.
    pub(crate) fn open(informers: &Informers, namespace: &str) -> Self {
        let resource = Arc::new(SourceKind::ConfigMap.resource());
        let key = ViewKey::new(Identity::process(), Arc::clone(&resource))
            .in_namespace(namespace)
            .selecting(format!("{LABEL_RECORD}={RECORD_FINALIZERS}"));
        Self {
            view: informers.open(key, None),
            resource,
            namespace: namespace.into(),
        }
    }

    /// The controllers that there are records of.
    pub(crate) fn controllers(&self) -> Vec<ControllerUid> {
        let records = self.view.list();
        let uids = records
            .iter()
            .filter_map(|it| it.name().strip_prefix(RECORD_FINALIZERS_PREFIX));
        uids.map(ControllerUid::new).collect()
    }

    /// What is recorded of a controller.
    pub(crate) fn get(&self, uid: &ControllerUid) -> Option<Record> {
        Record::read(&*self.view.get(Some(&self.namespace), &name_of(uid))?)
    }

    /// Whether nothing has to be written before `controller` may put its finalizer on parents.
    pub(crate) fn is_kept(&self, controller: &Controller) -> bool {
        self.lacking(controller).is_none()
    }

    /// Makes sure that all kinds of parents of `controller` are recorded. It comes back without that when the right to
    /// write ends, or with what the API server refuses for good: a controller is served all the same.
    pub(crate) async fn keep(
        &self,
        context: &Context,
        controller: &Controller,
        claim: Claim,
    ) -> Option<Refused> {
        if self.is_kept(controller) {
            return None;
        }
        self.listed(context).await;
        while let Some(write) = self.lacking(controller) {
            let authority = context.authority(claim)?;
            let written = context
                .gate
                .write(&Identity::process(), &authority, &write)
                .await;
            match written {
                Ok(_) | Err(WriteError::Observed | WriteError::NoAuthority) => return None,
                Err(WriteError::AlreadyExists | WriteError::Conflict) => {
                    self.reread(context).await;
                    if let Some(error) = self.unread() {
                        return Some(refused(controller, &write, error));
                    }
                }
                Err(WriteError::Unavailable(error)) => {
                    warn!(controller = controller.name, error, "{write}");
                    context.clock.sleep(RETRY).await;
                }
                Err(error) => return Some(refused(controller, &write, error)),
            }
        }
        None
    }

    /// Why the records cannot be read, for a reason that waiting does not help against.
    fn unread(&self) -> Option<WriteError> {
        match &*self.view.state().borrow() {
            ViewState::Failing(trouble) if trouble.kind != TroubleKind::Unavailable => {
                Some(WriteError::Forbidden(trouble.message.to_string()))
            }
            ViewState::Failing(_) | ViewState::Opening | ViewState::Live => None,
        }
    }

    /// The deletion of a record.
    pub(crate) fn removal(&self, uid: &ControllerUid, record: &Record) -> Write {
        let (config_map, resource_version) = record.stored.clone();
        let op = Op::Delete {
            uid: config_map,
            resource_version,
            propagation: Propagation::Background,
        };
        self.write(uid, op, Purpose::DeleteRecord)
    }

    /// The write that is needed so that all kinds of parents of `controller` are recorded.
    fn lacking(&self, controller: &Controller) -> Option<Write> {
        if !controller.finalizes() {
            return None;
        }
        let known = self.get(&controller.uid);
        let resources = controller.parents.iter().map(|rule| &rule.resource);
        let mut parents: BTreeSet<_> = resources
            .map(|it| (it.api_version(), it.plural.clone()))
            .collect();
        if let Some(known) = &known {
            if parents.is_subset(&known.parents) {
                return None;
            }
            parents.extend(known.parents.iter().cloned());
        }
        let body = self.body(controller, &parents, known.as_ref());
        let op = match known {
            Some(_) => Op::Update { body },
            None => Op::Create { body },
        };
        Some(self.write(&controller.uid, op, Purpose::WriteRecord))
    }

    fn body(
        &self,
        controller: &Controller,
        parents: &BTreeSet<(String, String)>,
        known: Option<&Record>,
    ) -> Bytes {
        let lines: Vec<_> = parents
            .iter()
            .map(|(version, plural)| format!("{version}/{plural}"))
            .collect();
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "namespace": &*self.namespace,
                "name": name_of(&controller.uid),
                "labels": { LABEL_RECORD: RECORD_FINALIZERS },
            },
            "data": {
                "kind": controller.kind.as_str(),
                "name": controller.name,
                "parents": lines.join("\n"),
            },
        });
        if let Some(Record {
            stored: (uid, resource_version),
            ..
        }) = known
        {
            body["metadata"]["uid"] = (**uid).into();
            body["metadata"]["resourceVersion"] = (**resource_version).into();
        }
        Bytes::from(body.to_string())
    }

    fn write(&self, uid: &ControllerUid, op: Op, purpose: Purpose) -> Write {
        Write {
            resource: Arc::clone(&self.resource),
            namespace: Some(self.namespace.clone()),
            name: name_of(uid).into(),
            op,
            purpose,
            why: "which kinds of parents carry a controller's finalizer".into(),
        }
    }

    /// Waits a while until the records have been listed, or cannot be.
    async fn listed(&self, context: &Context) {
        let mut state = self.view.state();
        let told = state.wait_for(|state| !matches!(state, ViewState::Opening));
        tokio::select! {
            told = told => drop(told),
            () = context.clock.sleep(PATIENCE) => {}
        }
    }

    async fn reread(&self, context: &Context) {
        tokio::select! {
            () = self.view.refresh() => {}
            () = context.clock.sleep(PATIENCE) => {}
        }
    }
}

impl Record {
    /// `None` for a ConfigMap that is no record: somebody else's, or one that was edited.
    fn read(config_map: &Object) -> Option<Self> {
        let body: Value = serde_json::from_slice(config_map.bytes()).ok()?;
        let text = |field: &str| body["data"][field].as_str();
        let kind = [ControllerKind::Composite, ControllerKind::Decorator]
            .into_iter()
            .find(|kind| text("kind") == Some(kind.as_str()))?;
        let parents = text("parents")?
            .lines()
            .filter_map(|line| line.rsplit_once('/'))
            .map(|(version, plural)| (version.to_owned(), plural.to_owned()))
            .collect();
        Some(Self {
            controller: (kind, text("name")?.into()),
            parents,
            stored: (
                config_map.uid().into(),
                config_map.resource_version().into(),
            ),
        })
    }
}

/// That a record cannot be kept.
fn refused(controller: &Controller, write: &Write, error: WriteError) -> Refused {
    warn!(
        controller = controller.name,
        %error,
        "{write}: if the controller is deleted while no replica runs, its finalizer stays on parents; grant the rights to ConfigMaps of the system namespace"
    );
    Refused {
        write: write.to_string(),
        purpose: Some(write.purpose),
        error,
    }
}

fn name_of(uid: &ControllerUid) -> String {
    format!("{RECORD_FINALIZERS_PREFIX}{uid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map(data: &Value) -> Object {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": { "name": "metashard-finalizers-u", "namespace": "s", "uid": "m", "resourceVersion": "7" },
        });
        Object::parse(object.to_string()).unwrap()
    }

    #[test]
    fn a_record_names_the_controller_and_each_kind_of_its_parents() {
        let data = json!({
            "kind": "DecoratorController", "name": "d",
            "parents": "v1/pods\napps/v1/deployments",
        });

        let record = Record::read(&config_map(&data)).unwrap();

        assert_eq!(record.controller, (ControllerKind::Decorator, "d".into()));
        let kinds = [("apps/v1", "deployments"), ("v1", "pods")];
        let kinds = kinds.map(|(version, plural)| (version.to_owned(), plural.to_owned()));
        assert_eq!(record.parents, BTreeSet::from(kinds));
    }

    #[test]
    fn a_config_map_that_was_edited_is_no_record() {
        for data in [
            json!({}),
            json!({ "kind": "Pod", "name": "d", "parents": "v1/pods" }),
            json!({ "kind": "DecoratorController", "parents": "v1/pods" }),
        ] {
            assert_eq!(Record::read(&config_map(&data)), None, "{data}");
        }
    }
}
