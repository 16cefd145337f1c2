//! The caches of one controller: which objects they are of, who is told what happens there, and when they are good enough.

use std::sync::Arc;

use metashard_api::id::ControllerKind;
use metashard_fleet::{message::LastWritten, shard::Cut};
use metashard_kube::{
    identity::Identity,
    informer::{Controlled, Interest, View, ViewKey, ViewState},
};
use metashard_reconcile::controller::{Controller, ParentRule};

use super::Instance;
use crate::{
    context::Context,
    triggers::{Begun, ChildEvents, Keys, ParentEvents},
};

impl Instance {
    /// The caches that have let go something of a parent's. It is there after a refresh.
    pub(super) fn lacking(&self) -> impl Iterator<Item = &View> {
        let parents = self.parents.iter().flat_map(View::list);
        let parents = parents.filter(|it| self.cut.takes(it.namespace(), it.name()));
        let parents: Vec<_> = parents.collect();
        let lacks = move |view: &&View| parents.iter().any(|parent| view.lacks(parent));
        self.views_of_children().filter(lacks)
    }

    /// The caches of children, and of revisions.
    pub(crate) fn views_of_children(&self) -> impl Iterator<Item = &View> {
        self.children.iter().chain(&self.revisions)
    }
}

/// One for each parent rule. With the controller comes whether parents that it does not select may carry its finalizer.
pub(super) fn open_parents(
    (controller, holds): (&Arc<Controller>, bool),
    identity: &Identity,
    keys: &Keys,
    context: &Arc<Context>,
) -> Arc<[View]> {
    let open = |(rule, of): (usize, &ParentRule)| {
        let mut key = ViewKey::new(identity.clone(), Arc::clone(&of.resource));
        // A parent that is no longer selected still has to be finalized, and its cache must show it until then.
        if let (false, Some(query)) = (holds, of.labels.to_query()) {
            key = key.selecting(query);
        }
        let subscriber = ParentEvents {
            controller: Arc::clone(controller),
            rule,
            keys: keys.clone(),
            begun: Begun::default(),
        };
        // The part with slice 0 also counts them all.
        let interest = if keys.cut.leads() {
            Interest::All
        } else {
            Interest::Named(keys.cut)
        };
        context
            .informers
            .open_for(key, interest, Some(Arc::new(subscriber)))
    };
    controller.parents.iter().enumerate().map(open).collect()
}

/// One for each child rule.
pub(super) fn open_children(
    controller: &Arc<Controller>,
    identity: &Identity,
    keys: &Keys,
    parents: &Arc<[View]>,
    context: &Arc<Context>,
) -> Vec<View> {
    controller
        .children
        .iter()
        .map(|rule| {
            let key = ViewKey::new(identity.clone(), Arc::clone(&rule.resource));
            let subscriber = ChildEvents {
                controller: Arc::clone(controller),
                parents: Arc::clone(parents),
                keys: keys.clone(),
                begun: Begun::default(),
            };
            let interest = of_parents(controller, parents, keys.cut);
            context
                .informers
                .open_for(key, interest, Some(Arc::new(subscriber)))
        })
        .collect()
}

/// What is or may become a part's parents'.
pub(super) fn of_parents(controller: &Controller, parents: &Arc<[View]>, cut: Cut) -> Interest {
    Interest::Controlled(Controlled {
        by: Arc::clone(parents),
        cut,
        // A decorator adopts nothing.
        with_ownerless: controller.kind == ControllerKind::Composite,
    })
}

/// Returns once that is so which is waited for, or the cache cannot be listed at the moment.
pub(super) async fn unless_failing(view: &View, wait: impl Future<Output = ()>) {
    let mut state = view.state();
    let fails = state.wait_for(|state| matches!(state, ViewState::Failing(_)));
    tokio::select! {
        () = wait => {}
        _ = fails => {}
    }
}

/// Returns once a cache shows what its releasing owner wrote.
pub(super) async fn reach(view: &View, last_written: &[LastWritten]) {
    let resource = view.key().resource().to_string();
    match last_written.iter().find(|it| it.resource == resource) {
        Some(written) => view.reach(&written.resource_version).await,
        // Not known for this kind: as after a crash.
        None => view.refresh().await,
    }
}
