//! What a move from Metacontroller means: what runs now, and what will differ for each controller.

mod differences;
pub mod record;
pub mod seen;
pub mod stages;

use serde_json::{Value, json};

use crate::{input, resources::Resources, suggest};

/// Flags of Metacontroller 4.17. Those of logging begin with `zap-`.
const FLAGS: [&str; 18] = [
    "apply-strategy",
    "apply-strategy-ssa-field-manager",
    "cache-flush-interval",
    "client-go-burst",
    "client-go-qps",
    "discovery-interval",
    "events-burst",
    "events-qps",
    "health-probe-bind-address",
    "kubeconfig",
    "leader-election",
    "leader-election-id",
    "leader-election-namespace",
    "leader-election-resource-lock",
    "metrics-address",
    "pprof-address",
    "target-label-selector",
    "workers",
];

/// Flags that older versions had, and what takes their place.
const OLD_FLAGS: [(&str, &str); 4] = [
    ("client-config-path", "use --kubeconfig"),
    ("debug-addr", "use --metrics-address"),
    ("logtostderr", "remove it"),
    ("v", "use --zap-log-level"),
];

/// A Metacontroller that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// `StatefulSet metacontroller/metacontroller`.
    pub workload: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Replicas that it asks for.
    pub replicas: i64,
    /// The image of its container.
    pub image: String,
    /// Its command line, the program's name left out.
    pub args: Vec<String>,
}

/// What a move means for one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// `CompositeController name`.
    pub controller: String,
    /// Why it would not be served; empty: it would.
    pub refusals: Vec<String>,
    /// What will differ.
    pub differences: Vec<String>,
}

/// Finds Metacontrollers among workloads (`StatefulSet`s and `Deployment`s).
pub fn peers(workloads: &[Value]) -> Vec<Peer> {
    workloads.iter().filter_map(peer).collect()
}

fn peer(workload: &Value) -> Option<Peer> {
    let containers = workload
        .pointer("/spec/template/spec/containers")?
        .as_array()?;
    let container = containers.iter().find(|it| is_metacontroller(it))?;
    let text = |pointer: &str| {
        let text = workload.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let words = |field: &str| {
        let words = container[field].as_array().into_iter().flatten();
        words
            .filter_map(|it| it.as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let mut args = words("command");
    // The program itself.
    args.drain(..args.len().min(1));
    args.extend(words("args"));
    let (kind, namespace, name) = (
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    );
    Some(Peer {
        workload: format!("{kind} {namespace}/{name}"),
        replicas: workload
            .pointer("/spec/replicas")
            .and_then(Value::as_i64)
            .unwrap_or(1),
        image: container["image"].as_str().unwrap_or_default().to_owned(),
        kind,
        namespace,
        name,
        args,
    })
}

/// Whether a Pod that has not ended runs Metacontroller.
pub fn is_run_by(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str);
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    !matches!(phase, Some("Succeeded" | "Failed"))
        && containers.is_some_and(|all| all.iter().any(is_metacontroller))
}

/// By its image or its program: names of workloads are free.
fn is_metacontroller(container: &Value) -> bool {
    let is_named = |path: &str| {
        let last = path.rsplit('/').next().unwrap_or_default();
        let name = last.split([':', '@']).next().unwrap_or_default();
        name == "metacontroller"
    };
    let image = container["image"].as_str().unwrap_or_default();
    let program = container.pointer("/command/0").and_then(Value::as_str);
    is_named(image) || program.is_some_and(is_named)
}

impl Peer {
    /// The value of a flag; a switch that is just there is `true`.
    pub fn flag(&self, name: &str) -> Option<String> {
        let mut args = self.args.iter().peekable();
        let mut found = None;
        while let Some(arg) = args.next() {
            let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
                continue;
            };
            match flag.split_once('=') {
                Some((flag, value)) if flag == name => found = Some(value.to_owned()),
                None if flag == name => {
                    let next = args.peek().filter(|it| !it.starts_with('-'));
                    found = Some(next.map_or_else(|| "true".to_owned(), |it| (*it).clone()));
                }
                _ => {}
            }
        }
        found
    }

    /// Whether a leader is elected, so that a Lease tells whether it is live.
    pub fn elects(&self) -> bool {
        matches!(
            self.flag("leader-election").as_deref(),
            Some("true" | "t" | "T" | "1" | "TRUE" | "True")
        )
    }

    /// What is wrong with its command line for us.
    pub fn flag_problems(&self) -> Vec<String> {
        let flags = self.args.iter().filter_map(|arg| {
            let flag = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'))?;
            Some(flag.split_once('=').map_or(flag, |(flag, _)| flag))
        });
        let mut problems = Vec::new();
        for flag in flags {
            if FLAGS.contains(&flag) || flag.starts_with("zap-") {
                continue;
            }
            let old = OLD_FLAGS.iter().find(|(old, _)| *old == flag);
            let fix = match (old, suggest::nearest(flag, FLAGS)) {
                (Some((_, fix)), _) => (*fix).to_owned(),
                (None, Some(known)) => format!("did you mean --{known}?"),
                (None, None) => "remove it".to_owned(),
            };
            problems.push(format!("--{flag} is no flag of Metacontroller 4.17: {fix}"));
        }
        problems
    }
}

/// What a move means for a controller, given what the API server serves. `peer`: what serves it now.
pub fn plan(controller: &Value, resources: &Resources, peer: Option<&Peer>) -> Move {
    let mut refusals = Vec::new();
    if let Err(error) = input::controller(controller, resources) {
        refusals.push(metashard_runtime::log::chain(&error));
    }
    Move {
        controller: crate::document::name_of(controller),
        refusals,
        differences: differences::of(controller, resources, peer),
    }
}

impl Move {
    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "controller": self.controller,
            "served": self.refusals.is_empty(),
            "refusals": self.refusals,
            "differences": self.differences,
        })
    }
}

#[cfg(test)]
mod tests;
