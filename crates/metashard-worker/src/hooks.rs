//! The hooks of one controller, resolved once.

use std::{borrow::Cow, sync::Arc};

use metashard_fleet::worker::Authority;
use metashard_hook::{Endpoint, Request, Target, url};
use metashard_kube::{identity::Identity, informer::Subscriber};
use metashard_reconcile::{
    controller::{Controller, Hook},
    sync::{HookCall, HookKind, HookResult},
};

use crate::{context::Context, security::Security};

/// The hooks of one controller.
#[derive(Debug)]
pub(crate) struct Hooks {
    context: Arc<Context>,
    sync: Option<Endpoint>,
    finalize: Option<Endpoint>,
    customize: Option<Endpoint>,
    /// What they are called with, where that is not the same for all controllers.
    security: Option<Security>,
}

/// Why a hook cannot be called, whatever happens to its server.
#[derive(Debug, thiserror::Error)]
#[error("spec.hooks.{hook}.webhook: {source}", hook = hook.as_str())]
pub(crate) struct Error {
    hook: HookKind,
    source: url::Error,
}

impl Hooks {
    /// Resolves the hooks of `controller`.
    ///
    /// # Errors
    ///
    /// If a URL cannot be called; only a change of the controller can help.
    pub(crate) fn new(controller: &Controller, context: &Arc<Context>) -> Result<Self, Error> {
        let endpoint = |kind| match controller.hook(kind) {
            Some(hook) => endpoint(kind, hook, controller, context).map(Some),
            None => Ok(None),
        };
        Ok(Self {
            sync: endpoint(HookKind::Sync)?,
            finalize: endpoint(HookKind::Finalize)?,
            customize: endpoint(HookKind::Customize)?,
            security: None,
            context: Arc::clone(context),
        })
    }

    /// All that are called.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> + Clone {
        [&self.sync, &self.finalize, &self.customize]
            .into_iter()
            .flatten()
    }

    /// Begins to follow what they are called with, with the rights of `identity`. `subscriber` is told of changes.
    pub(crate) fn follow(&mut self, identity: &Identity, subscriber: &Arc<dyn Subscriber>) {
        let informers = &self.context.informers;
        self.security = Security::open(self.endpoints(), identity, informers, subscriber);
    }

    /// What they are called with, where that is not the same for all controllers.
    pub(crate) fn security(&self) -> Option<&Security> {
        self.security.as_ref()
    }

    /// Whether each of them can be called.
    pub(crate) fn are_ready(&self) -> bool {
        self.endpoints().all(Endpoint::is_ready)
    }

    /// Calls a hook in the name of `authority`'s ownership. Dropping the future ends the call.
    /// `parent` is the uid of the parent that it is about.
    pub(crate) async fn call(
        &self,
        call: HookCall,
        parent: &str,
        authority: &Authority,
    ) -> HookResult {
        let endpoint = match call.hook {
            HookKind::Sync => &self.sync,
            HookKind::Finalize => &self.finalize,
            HookKind::Customize => &self.customize,
        };
        let Some(endpoint) = endpoint else {
            return HookResult::Failed(format!("{} hook not defined", call.hook.as_str()));
        };
        let about = match &call.revision {
            None => Cow::Borrowed(parent),
            Some(revision) => Cow::Owned(format!("{parent}/{revision}")),
        };
        let request = Request {
            body: call.body,
            shard: authority.shard(),
            epoch: authority.epoch(),
            about: &about,
        };
        self.context.invoker.call(endpoint, request).await
    }
}

fn endpoint(
    kind: HookKind,
    hook: &Hook,
    controller: &Controller,
    context: &Context,
) -> Result<Endpoint, Error> {
    let webhook = &hook.webhook;
    let failed = |source| Error { hook: kind, source };
    let target = Target {
        hook: kind,
        url: url::resolve(webhook).map_err(failed)?,
        controller_name: controller.name.clone(),
        controller_kind: controller.kind,
        timeout: url::timeout(webhook),
        security: hook.security.clone(),
        etag: webhook.etag.clone(),
    };
    context.invoker.endpoint(target).map_err(failed)
}
