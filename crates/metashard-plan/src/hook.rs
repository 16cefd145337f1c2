//! Who answers the calls of a pass: a recorded answer, a command, or a hook where it is.

mod holders;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Stdio,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
pub use holders::{Holders, source_of};
use metashard_api::{
    endpoint::{Demand, Source},
    id::{ControllerKind, Epoch, ShardId},
    v1alpha1::webhook::Webhook,
    validate::Finding,
};
use metashard_hook::{Certificate, Endpoint, Invoker, Metrics, Request, Target, url};
use metashard_reconcile::{
    controller::Controller,
    sync::{HookCall, HookKind, HookResult},
};
use metashard_runtime::clock::Clock;
use prometheus::Registry;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::timeout,
};

/// Longest answer that a worker takes of a hook, in bytes; so it is of others.
const MAX_ANSWER: usize = 8 << 20;

/// Environment variable that tells a command which hook it is.
const HOOK_VARIABLE: &str = "METASHARD_HOOK";

/// Why hooks cannot be called, whoever answers.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A URL cannot be called.
    #[error("call hook")]
    Url(#[from] url::Error),
    /// What it is called with is not there, or cannot be used.
    #[error("resolve endpoint config for {hook} hook: {finding}")]
    Unsecured {
        /// Which hook.
        hook: &'static str,
        /// The field, what is wrong, and what to do.
        finding: Finding,
    },
    /// Two parts of this program fight over a name.
    #[error("prepare calls of hooks")]
    Metrics(#[from] prometheus::Error),
}

/// Who answers.
#[derive(Debug)]
pub enum Hook {
    /// What was answered before, by the name of the hook; the name `""` stands for every hook without an answer of its own.
    Recorded(BTreeMap<String, Bytes>),
    /// A program and its arguments. It gets a request on its standard input and writes the answer to its standard
    /// output, and finds the hook's name in the environment variable `METASHARD_HOOK`.
    Command {
        /// The program and its arguments.
        words: Vec<String>,
        /// Longest time for an answer.
        limit: Duration,
    },
    /// Hooks where they are.
    Remote(Box<Remote>),
}

/// Hooks where they are.
#[derive(Debug)]
pub struct Remote {
    invoker: Invoker,
    endpoints: BTreeMap<HookKind, Endpoint>,
}

impl Hook {
    /// One recorded answer for every call.
    pub fn recorded(answer: impl Into<Bytes>) -> Self {
        Self::Recorded(BTreeMap::from([(String::new(), answer.into())]))
    }

    /// The hooks of a controller, where its spec says, or all of them at `instead`, which are called without certificates
    /// and credentials. [Secure](Self::secure) them before the first call.
    ///
    /// # Errors
    /// When a URL cannot be called.
    pub fn remote(controller: &Controller, instead: Option<&str>) -> Result<Self, Error> {
        let mut hooks = Vec::new();
        for kind in [HookKind::Sync, HookKind::Finalize, HookKind::Customize] {
            let hook = controller.hook(kind);
            let called = hook.map(|hook| (hook.webhook.clone(), hook.security.clone()));
            hooks.push((kind, called));
        }
        Self::at(controller.kind, &controller.name, hooks, instead)
    }

    /// The hooks of a controller that may not be fit to run.
    ///
    /// # Errors
    /// When a URL cannot be called.
    pub(crate) fn at(
        controller_kind: ControllerKind,
        controller_name: &str,
        hooks: impl IntoIterator<Item = (HookKind, Option<(Webhook, Option<Demand>)>)>,
        instead: Option<&str>,
    ) -> Result<Self, Error> {
        let invoker = Invoker::new(Clock::system(), Metrics::register(&Registry::new())?);
        let mut endpoints = BTreeMap::new();
        for (hook, called) in hooks {
            let Some((mut webhook, mut security)) = called else {
                continue;
            };
            if let Some(url) = instead {
                security = None;
                webhook = Webhook {
                    url: Some(url.to_owned()),
                    timeout: webhook.timeout,
                    ..Webhook::default()
                };
            }
            let target = Target {
                controller_kind,
                controller_name: controller_name.to_owned(),
                hook,
                url: url::resolve(&webhook)?,
                timeout: url::timeout(&webhook),
                security,
                etag: None,
            };
            endpoints.insert(hook, invoker.endpoint(target)?);
        }
        Ok(Self::Remote(Box::new(Remote { invoker, endpoints })))
    }

    /// The objects that hold what they are called with.
    pub fn sources(&self) -> BTreeSet<Source> {
        self.endpoints().flat_map(Endpoint::sources).collect()
    }

    /// Takes certificates and credentials from the objects that hold them.
    ///
    /// # Errors
    /// When something is missing or cannot be used.
    pub fn secure(&self, holders: &Holders) -> Result<(), Error> {
        for endpoint in self.endpoints() {
            let secured = endpoint.secure(&|source| holders.find(source));
            secured.map_err(|finding| Error::Unsecured {
                hook: endpoint.hook().as_str(),
                finding,
            })?;
        }
        Ok(())
    }

    /// The certificates that they are called with.
    pub(crate) fn certificates(&self) -> Vec<Certificate> {
        self.endpoints().flat_map(Endpoint::certificates).collect()
    }

    fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        let remote = match self {
            Self::Remote(remote) => Some(&remote.endpoints),
            Self::Recorded(_) | Self::Command { .. } => None,
        };
        remote.into_iter().flat_map(BTreeMap::values)
    }

    /// Connects to each hook that is called where it is, without a request. When its certificate ends, if it shows one; a
    /// text says why it cannot be reached.
    pub(crate) async fn probe(&self) -> Vec<(HookKind, Result<Option<SystemTime>, String>)> {
        let mut probed = Vec::new();
        if let Self::Remote(remote) = self {
            for (hook, endpoint) in &remote.endpoints {
                probed.push((*hook, remote.invoker.probe(endpoint).await));
            }
        }
        probed
    }

    /// Makes one call.
    pub async fn call(&self, call: HookCall) -> HookResult {
        let name = call.hook.as_str();
        match self {
            Self::Recorded(answers) => match answers.get(name).or_else(|| answers.get("")) {
                Some(answer) => answered(answer.clone()),
                None => HookResult::Failed(format!("no answer of the {name} hook was given")),
            },
            Self::Command { words, limit } => {
                match timeout(*limit, run(words, name, &call.body)).await {
                    Ok(result) => result,
                    Err(_) => HookResult::Failed(format!("no answer within {limit:?}")),
                }
            }
            Self::Remote(remote) => {
                let Some(endpoint) = remote.endpoints.get(&call.hook) else {
                    return HookResult::Failed(format!("{name} hook not defined"));
                };
                let request = Request {
                    body: call.body,
                    shard: ShardId(0),
                    epoch: Epoch(0),
                    about: "",
                };
                remote.invoker.call(endpoint, request).await
            }
        }
    }
}

/// An answer, unless a worker would refuse it for its length.
fn answered(answer: Bytes) -> HookResult {
    if answer.len() > MAX_ANSWER {
        let text = format!("the answer is longer than {MAX_ANSWER} bytes, which no replica takes");
        return HookResult::Failed(text);
    }
    HookResult::Answer(answer)
}

async fn run(words: &[String], hook: &str, body: &[Bytes]) -> HookResult {
    let Some((program, arguments)) = words.split_first() else {
        return HookResult::Failed("the command is empty".to_owned());
    };
    let spawned = Command::new(program)
        .args(arguments)
        .env(HOOK_VARIABLE, hook)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let failed = |what: &str, error: std::io::Error| {
        HookResult::Failed(format!("{what} {program}: {error}"))
    };
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return failed("start", error),
    };
    match exchange(&mut child, body).await {
        Ok(answer) => match child.wait().await {
            Ok(_) if answer.len() > MAX_ANSWER => answered(answer.into()),
            Ok(status) if status.success() => answered(answer.into()),
            Ok(status) => HookResult::Failed(format!("{program} ended with {status}")),
            Err(error) => failed("wait for", error),
        },
        Err(error) => failed("talk to", error),
    }
}

/// Writes and reads at once: a program may begin to answer before it has read all.
async fn exchange(child: &mut Child, body: &[Bytes]) -> std::io::Result<Vec<u8>> {
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let write = async {
        if let Some(mut input) = input {
            for piece in body {
                // A program that does not look at its input may have closed it.
                if input.write_all(piece).await.is_err() {
                    break;
                }
            }
        }
    };
    let read = async {
        let mut answer = Vec::new();
        if let Some(output) = output {
            // One byte more tells that it is too long.
            let limit = MAX_ANSWER as u64 + 1;
            output.take(limit).read_to_end(&mut answer).await?;
        }
        Ok(answer)
    };
    let ((), answer) = tokio::join!(write, read);
    answer
}
