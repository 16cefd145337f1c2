//! How many controllers each shard holds: what placement weighs.

use std::{collections::BTreeMap, sync::Arc};

use metashard_api::{
    id::{ControllerKind, ControllerUid, ShardId, Slice},
    resource::Resource,
};
use metashard_fleet::shard::shard_of;
use metashard_kube::{
    identity::Identity,
    informer::{Event, Informers, Subscriber, View, ViewKey},
};
use tokio::sync::Notify;

/// The controllers of the cluster, counted by shard.
#[derive(Debug)]
pub(crate) struct Controllers {
    views: [View; 2],
    changed: Arc<Changed>,
}

#[derive(Debug, Default)]
struct Changed(Notify);

impl Subscriber for Changed {
    fn on_event(&self, event: Event) {
        match event {
            // A change of a controller leaves it where it is.
            Event::Applied { old: Some(_), .. } => {}
            Event::Applied { old: None, .. } | Event::Deleted { .. } | Event::Synced => {
                self.0.notify_one();
            }
        }
    }
}

impl Controllers {
    /// Follows the controllers that `selector` selects (empty: all).
    pub(crate) fn open(informers: &Informers, selector: &str) -> Self {
        let changed = Arc::new(Changed::default());
        let views = [ControllerKind::Composite, ControllerKind::Decorator].map(|kind| {
            let resource = Arc::new(Resource::of_controllers(kind));
            let key = ViewKey::new(Identity::process(), resource).selecting(selector);
            informers.open(key, Some(Arc::clone(&changed) as _))
        });
        Self { views, changed }
    }

    /// Returns when there are others than before. Dropping the future loses nothing.
    pub(crate) async fn changed(&self) {
        self.changed.0.notified().await;
    }

    /// The number of controllers in each shard that holds some.
    pub(crate) fn count(&self, shard_count: u16) -> BTreeMap<ShardId, u32> {
        let mut counts = BTreeMap::new();
        for controller in self.views.iter().flat_map(View::list) {
            let uid = ControllerUid::new(controller.uid());
            *counts
                .entry(shard_of(&uid, Slice::default(), shard_count))
                .or_default() += 1;
        }
        counts
    }
}
