//! Answers to the writes of a pass that are not carried out: for whoever wants to see a plan and change nothing.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Map, Value, json};

use crate::{
    object::Object,
    write::{Aim, Op, Write, WriteError, WriteResult},
};

/// An API server that takes each write as it is, and stores nothing but the parent for the rest of the pass.
///
/// What only a real one knows (a new uid, a new resourceVersion) is a text that says so.
#[derive(Debug)]
pub struct Pretend {
    parent: Arc<Object>,
    /// Creates of these meet an existing object.
    taken: BTreeSet<Name>,
    writes: u32,
}

/// apiVersion, kind, namespace and name.
type Name = [Box<str>; 4];

impl Pretend {
    /// Begins with the parent of the pass and whatever else is there.
    pub fn new<'a>(
        parent: &Arc<Object>,
        others: impl IntoIterator<Item = &'a Arc<Object>>,
    ) -> Self {
        let name = |object: &Arc<Object>| {
            [
                object.api_version(),
                object.kind(),
                object.namespace().unwrap_or_default(),
                object.name(),
            ]
            .map(Into::into)
        };
        Self {
            parent: Arc::clone(parent),
            taken: others.into_iter().map(name).collect(),
            writes: 0,
        }
    }

    /// The parent as the writes so far leave it: the answer to [`crate::sync::Step::ReadParent`].
    pub fn parent(&self) -> Arc<Object> {
        Arc::clone(&self.parent)
    }

    /// The answer to one write.
    ///
    /// # Errors
    /// [`WriteError::AlreadyExists`] of a create of something that is there.
    pub fn carry_out(&mut self, write: &Write) -> WriteResult {
        self.writes += 1;
        let version = format!("<set by write {}>", self.writes);
        let stored = match &write.op {
            Op::Create { body }
            | Op::Apply {
                body,
                aim: Aim::Create,
                ..
            } => {
                if self.taken.contains(&name_of(write)) {
                    return Err(WriteError::AlreadyExists);
                }
                created(body, &version)
            }
            // What only the API server can merge is shown as it is sent.
            Op::Update { body } | Op::UpdateStatus { body } | Op::Apply { body, .. } => {
                written(body, version)
            }
            Op::TryCreate { .. } => return Err(WriteError::AlreadyExists),
            Op::Delete { .. } => return Ok(None),
        };
        let stored = stored.map(Arc::new);
        if let Some(stored) = &stored
            && stored.uid() == self.parent.uid()
        {
            self.parent = Arc::clone(stored);
        }
        Ok(stored)
    }
}

fn name_of(write: &Write) -> Name {
    let resource = &write.resource;
    [
        resource.api_version().as_str(),
        &resource.kind,
        write.namespace.as_deref().unwrap_or_default(),
        &write.name,
    ]
    .map(Into::into)
}

fn created(body: &[u8], version: &str) -> Option<Object> {
    let mut object: Value = serde_json::from_slice(body).ok()?;
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.insert("uid".to_owned(), version.into());
    metadata.insert("resourceVersion".to_owned(), version.into());
    metadata.insert("generation".to_owned(), json!(1));
    Object::parse(object.to_string()).ok()
}

/// All else stays byte for byte.
fn written(body: &bytes::Bytes, version: String) -> Option<Object> {
    let object = Object::parse(body.clone()).ok()?;
    let fields = Map::from_iter([("resourceVersion".to_owned(), version.into())]);
    Object::parse(object.with_metadata(fields)).ok()
}

#[cfg(test)]
mod tests {
    use metashard_api::resource::Resource;

    use super::*;
    use crate::write::Purpose;

    fn object(value: &Value) -> Arc<Object> {
        Arc::new(Object::parse(value.to_string()).unwrap())
    }

    fn parent() -> Arc<Object> {
        object(&json!({
            "apiVersion": "ex.io/v1", "kind": "Foo",
            "metadata": {"name": "p", "namespace": "ns", "uid": "U", "resourceVersion": "7"},
            "spec": {"n": 1.50},
        }))
    }

    fn write(kind: &str, name: &str, op: Op) -> Write {
        let (group, namespaced) = ("ex.io".to_owned(), true);
        Write {
            resource: Arc::new(Resource {
                group,
                version: "v1".to_owned(),
                plural: format!("{}s", kind.to_lowercase()),
                kind: kind.to_owned(),
                namespaced,
                has_status: true,
            }),
            namespace: Some("ns".into()),
            name: name.into(),
            op,
            purpose: Purpose::CreateChild,
            why: "".into(),
        }
    }

    #[test]
    fn a_write_to_the_parent_is_seen_by_a_later_read_with_a_version_that_says_where_it_is_from() {
        let parent = parent();
        let mut server = Pretend::new(&parent, []);
        let fields = Map::from_iter([("finalizers".to_owned(), json!(["f"]))]);
        let body = parent.with_metadata(fields);

        let stored = server
            .carry_out(&write("Foo", "p", Op::Update { body }))
            .unwrap()
            .unwrap();

        assert_eq!(stored.resource_version(), "<set by write 1>");
        assert!(server.parent().has_finalizer("f"));
    }

    #[test]
    fn a_create_of_what_is_there_is_refused_and_another_gets_a_uid() {
        let there = object(&json!({
            "apiVersion": "ex.io/v1", "kind": "Bar",
            "metadata": {"name": "a", "namespace": "ns", "uid": "A", "resourceVersion": "1"},
        }));
        let mut server = Pretend::new(&parent(), [&there]);
        let create = |name: &str| {
            let body = json!({"apiVersion": "ex.io/v1", "kind": "Bar", "metadata": {"name": name, "namespace": "ns"}});
            write(
                "Bar",
                name,
                Op::Create {
                    body: body.to_string().into(),
                },
            )
        };

        assert_eq!(
            server.carry_out(&create("a")).unwrap_err(),
            WriteError::AlreadyExists
        );
        assert_eq!(
            server.carry_out(&create("b")).unwrap().unwrap().uid(),
            "<set by write 2>"
        );
    }
}
