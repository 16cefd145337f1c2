//! A map of objects that answers writes as an API server does, and a bench that drives passes over one parent in it.

mod kinds;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use metashard_api::resource::Resource;
use metashard_reconcile::{
    controller::{self, Controller},
    memory::Memory,
    object::Object,
    sync::{Candidates, Fed, HookKind, HookResult, Outcome, Step, SyncInput, SyncMachine},
    write::{Op, Purpose, Write, WriteError, WriteResult},
};
use serde_json::{Value, json};

use crate::rolling::revisions;

pub(crate) use self::kinds::{CONFIG, FOO, REVISION, lookup, resources};

/// A controller object with this spec.
pub(crate) fn controller_object(spec: &Value) -> Value {
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1",
        "kind": "CompositeController",
        "metadata": {"name": "c", "uid": "C-1", "resourceVersion": "1", "generation": 1},
        "spec": spec,
        "status": {"observedGeneration": 1},
    })
}

pub(crate) fn compile(spec: &Value) -> Result<Controller, controller::Error> {
    let object = controller_object(spec);
    let raw = Bytes::from(object.to_string());
    Controller::compile(&serde_json::from_value(object).unwrap(), &raw, &lookup)
}

/// A controller of Foos with ConfigMaps, updated in place, and a generated selector.
pub(crate) fn spec() -> Value {
    json!({
        "parentResource": {"apiVersion": "ex.io/v1", "resource": FOO},
        "childResources": [rule("v1", CONFIG, "InPlace")],
        "generateSelector": true,
        "hooks": {"sync": hook("v1")},
    })
}

pub(crate) fn rule(api_version: &str, plural: &str, method: &str) -> Value {
    json!({"apiVersion": api_version, "resource": plural, "updateStrategy": {"method": method}})
}

pub(crate) fn hook(version: &str) -> Value {
    json!({"version": version, "webhook": {"url": "http://hook/"}})
}

pub(crate) fn config(name: &str, data: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name}, "data": {"a": data},
    })
}

type Key = (String, String, String);
type Change = Box<dyn Fn(&mut Value)>;
type Answers = Box<dyn Fn(&Value) -> Value>;
type Event = Box<dyn FnMut(&mut World)>;

/// The API server.
#[derive(Default)]
pub(crate) struct World {
    objects: BTreeMap<Key, Value>,
    version: u64,
    /// What the server makes of every object that it stores.
    pub(crate) normalize: Option<Change>,
    /// Writes are only observed.
    pub(crate) observes: bool,
    /// Errors to answer with, by purpose and name, before anything is done.
    pub(crate) errors: Vec<(Purpose, &'static str, WriteError)>,
}

impl World {
    /// Puts an object, with uid and resourceVersion if it has none.
    pub(crate) fn put(&mut self, mut object: Value) {
        let kind = object["kind"].as_str().unwrap();
        let plural = resources()
            .into_iter()
            .find(|it| it.kind == kind)
            .unwrap()
            .plural
            .clone();
        let metadata = &mut object["metadata"];
        if metadata.get("uid").is_none() {
            metadata["uid"] = format!("U-{}", metadata["name"].as_str().unwrap()).into();
        }
        if metadata.get("generation").is_none() {
            metadata["generation"] = 1.into();
        }
        let key = key_of(&plural, &object);
        self.store(key, object);
    }

    pub(crate) fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.objects
            .get(&(plural.to_owned(), namespace.to_owned(), name.to_owned()))
    }

    /// Changes an object as somebody else would.
    pub(crate) fn edit(&mut self, plural: &str, name: &str, change: impl Fn(&mut Value)) {
        let key = self
            .objects
            .keys()
            .find(|key| key.0 == plural && key.2 == name)
            .unwrap()
            .clone();
        let mut object = self.objects[&key].clone();
        let spec = object["spec"].clone();
        change(&mut object);
        if object["spec"] != spec {
            bump_generation(&mut object);
        }
        self.store(key, object);
    }

    /// Deletes an object as somebody else would; finalizers keep it.
    pub(crate) fn delete(&mut self, plural: &str, name: &str) {
        let key = self
            .objects
            .keys()
            .find(|key| key.0 == plural && key.2 == name)
            .unwrap()
            .clone();
        self.remove(key);
    }

    fn remove(&mut self, key: Key) {
        let mut object = self.objects.remove(&key).unwrap();
        if object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
        {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            bump_generation(&mut object);
            self.store(key, object);
        }
    }

    fn store(&mut self, key: Key, mut object: Value) -> Arc<Object> {
        drop_nulls(&mut object);
        if let Some(normalize) = &self.normalize {
            normalize(&mut object);
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let metadata = &object["metadata"];
        let stored = parse(&object);
        let gone = !metadata["deletionTimestamp"].is_null()
            && metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
        if gone {
            self.objects.remove(&key);
        } else {
            self.objects.insert(key, object);
        }
        stored
    }

    pub(crate) fn carry_out(&mut self, write: &Write) -> WriteResult {
        let Write {
            resource,
            namespace,
            name,
            op,
            purpose,
            ..
        } = write;
        if self.observes {
            return Err(WriteError::Observed);
        }
        let planned = self
            .errors
            .iter()
            .position(|it| it.0 == *purpose && *it.1 == **name);
        if let Some(index) = planned {
            return Err(self.errors.remove(index).2);
        }
        let namespace = namespace.as_deref().unwrap_or_default().to_owned();
        let key = (resource.plural.clone(), namespace, name.to_string());
        match (self.objects.get(&key).cloned(), op) {
            (None, Op::Create { body }) => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                assert_eq!(
                    key_of(&resource.plural, &object),
                    key,
                    "the body is of that name"
                );
                object["metadata"]["uid"] = format!("U-{}-{}", key.2, self.version).into();
                object["metadata"]["generation"] = 1.into();
                Ok(Some(self.store(key, object)))
            }
            (None, _) => Err(WriteError::NotFound),
            (Some(_), Op::Create { .. }) => Err(WriteError::AlreadyExists),
            (Some(stored), _) => self.change(key, &stored, write),
        }
    }

    fn change(&mut self, key: Key, stored: &Value, write: &Write) -> WriteResult {
        let (body, fence) = match &write.op {
            Op::Delete {
                uid,
                resource_version,
                ..
            } => (
                Value::Null,
                json!({"uid": uid, "resourceVersion": resource_version}),
            ),
            Op::Create { body }
            | Op::Update { body }
            | Op::UpdateStatus { body }
            | Op::MergePatch { body } => {
                let body: Value = serde_json::from_slice(body).unwrap();
                let fence = body["metadata"].clone();
                (body, fence)
            }
        };
        for field in ["uid", "resourceVersion"] {
            assert!(
                fence[field].is_string(),
                "every write to an object is fenced: {write}"
            );
            if fence[field] != stored["metadata"][field] {
                return Err(WriteError::Conflict);
            }
        }
        let mut object = stored.clone();
        match &write.op {
            Op::Delete { .. } => {
                self.remove(key);
                return Ok(None);
            }
            Op::UpdateStatus { .. } => object["status"] = body["status"].clone(),
            _ => object = body,
        }
        if write.resource.has_status && !matches!(write.op, Op::UpdateStatus { .. }) {
            object["status"] = stored["status"].clone();
        }
        if object["spec"] != stored["spec"] {
            bump_generation(&mut object);
        }
        drop_nulls(&mut object);
        if object == *stored {
            Ok(Some(parse(stored)))
        } else {
            Ok(Some(self.store(key, object)))
        }
    }

    pub(crate) fn object(&self, plural: &str, name: &str) -> Option<Arc<Object>> {
        let found = self
            .objects
            .iter()
            .find(|(key, _)| key.0 == plural && key.2 == name);
        found.map(|(_, object)| parse(object))
    }

    /// All objects of a resource.
    pub(crate) fn of(&self, plural: &str) -> Vec<Arc<Object>> {
        let found = self.objects.iter().filter(|(key, _)| key.0 == plural);
        found.map(|(_, object)| parse(object)).collect()
    }

    /// What a cache hands to a sync of this parent.
    pub(crate) fn candidates(&self, controller: &Controller, parent: &Object) -> Vec<Candidates> {
        let of = |rule: &controller::ChildRule| Candidates {
            objects: self
                .objects
                .iter()
                .filter(|(key, _)| key.0 == rule.resource.plural)
                .filter(|(key, _)| parent.namespace().is_none_or(|it| it == key.1))
                .map(|(_, object)| parse(object))
                .filter(|it| {
                    it.controller_owner()
                        .is_none_or(|it| it.uid == parent.uid())
                })
                .collect(),
            reached: Some(self.version.to_string().into()),
        };
        controller.children.iter().map(of).collect()
    }

    /// All objects of a resource.
    pub(crate) fn all(&self, plural: &str) -> impl Iterator<Item = &Value> {
        let of = self.objects.iter().filter(move |(key, _)| key.0 == plural);
        of.map(|(_, object)| object)
    }
}

/// The resource that an object is of.
pub(crate) fn resource_of(object: &Object) -> Arc<Resource> {
    let same =
        |it: &Arc<Resource>| it.kind == object.kind() && it.api_version() == object.api_version();
    resources().into_iter().find(same).unwrap()
}

pub(crate) fn parse(object: &Value) -> Arc<Object> {
    Arc::new(Object::parse(object.to_string()).unwrap())
}

fn key_of(plural: &str, object: &Value) -> Key {
    let text = |field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (plural.to_owned(), text("namespace"), text("name"))
}

fn bump_generation(object: &mut Value) {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    object["metadata"]["generation"] = (generation + 1).into();
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

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
            before_read: None,
        }
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
        let mut machine = SyncMachine::new(SyncInput {
            controller: Arc::clone(&self.controller),
            resource: resource_of(&parent),
            revisions: revisions(&self.world, &parent),
            parent,
            candidates,
            memory: std::mem::take(&mut self.memory),
        });
        for _ in 0..12 {
            match machine.next() {
                Step::Write(writes) => {
                    let results = writes.iter().map(|it| self.world.carry_out(it)).collect();
                    self.writes.extend(writes);
                    machine.feed(Fed::Written(results));
                }
                Step::ReadParent => {
                    self.reads += 1;
                    if let Some(before) = &mut self.before_read {
                        before(&mut self.world);
                    }
                    machine.feed(Fed::Parent(Ok(self
                        .world
                        .object(self.parent.0, self.parent.1))));
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
                    machine.feed(Fed::Hook(customized.unwrap_or(result)));
                }
                Step::Relate(rules) => machine.feed(Fed::Related(self.relate(&rules))),
                Step::Done(mut outcome) => {
                    self.memory = std::mem::take(&mut outcome.memory);
                    return *outcome;
                }
            }
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

pub(crate) fn answer(body: &Value) -> HookResult {
    HookResult::Answer(Bytes::from(body.to_string()))
}

/// The messages of an outcome's events, with their reasons.
pub(crate) fn told(outcome: &Outcome) -> Vec<String> {
    let line = |event: &metashard_reconcile::sync::Event| {
        assert!(event.is_warning);
        format!("{}: {}", event.reason, event.message)
    };
    outcome.events.iter().map(line).collect()
}
