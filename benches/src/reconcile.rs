//! What one pass over one parent costs, by the number of its children.

use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use metashard_api::hook::{Mode, decode_sync};
use metashard_reconcile::{
    apply,
    diff::differences,
    memory::Memory,
    object::Object,
    pretend::Pretend,
    sync::{Candidates, Fed, HookResult, Step, SyncInput, SyncMachine, Verdict},
};
use serde_json::Value;

use crate::{
    Bench,
    objects::{
        answer as answer_of, controller, desired, desired_page, object, observed, observed_page,
        ownerless, parent, parents,
    },
};

const OLD: &str = "registry.example.com/web:1";
const NEW: &str = "registry.example.com/web:2";

/// One parent with its children in a cache.
struct Scene {
    controller: Arc<metashard_reconcile::controller::Controller>,
    parent: Arc<Object>,
    children: Vec<Arc<Object>>,
}

impl Scene {
    fn new(children: impl Iterator<Item = Value>) -> anyhow::Result<Self> {
        Ok(Self {
            controller: controller()?,
            parent: parent()?,
            children: children
                .map(|it| object(&it))
                .collect::<anyhow::Result<_>>()?,
        })
    }

    /// By child rule.
    fn candidates(&self) -> Vec<Candidates> {
        let of = |kind| {
            let children = self.children.iter().filter(|it| it.kind() == kind);
            Candidates::from(children.cloned().collect::<Vec<_>>())
        };
        vec![of("Deployment"), of("ConfigMap")]
    }

    fn pass(&self, memory: Memory) -> SyncMachine {
        SyncMachine::new(SyncInput {
            controller: Arc::clone(&self.controller),
            resource: parents(),
            parent: Arc::clone(&self.parent),
            candidates: self.candidates(),
            revisions: Candidates::default(),
            memory,
        })
    }
}

/// Three-way merge, with its annotation read and written: each child differs.
pub(crate) fn merge(size: usize) -> anyhow::Result<Bench> {
    let pairs: Vec<_> = (0..size)
        .map(|n| (observed(n, OLD), desired(n, NEW)))
        .collect();
    Ok(Bench {
        work: Box::new(move || {
            let mut changed = 0;
            for (observed, desired) in &pairs {
                changed += usize::from(apply::update(observed, desired)?.changed);
            }
            Ok(changed)
        }),
        expected: size,
    })
}

/// All places where two objects differ: one in each pair.
pub(crate) fn diff(size: usize) -> anyhow::Result<Bench> {
    let pairs: Vec<_> = (0..size)
        .map(|n| (desired(n, OLD), desired(n, NEW)))
        .collect();
    Ok(Bench {
        work: Box::new(move || Ok(pairs.iter().map(|(a, b)| differences(a, b).len()).sum())),
        expected: size,
    })
}

/// An object from the wire to the index beside its bytes.
pub(crate) fn parse(size: usize) -> anyhow::Result<Bench> {
    let texts: Vec<_> = (0..size)
        .map(|n| Bytes::from(observed(n, OLD).to_string()))
        .collect();
    Ok(Bench {
        work: Box::new(move || {
            let mut named = 0;
            for text in &texts {
                let object = Object::parse(text.clone()).context("parse")?;
                named += usize::from(object.name().starts_with("site-"));
            }
            Ok(named)
        }),
        expected: size,
    })
}

/// From the start of a pass to the adoptions that it asks for: all children are without an owner.
pub(crate) fn claim(size: usize) -> anyhow::Result<Bench> {
    let scene = Scene::new((0..size).map(ownerless))?;
    Ok(Bench {
        work: Box::new(move || {
            let mut pass = scene.pass(Memory::default());
            let Step::ReadParent = pass.next() else {
                bail!("an adoption begins with a look at the parent");
            };
            pass.feed(Fed::Parent(Ok(Some(Arc::clone(&scene.parent)))));
            match pass.next() {
                Step::Write(writes) => Ok(writes.len()),
                other => bail!("no adoptions: {other:?}"),
            }
        }),
        expected: size,
    })
}

/// From the start of a pass to the request for the hook, spliced from the cached bytes.
pub(crate) fn request(size: usize) -> anyhow::Result<Bench> {
    let scene = Scene::new((0..size).map(|n| observed_page(n, OLD)))?;
    let body = call(&mut scene.pass(Memory::default()))?.concat();
    let body: Value = serde_json::from_slice(&body).context("read the request")?;
    let children = body["children"]["ConfigMap.v1"].as_object();
    let children = children.context("the request has children")?.len();
    anyhow::ensure!(children == size, "{children} children in the request");
    let length = body.to_string().len();
    Ok(Bench {
        work: Box::new(move || {
            let body = call(&mut scene.pass(Memory::default()))?;
            // Spaces and the order of fields are those of the cache, so that the length may differ a little.
            let found: usize = body.iter().map(Bytes::len).sum();
            Ok(if found.abs_diff(length) <= length / 10 {
                length
            } else {
                found
            })
        }),
        expected: length,
    })
}

fn call(pass: &mut SyncMachine) -> anyhow::Result<Vec<Bytes>> {
    match pass.next() {
        Step::CallHook(call) => Ok(call.body),
        other => bail!("no call: {other:?}"),
    }
}

/// An answer from the wire to its parts.
pub(crate) fn answer(size: usize) -> anyhow::Result<Bench> {
    let bytes = answer_of((0..size).map(|n| desired_page(n, OLD)));
    Ok(Bench {
        work: Box::new(move || {
            let answer = decode_sync(&bytes, Mode::Strict)?;
            Ok(answer.children.map_or(0, |children| children.len()))
        }),
        expected: size,
    })
}

/// A pass that creates every child, up to its writes.
pub(crate) fn create(size: usize) -> anyhow::Result<Bench> {
    let scene = Scene::new(std::iter::empty())?;
    let bytes = answer_of((0..size).map(|n| desired_page(n, OLD)));
    Ok(writes(scene, bytes, size))
}

/// A pass that updates every child, up to its writes.
pub(crate) fn update(size: usize) -> anyhow::Result<Bench> {
    let scene = Scene::new((0..size).map(|n| observed_page(n, OLD)))?;
    let bytes = answer_of((0..size).map(|n| desired_page(n, NEW)));
    Ok(writes(scene, bytes, size))
}

/// A whole pass that updates every child, its writes answered.
pub(crate) fn carry_out(size: usize) -> anyhow::Result<Bench> {
    let scene = Scene::new((0..size).map(|n| observed_page(n, OLD)))?;
    let bytes = answer_of((0..size).map(|n| desired_page(n, NEW)));
    Ok(Bench {
        work: Box::new(move || {
            let mut server = Pretend::new(&scene.parent, &scene.children);
            let mut pass = scene.pass(Memory::default());
            call(&mut pass)?;
            pass.feed(Fed::Hook(HookResult::Answer(bytes.clone())));
            loop {
                match pass.next() {
                    Step::Write(writes) => {
                        let results = writes.iter().map(|it| server.carry_out(it));
                        pass.feed(Fed::Written(results.collect()));
                    }
                    Step::Done(outcome) => return Ok(usize::try_from(outcome.counts.updated)?),
                    other => bail!("no writes: {other:?}"),
                }
            }
        }),
        expected: size,
    })
}

fn writes(scene: Scene, answer: Bytes, expected: usize) -> Bench {
    Bench {
        work: Box::new(move || {
            let mut pass = scene.pass(Memory::default());
            call(&mut pass)?;
            pass.feed(Fed::Hook(HookResult::Answer(answer.clone())));
            match pass.next() {
                Step::Write(writes) => Ok(writes.len()),
                other => bail!("no writes: {other:?}"),
            }
        }),
        expected,
    }
}

/// A whole pass that changes nothing, the hook's answer and the objects being those of the pass before.
pub(crate) fn no_op(size: usize) -> anyhow::Result<Bench> {
    let scene = Scene::new((0..size).map(|n| observed_page(n, OLD)))?;
    let bytes = answer_of((0..size).map(|n| desired_page(n, OLD)));
    let mut memory = Some(Memory::default());
    Ok(Bench {
        work: Box::new(move || {
            let mut pass = scene.pass(memory.take().unwrap_or_default());
            call(&mut pass)?;
            pass.feed(Fed::Hook(HookResult::Answer(bytes.clone())));
            let Step::Done(outcome) = pass.next() else {
                bail!("it writes");
            };
            memory = Some(outcome.memory);
            Ok(usize::from(outcome.verdict == Verdict::Unchanged))
        }),
        expected: 1,
    })
}
