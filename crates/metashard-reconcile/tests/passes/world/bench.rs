//! A bench that drives passes over one parent of a world.

use std::{sync::Arc, time::Duration};

use metashard_reconcile::{
    controller::Controller,
    memory::Memory,
    object::Object,
    sync::{Candidates, Fed, HookKind, HookResult, Outcome, Step, SyncInput, SyncMachine},
    write::{Purpose, Write},
};
use serde_json::{Value, json};

use crate::rolling::revisions;

use super::{
    Answers, CONFIG, Event, FOO, World, answer, compile, compile_server_side, resource_of,
    taped::Tape,
};

/// Drives passes over one parent.
pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) controller: Arc<Controller>,
    pub(crate) memory: Memory,
    /// Plural and name of the parent.
    pub(crate) parent: (&'static str, &'static str),
    /// What the hook answers.
    pub(crate) answer: HookResult,
    /// What it answers to a request, if that matters.
    pub(crate) answers: Option<Answers>,
    /// What the customize hook answers.
    pub(crate) customize: HookResult,
    /// Whether the caches of related objects are still being filled.
    pub(crate) is_filling: bool,
    /// What the last pass did.
    pub(crate) calls: Vec<(HookKind, Value)>,
    pub(crate) writes: Vec<Write>,
    pub(crate) reads: usize,
    /// The time of the next pass; `None`: nobody says.
    pub(crate) now: Option<Duration>,
    /// What happens in the world just before a read of the parent.
    pub(crate) before_read: Option<Event>,
}

impl Bench {
    /// A world with one Foo `ns1/p` and a controller of this spec.
    pub(crate) fn new(spec: &Value) -> Self {
        let mut world = World::default();
        world.put(json!({
            "apiVersion": "ex.io/v1", "kind": "Foo",
            "metadata": {"name": "p", "namespace": "ns1", "uid": "P-1", "generation": 3},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
        }));
        Self {
            world,
            controller: Arc::new(compile(spec).unwrap()),
            memory: Memory::default(),
            parent: (FOO, "p"),
            answer: answer(&json!({"status": {}, "children": []})),
            answers: None,
            customize: answer(&json!({"relatedResources": []})),
            is_filling: false,
            calls: Vec::new(),
            writes: Vec::new(),
            reads: 0,
            now: None,
            before_read: None,
        }
    }

    /// As [`Bench::wanting`], with children that are applied by the server.
    pub(crate) fn applying(spec: &Value, children: &[Value]) -> Self {
        let mut bench = Self::wanting(spec, children);
        bench.world.manages_fields = true;
        bench.controller = Arc::new(compile_server_side(spec));
        bench
    }

    /// As [`Bench::new`], with a hook that wants these children.
    pub(crate) fn wanting(spec: &Value, children: &[Value]) -> Self {
        let mut bench = Self::new(spec);
        bench.want(children);
        bench
    }

    pub(crate) fn want(&mut self, children: &[Value]) {
        self.answer = answer(&json!({"status": {}, "children": children}));
    }

    /// One pass, from caches that are up to date.
    pub(crate) fn pass(&mut self) -> Outcome {
        let parent = self
            .world
            .object(self.parent.0, self.parent.1)
            .expect("the parent is there");
        let candidates = self.world.candidates(&self.controller, &parent);
        self.pass_from(parent, candidates)
    }

    /// One pass, from these caches.
    pub(crate) fn pass_from(
        &mut self,
        parent: Arc<Object>,
        candidates: Vec<Candidates>,
    ) -> Outcome {
        (self.calls, self.writes, self.reads) = (Vec::new(), Vec::new(), 0);
        let input = SyncInput {
            controller: Arc::clone(&self.controller),
            resource: resource_of(&parent),
            revisions: revisions(&self.world, &parent),
            parent,
            candidates,
            memory: std::mem::take(&mut self.memory),
        };
        let mut tape = Tape::start(&input, self.now);
        let mut machine = SyncMachine::new(input);
        if let Some(now) = self.now {
            machine = machine.at(now);
        }
        for _ in 0..12 {
            let fed = match machine.next() {
                Step::Write(writes) => {
                    let results = writes.iter().map(|it| self.world.carry_out(it)).collect();
                    self.writes.extend(writes);
                    Fed::Written(results)
                }
                Step::ReadParent => {
                    self.reads += 1;
                    if let Some(before) = &mut self.before_read {
                        before(&mut self.world);
                    }
                    Fed::Parent(Ok(self.world.object(self.parent.0, self.parent.1)))
                }
                Step::CallHook(call) => {
                    let body: Value = serde_json::from_slice(&call.body.concat()).unwrap();
                    let result = match &self.answers {
                        Some(of) => answer(&of(&body)),
                        None => self.answer.clone(),
                    };
                    self.calls.push((call.hook, body));
                    let is_customize = call.hook == HookKind::Customize;
                    let customized = is_customize.then(|| self.customize.clone());
                    Fed::Hook(customized.unwrap_or(result))
                }
                Step::Relate(rules) => Fed::Related(self.relate(&rules)),
                Step::Done(mut outcome) => {
                    tape.end(&outcome, &self.writes, &self.calls);
                    self.memory = std::mem::take(&mut outcome.memory);
                    return *outcome;
                }
            };
            machine.feed(tape.fed(fed));
        }
        panic!("a pass ends after a few steps");
    }

    pub(crate) fn purposes(&self) -> Vec<Purpose> {
        self.writes.iter().map(|write| write.purpose).collect()
    }

    pub(crate) fn child(&self, name: &str) -> &Value {
        self.world
            .get(CONFIG, "ns1", name)
            .expect("the child is there")
    }
}
