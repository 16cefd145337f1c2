//! One pass over one parent, by the worker's own machine, of which nothing is carried out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metashard_api::{
    hook::{RelatedRule, Version},
    resource::Resource,
    selector::Selector,
};
use metashard_reconcile::{
    controller::Controller,
    memory::Memory,
    object::Object,
    pretend::Pretend,
    recording::Called,
    related::{self, Related, Rule},
    sync::{Fed, HookKind, Outcome, Step, SyncInput, SyncMachine, Unrelated, Verdict},
    write::{Op, Purpose, Write, WriteResult},
};

use crate::{hook::Hook, input, resources::Resources};

/// What a pass starts from.
#[derive(Debug, Clone)]
pub struct Input {
    /// The controller.
    pub controller: Arc<Controller>,
    /// The resource that the parent is of.
    pub resource: Arc<Resource>,
    /// The parent as it is.
    pub parent: Arc<Object>,
    /// Everything else that is there: children, orphans, related objects, objects of others.
    pub others: Vec<Arc<Object>>,
    /// The resources that there are.
    pub resources: Arc<Resources>,
}

/// What a pass would do.
#[derive(Debug)]
pub struct Rendered {
    /// The parent as it is.
    pub parent: Arc<Object>,
    /// What else is there.
    pub others: Vec<Arc<Object>>,
    /// The resources of related objects that the hook asked for.
    pub related: Vec<Arc<Resource>>,
    /// The calls of hooks, in order.
    pub calls: Vec<Called>,
    /// The writes, in order. Those after the first round may hold texts such as `<set by write 1>`, for what only an API
    /// server knows.
    pub writes: Vec<Write>,
    /// What it comes to.
    pub outcome: Outcome,
}

/// Runs one pass, as for a parent that was never synced before.
pub async fn render(input: Input, hook: &Hook) -> Rendered {
    let mut server = Pretend::new(&input.parent, &input.others);
    render_against(input, hook, |asked| match asked {
        Asked::Write(write) => server.carry_out(write),
        Asked::Parent => Ok(Some(server.parent())),
    })
    .await
}

/// What a pass asks of an API server.
#[derive(Debug, Clone, Copy)]
pub enum Asked<'a> {
    /// To carry out a write.
    Write(&'a Write),
    /// The parent as it is now.
    Parent,
}

/// Runs one pass against whatever answers for the API server.
pub async fn render_against(
    input: Input,
    hook: &Hook,
    mut server: impl FnMut(Asked<'_>) -> WriteResult,
) -> Rendered {
    let Input {
        controller,
        resource,
        parent,
        others,
        resources,
    } = input;
    let (candidates, revisions) = input::candidates(&controller, &parent, &others);
    let mut wanted = Vec::new();
    let mut machine = SyncMachine::new(SyncInput {
        candidates,
        revisions,
        controller: Arc::clone(&controller),
        resource,
        parent: Arc::clone(&parent),
        memory: Memory::default(),
    });
    let (mut calls, mut all) = (Vec::new(), Vec::new());
    let outcome = loop {
        let fed = match machine.next() {
            Step::Write(writes) => {
                let results = writes.iter().map(|it| server(Asked::Write(it))).collect();
                all.extend(writes);
                Fed::Written(results)
            }
            Step::ReadParent => Fed::Parent(server(Asked::Parent)),
            Step::Relate(rules) => {
                let rules = compile(&rules, &controller, &parent, &resources);
                if let Ok(rules) = &rules {
                    wanted.extend(rules.iter().map(|rule| Arc::clone(&rule.resource)));
                }
                let found = rules.map(|rules| related_among(&rules, &others));
                Fed::Related(found.map_err(Unrelated::Refused))
            }
            Step::CallHook(call) => {
                let (kind, request) = (call.hook, call.body.clone());
                let result = hook.call(call).await;
                calls.push(Called {
                    hook: kind,
                    request,
                    result: result.clone(),
                });
                Fed::Hook(result)
            }
            Step::Done(outcome) => break *outcome,
        };
        machine.feed(fed);
    };
    Rendered {
        parent,
        others,
        related: wanted,
        calls,
        writes: all,
        outcome,
    }
}

fn compile(
    rules: &[RelatedRule],
    controller: &Controller,
    parent: &Object,
    resources: &Resources,
) -> Result<Vec<Rule>, related::Error> {
    let customize = controller.hook(HookKind::Customize);
    let version = customize.map_or(Version::V1, |hook| hook.version);
    let lookup = |version: &str, plural: &str| resources.lookup(version, plural);
    related::compile(rules, version, parent.namespace(), &lookup)
}

/// What rules pick among some objects. Namespaces are known by their own objects among them.
fn related_among(rules: &[Rule], objects: &[Arc<Object>]) -> Related {
    let selects = |selector: &Selector, namespace: &str| {
        objects
            .iter()
            .find(|it| it.kind() == "Namespace" && it.name() == namespace)
            .is_some_and(|it| selector.matches(|key| it.label(key)))
    };
    Related::new(rules.iter().map(|rule| {
        let resource = &rule.resource;
        let is_of = |it: &&Arc<Object>| {
            it.kind() == resource.kind
                && it.api_version() == resource.api_version()
                && rule.matches(it, &selects)
        };
        let picked = objects.iter().filter(is_of).cloned().collect();
        (Arc::clone(resource), picked)
    }))
}

/// What was there before some writes, by what the writes name.
#[derive(Debug)]
pub struct Observed<'a>(BTreeMap<Named<'a>, &'a Arc<Object>>);

/// apiVersion, kind, namespace and name.
type Named<'a> = (&'a str, &'a str, Option<&'a str>, &'a str);

impl Rendered {
    /// Whether the pass ended otherwise than it should.
    pub const fn has_failed(&self) -> bool {
        matches!(
            self.outcome.verdict,
            Verdict::HookFailed(_) | Verdict::AnswerRefused(_) | Verdict::Failed(_)
        )
    }

    /// What was there.
    pub fn observed(&self) -> Observed<'_> {
        let all = std::iter::once(&self.parent).chain(&self.others);
        Observed(
            all.map(|it| ((it.api_version(), it.kind(), it.namespace(), it.name()), it))
                .collect(),
        )
    }
}

impl<'a> Observed<'a> {
    /// The object that a write changes, as it is.
    pub fn by(&self, write: &Write) -> Option<&'a Arc<Object>> {
        let (version, kind) = (write.resource.api_version(), write.resource.kind.as_str());
        let namespace = write.namespace.as_deref();
        self.0
            .get(&(&*version, kind, namespace, &*write.name))
            .copied()
    }
}

/// How much passes would write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlastRadius {
    /// Objects that would be written: each counts once.
    pub objects: usize,
    /// Namespaces that they are in.
    pub namespaces: usize,
    /// Of the objects, those that are not in a namespace.
    pub cluster_scoped: usize,
    /// Objects that would be created.
    pub creates: usize,
    /// Objects that would be changed.
    pub updates: usize,
    /// Objects that would be deleted, also to be created again.
    pub deletes: usize,
    /// Parents whose status would be written.
    pub statuses: usize,
}

impl BlastRadius {
    /// Counts what passes would write.
    pub fn of<'a>(writes: impl IntoIterator<Item = &'a Write>) -> Self {
        let mut radius = Self::default();
        let (mut objects, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
        // A question writes nothing.
        let writes = writes
            .into_iter()
            .filter(|it| it.purpose != Purpose::TryChild);
        for write in writes {
            let resource = &write.resource;
            let namespace = write.namespace.as_deref();
            let object = (&resource.group, &resource.kind, namespace, &*write.name);
            namespaces.extend(namespace);
            match (&write.op, write.purpose) {
                (_, Purpose::UpdateStatus) => radius.statuses += 1,
                (Op::Create { .. }, _) | (_, Purpose::CreateChild) => radius.creates += 1,
                (Op::Delete { .. }, _) => radius.deletes += 1,
                _ => radius.updates += 1,
            }
            if objects.insert(object) && namespace.is_none() {
                radius.cluster_scoped += 1;
            }
        }
        radius.objects = objects.len();
        radius.namespaces = namespaces.len();
        radius
    }
}

/// `would write 1,240 objects in 12 namespaces: 1,200 creates, 40 updates`.
impl std::fmt::Display for BlastRadius {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.objects == 0 {
            return f.write_str("would write nothing");
        }
        write!(f, "would write {}", many(self.objects, "object", "objects"))?;
        if self.namespaces > 0 {
            let namespaces = many(self.namespaces, "namespace", "namespaces");
            write!(f, " in {namespaces}")?;
        }
        if self.cluster_scoped > 0 {
            let objects = grouped(self.cluster_scoped);
            write!(f, ", {objects} of them cluster-scoped")?;
        }
        let parts = [
            (self.creates, "create", "creates"),
            (self.updates, "update", "updates"),
            (self.deletes, "delete", "deletes"),
            (self.statuses, "status", "statuses"),
        ];
        let mut before = ": ";
        for (count, one, more) in parts.into_iter().filter(|it| it.0 > 0) {
            write!(f, "{before}{}", many(count, one, more))?;
            before = ", ";
        }
        Ok(())
    }
}

/// A number and what it counts.
pub(crate) fn many(count: usize, one: &str, more: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { more })
}

/// A number with commas between its thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + 4);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
