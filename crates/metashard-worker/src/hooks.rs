//! The hooks of one controller, resolved once.

use std::sync::Arc;

use metashard_fleet::worker::Authority;
use metashard_hook::{Endpoint, Target, url};
use metashard_reconcile::{
    controller::{Controller, Hook},
    sync::{HookCall, HookKind, HookResult},
};

use crate::context::Context;

/// The hooks of one controller.
#[derive(Debug)]
pub(crate) struct Hooks {
    context: Arc<Context>,
    sync: Option<Endpoint>,
    finalize: Option<Endpoint>,
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
            context: Arc::clone(context),
        })
    }

    /// Calls a hook in the name of `authority`'s ownership. Dropping the future ends the call.
    pub(crate) async fn call(&self, call: HookCall, authority: &Authority) -> HookResult {
        let endpoint = match call.hook {
            HookKind::Sync => &self.sync,
            HookKind::Finalize => &self.finalize,
        };
        let Some(endpoint) = endpoint else {
            return HookResult::Failed(format!("{} hook not defined", call.hook.as_str()));
        };
        self.context
            .invoker
            .call(endpoint, call.body, authority.shard(), authority.epoch())
            .await
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
        tls: None,
    };
    context.invoker.endpoint(target).map_err(failed)
}
