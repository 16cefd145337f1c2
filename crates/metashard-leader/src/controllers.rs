//! Which controllers there are, and into how many slices their specs ask to be split: what placement is made of.

use std::{collections::BTreeMap, sync::Arc};

use metashard_api::{
    id::{ControllerKind, ControllerUid},
    resource::Resource,
    v1alpha1::Sharding,
};
use metashard_kube::{
    identity::Identity,
    informer::{Event, Informers, Subscriber, View, ViewKey},
};
use metashard_reconcile::object::Object;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Notify;

/// The controllers of the cluster.
#[derive(Debug)]
pub(crate) struct Controllers {
    views: [View; 2],
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    all: Mutex<BTreeMap<ControllerUid, Option<u16>>>,
    changed: Notify,
}

/// The one field of a controller that matters here.
#[derive(Deserialize)]
struct Controller {
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize, Default)]
struct Spec {
    #[serde(default)]
    sharding: Option<Sharding>,
}

impl Subscriber for Seen {
    fn on_event(&self, event: Event) {
        let has_changed = match event {
            // Most changes of a controller are of its status.
            Event::Applied {
                old: Some(old),
                new,
            } if old.generation() == new.generation() => false,
            Event::Applied { new, .. } => {
                let asked = asked(&new);
                self.all.lock().insert(uid(&new), asked) != Some(asked)
            }
            Event::Deleted { old } => self.all.lock().remove(&uid(&old)).is_some(),
            Event::Synced => true,
        };
        if has_changed {
            self.changed.notify_one();
        }
    }

    fn on_state(&self) {
        self.changed.notify_one();
    }
}

impl Controllers {
    /// Follows the controllers that `selector` selects (empty: all).
    pub(crate) fn open(informers: &Informers, selector: &str) -> Self {
        let seen = Arc::new(Seen::default());
        let views = [ControllerKind::Composite, ControllerKind::Decorator].map(|kind| {
            let resource = Arc::new(Resource::of_controllers(kind));
            let key = ViewKey::new(Identity::process(), resource).selecting(selector);
            informers.open(key, Some(Arc::clone(&seen) as _))
        });
        Self { views, seen }
    }

    /// Returns when there are others than before, or they ask for something else. Dropping the future loses nothing.
    pub(crate) async fn changed(&self) {
        self.seen.changed.notified().await;
    }

    /// The controllers that have this name, or this uid.
    pub(crate) fn called(&self, word: &str) -> Vec<ControllerUid> {
        let all = self.views.iter().flat_map(View::list);
        let mut called: Vec<_> = all
            .filter(|it| it.name() == word || it.uid() == word)
            .map(|it| ControllerUid::new(it.uid()))
            .collect();
        called.sort_unstable();
        called
    }

    /// All of them, with what they ask for.
    pub(crate) fn all(&self) -> BTreeMap<ControllerUid, Option<u16>> {
        self.seen.all.lock().clone()
    }

    /// Whether all that exist are known: of one that is not, nothing may be taken away.
    pub(crate) fn are_known(&self) -> bool {
        let mut views = self.views.iter();
        views.all(View::is_synced)
    }
}

fn uid(controller: &Object) -> ControllerUid {
    ControllerUid::new(controller.uid())
}

/// Into how many slices it asks to be split. One that cannot be read asks for nothing: its worker tells of it.
fn asked(controller: &Object) -> Option<u16> {
    let read = serde_json::from_slice::<Controller>(controller.bytes()).ok()?;
    read.spec.sharding?.slices
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn slices_are_read_of_a_controller_that_asks_for_them() {
        for (spec, slices) in [
            (json!({ "sharding": { "slices": 4 } }), Some(4)),
            (json!({ "sharding": {} }), None),
            (json!({ "sharding": { "slices": "x" } }), None),
            (json!({}), None),
        ] {
            let metadata = json!({ "name": "c", "uid": "u", "resourceVersion": "1" });
            let object = json!({ "apiVersion": "metacontroller.k8s.io/v1alpha1",
                "kind": "CompositeController", "metadata": metadata, "spec": spec });
            let object = Object::parse(object.to_string()).unwrap();

            assert_eq!(asked(&object), slices, "{spec}");
        }
    }
}
