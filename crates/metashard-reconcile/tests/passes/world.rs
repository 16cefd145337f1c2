//! A map of objects that answers writes as an API server does, and a bench that drives passes over one parent in it.

mod bench;
mod kinds;
mod managed;
mod taped;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use metashard_api::resource::Resource;
use metashard_reconcile::{
    controller::{self, Controller},
    object::Object,
    sync::{Candidates, HookResult, Outcome},
    write::{Aim, NO_VERSION, Op, Purpose, Write, WriteError, WriteResult},
};
use serde_json::{Value, json};

pub(crate) use self::bench::Bench;
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

/// A controller of this spec whose children are applied by the server.
pub(crate) fn compile_server_side(spec: &Value) -> Controller {
    compile(spec).unwrap().applying(controller::Apply {
        strategy: controller::Strategy::ServerSide,
        ..controller::Apply::default()
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
pub(crate) type Answers = Box<dyn Fn(&Value) -> Value>;
pub(crate) type Event = Box<dyn FnMut(&mut World)>;

/// The API server.
#[derive(Default)]
pub(crate) struct World {
    objects: BTreeMap<Key, Value>,
    version: u64,
    /// What the server makes of every object that it stores.
    pub(crate) normalize: Option<Change>,
    /// Writes are only observed.
    pub(crate) observes: bool,
    /// Whether it is kept who owns which field.
    pub(crate) manages_fields: bool,
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
        self.edit_as("kubectl", plural, name, change);
    }

    /// Changes an object as this manager would.
    pub(crate) fn edit_as(
        &mut self,
        manager: &str,
        plural: &str,
        name: &str,
        change: impl Fn(&mut Value),
    ) {
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
        self.note(&self.objects[&key].clone(), &mut object, manager);
        self.store(key, object);
    }

    fn note(&self, stored: &Value, object: &mut Value, manager: &str) {
        if self.manages_fields {
            drop_nulls(object);
            managed::update(stored, object, manager);
        }
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

    /// What is made of an object when it is stored.
    fn normalized(&self, mut object: Value) -> Value {
        drop_nulls(&mut object);
        if let Some(normalize) = &self.normalize {
            normalize(&mut object);
        }
        object
    }

    fn store(&mut self, key: Key, object: Value) -> Arc<Object> {
        let mut object = self.normalized(object);
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
                self.note(&Value::Null, &mut object, "metashard");
                Ok(Some(self.store(key, object)))
            }
            (
                None,
                Op::Apply {
                    body,
                    manager,
                    aim: Aim::Create,
                },
            ) => {
                let body: Value = serde_json::from_slice(body).unwrap();
                assert_eq!(body["metadata"]["resourceVersion"], NO_VERSION);
                let mut object = managed::apply(&body, &body, manager);
                object["metadata"]["uid"] = format!("U-{}-{}", key.2, self.version).into();
                object["metadata"]["generation"] = 1.into();
                Ok(Some(self.store(key, object)))
            }
            (None, Op::Apply { .. }) => Err(WriteError::Conflict),
            (None, _) => Err(WriteError::NotFound),
            (
                Some(_),
                Op::Create { .. }
                | Op::TryCreate { .. }
                | Op::Apply {
                    aim: Aim::Create, ..
                },
            ) => Err(WriteError::AlreadyExists),
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
            | Op::TryCreate { body }
            | Op::Update { body }
            | Op::UpdateStatus { body }
            | Op::Apply { body, .. } => {
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
            Op::Apply { manager, .. } => object = managed::apply(stored, &body, manager),
            _ => {
                object = body;
                self.note(stored, &mut object, "metashard");
            }
        }
        if write.resource.has_status && !matches!(write.op, Op::UpdateStatus { .. }) {
            object["status"] = stored["status"].clone();
        }
        if object["spec"] != stored["spec"] {
            bump_generation(&mut object);
        }
        drop_nulls(&mut object);
        if let Op::Apply { aim: Aim::Try, .. } = &write.op {
            return Ok(Some(parse(&self.normalized(object))));
        }
        if self.normalized(object.clone()) == *stored {
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
