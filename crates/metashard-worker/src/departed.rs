//! What is done for a controller object that is gone, or that this process serves no longer.
//!
//! From the parents of one that was deleted its finalizer is taken, so that they can be deleted: by whoever owns its
//! shard, and taken up again by the next owner until it is done. One that merely lost the label that the process selects
//! by keeps its parents' finalizers, and is told that it is not served.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::join_all;
use metashard_api::{
    id::ControllerUid,
    names::{self, condition, reason},
    resource::{Resource, group_of},
    v1alpha1::status::ControllerStatus,
};
use metashard_fleet::message::Claim;
use metashard_kube::{
    discovery::crd_resource,
    identity::Identity,
    informer::{View, ViewKey},
    status::{self, Known, Served},
};
use metashard_reconcile::{
    finalize,
    object::Object,
    write::{Write, WriteError},
};
use metashard_runtime::log::chain;
use serde_json::Value;
use tracing::{info, warn};

use crate::{
    catalog::ControllerName,
    context::Context,
    ledger::{Ledger, Record},
};

/// Writes under way at once.
const CONCURRENT_WRITES: usize = 16;

/// How long a kind of parents may take to be listed, before it is left for later.
const LIST_WITHIN: Duration = Duration::from_secs(30);

/// Most passes over the parents of one kind at a time; others write to them as well.
const PASSES: usize = 5;

/// What became of a controller that is not among those that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departed {
    /// Nothing is left of it.
    Gone,
    /// It exists, and is not for this process to serve; or another of its name has to be waited for.
    Stays,
    /// Something stands in the way: look again soon.
    Unclear,
}

/// One controller that is not among those that are served.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) context: Arc<Context>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) name: ControllerName,
    pub(crate) uid: ControllerUid,
    /// The ownership of its shard.
    pub(crate) claim: Claim,
}

impl Departure {
    /// Finds out what became of the controller, and does what is left to do for it.
    pub(crate) async fn see_off(self) -> Departed {
        let (kind, name) = &self.name;
        let resource = Resource::of_controllers(*kind);
        let clients = &self.context.clients;
        match clients
            .read(&Identity::process(), &resource, None, name)
            .await
        {
            Ok(Some(object)) if object.uid() == self.uid.as_str() => {
                self.bid_farewell(resource, &object).await;
                Departed::Stays
            }
            Ok(other) => self.clear(other.as_deref()).await,
            Err(error) => {
                warn!(controller = %name, error = chain(&error), "it is not known whether a controller is deleted");
                Departed::Unclear
            }
        }
    }

    /// Says on a controller that this process served last that it is served no longer.
    async fn bid_farewell(&self, resource: Resource, object: &Object) {
        let context = &self.context;
        let said: ControllerStatus = object
            .status()
            .and_then(|status| serde_json::from_slice(status).ok())
            .unwrap_or_default();
        // Whoever has taken it over says so himself.
        if said.worker.as_deref() != Some(context.config.replica.as_str()) {
            return;
        }
        let selector = &context.config.target_selector;
        let message = format!("its labels do not match --target-label-selector={selector}");
        let known = |type_, reason| Known {
            type_,
            is_true: None,
            reason,
            message: message.clone(),
        };
        let known = [
            known(condition::ASSIGNED, reason::UNOWNED),
            known(condition::READY, reason::NOT_SERVED),
        ];
        let wall = context.clock.wall();
        let write = status::write(&Arc::new(resource), object, &known, Served::default(), wall);
        if let Some(write) = write {
            // Whatever stands in the way: it is not served, and others may say so by now.
            drop(self.write(&write).await);
        }
    }

    /// Takes the finalizer of the deleted controller from all its parents. `heir`: another controller of its name.
    async fn clear(&self, heir: Option<&Object>) -> Departed {
        let Some(record) = self.ledger.get(&self.uid) else {
            return Departed::Gone;
        };
        let inherited = heir.map(finalized_kinds).unwrap_or_default();
        let mut is_inherited = false;
        for (api_version, plural) in &record.parents {
            let group = group_of(api_version);
            // The finalizer is named after the controller's name: it is the heir's by now.
            if inherited.contains(&(group.to_owned(), plural.clone())) {
                is_inherited = true;
                continue;
            }
            match self.clear_kind(api_version, group, plural).await {
                Departed::Gone => {}
                other => return other,
            }
        }
        let is_recorded = |heir: &Object| {
            let uid = ControllerUid::new(heir.uid());
            self.ledger.get(&uid).is_some()
        };
        if is_inherited && !heir.is_some_and(is_recorded) {
            return Departed::Stays;
        }
        self.forget(&record).await
    }

    async fn forget(&self, record: &Record) -> Departed {
        let removal = self.ledger.removal(&self.uid, record);
        match self.write(&removal).await {
            Ok(()) | Err(WriteError::NotFound) => Departed::Gone,
            Err(WriteError::Observed) => Departed::Stays,
            Err(_) => Departed::Unclear,
        }
    }

    /// Takes the finalizer from the parents of one kind; `Gone` if none carries it any more.
    async fn clear_kind(&self, api_version: &str, group: &str, plural: &str) -> Departed {
        let context = &self.context;
        let served = context.discovery.lookup(api_version, plural);
        let Some(resource) = served.or_else(|| context.discovery.lookup_any(group, plural)) else {
            return self.unserved_kind(group, plural).await;
        };
        let key = ViewKey::new(Identity::process(), Arc::clone(&resource));
        let view = context.informers.open(key, None);
        let finalizer = names::finalizer(self.name.0, &self.name.1);
        let mut cleared = 0_usize;
        for _ in 0..PASSES {
            if !self.is_listed(&view).await {
                warn!(controller = %self.name.1, %resource, "parents of a deleted controller cannot be listed: they keep its finalizer for now");
                return Departed::Unclear;
            }
            let held: Vec<_> = view
                .list()
                .iter()
                .filter_map(|parent| finalize::let_go(&resource, &finalizer, parent))
                .collect();
            if held.is_empty() {
                if cleared > 0 {
                    info!(controller = %self.name.1, %resource, cleared, "finalizer of a deleted controller taken from its parents");
                }
                return Departed::Gone;
            }
            match self.write_all(&held).await {
                Ok(written) => cleared += written,
                Err(WriteError::Observed) => return Departed::Stays,
                Err(_) => return Departed::Unclear,
            }
        }
        Departed::Unclear
    }

    /// Whether a kind that is not served is gone with all its objects.
    async fn unserved_kind(&self, group: &str, plural: &str) -> Departed {
        let name = format!("{plural}.{group}");
        let clients = &self.context.clients;
        match clients
            .read(&Identity::process(), &crd_resource(), None, &name)
            .await
        {
            Ok(None) => Departed::Gone,
            Ok(Some(_)) | Err(_) => Departed::Unclear,
        }
    }

    /// Whether the view shows everything as of now, within a while.
    async fn is_listed(&self, view: &View) -> bool {
        let listed = async {
            view.synced().await;
            view.refresh().await;
        };
        tokio::select! {
            () = listed => true,
            () = self.context.clock.sleep(LIST_WITHIN) => false,
        }
    }

    /// How many of the writes were made; an error ends them. What has changed meanwhile is left to the next pass.
    async fn write_all(&self, writes: &[Write]) -> Result<usize, WriteError> {
        let mut written = 0;
        for batch in writes.chunks(CONCURRENT_WRITES) {
            for result in join_all(batch.iter().map(|write| self.write(write))).await {
                match result {
                    Ok(()) => written += 1,
                    Err(WriteError::NotFound | WriteError::Conflict) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(written)
    }

    async fn write(&self, write: &Write) -> Result<(), WriteError> {
        let context = &self.context;
        let authority = context
            .authority(self.claim)
            .ok_or(WriteError::NoAuthority)?;
        let result = context
            .gate
            .write(&Identity::process(), &authority, write)
            .await;
        if let Err(error) = &result {
            warn!(controller = %self.name.1, %error, "{write}");
        }
        result.map(drop)
    }
}

/// Group and plural of each kind of parents that a controller object puts finalizers on: none without a finalize hook, or
/// children that are let go where others are deleted.
fn finalized_kinds(controller: &Object) -> BTreeSet<(String, String)> {
    let body: Value = serde_json::from_slice(controller.bytes()).unwrap_or_default();
    let spec = &body["spec"];
    let children = ["childResources", "attachments"].map(|field| spec[field].as_array());
    let mut children = children.into_iter().flatten().flatten();
    let lets_go = children.any(|rule| rule["deletionPolicy"] == "Orphan");
    if spec["hooks"]["finalize"].is_null() && !lets_go {
        return BTreeSet::new();
    }
    let many = spec["resources"].as_array().into_iter().flatten();
    many.chain([&spec["parentResource"]])
        .filter_map(|rule| {
            let version = rule["apiVersion"].as_str()?;
            Some((
                group_of(version).to_owned(),
                rule["resource"].as_str()?.to_owned(),
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kinds(spec: &Value) -> Vec<(String, String)> {
        let object = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController", "spec": spec,
            "metadata": { "name": "c", "uid": "u", "resourceVersion": "1" },
        });
        let object = Object::parse(object.to_string()).unwrap();
        finalized_kinds(&object).into_iter().collect()
    }

    #[test]
    fn a_finalizer_is_inherited_for_the_kinds_that_the_heir_finalizes() {
        let foo = json!({ "apiVersion": "ex.io/v2", "resource": "foos" });
        let hooks = json!({ "sync": {}, "finalize": {} });
        let pair = |group: &str, plural: &str| (group.to_owned(), plural.to_owned());

        let composite = kinds(&json!({ "parentResource": foo, "hooks": hooks }));
        let pods = json!({ "apiVersion": "v1", "resource": "pods" });
        let decorator = kinds(&json!({ "resources": [foo, pods], "hooks": hooks }));
        let without = kinds(&json!({ "parentResource": foo, "hooks": { "sync": {} } }));

        let orphaning = json!([{ "deletionPolicy": "Delete" }, { "deletionPolicy": "Orphan" }]);
        let orphaning = kinds(&json!({ "parentResource": foo, "childResources": orphaning }));

        assert_eq!(composite, [pair("ex.io", "foos")]);
        assert_eq!(orphaning, [pair("ex.io", "foos")]);
        assert_eq!(decorator, [pair("", "pods"), pair("ex.io", "foos")]);
        assert!(without.is_empty());
    }
}
