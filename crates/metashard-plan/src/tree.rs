//! The objects that belong to one, by owner references.

use std::{collections::BTreeMap, sync::Arc};

use metashard_reconcile::object::Object;

/// Deepest level that is shown: owner references can form rings.
const MAX_DEPTH: usize = 16;

/// One line of a tree.
#[derive(Debug, Clone)]
pub struct Branch {
    /// The object.
    pub object: Arc<Object>,
    /// What is drawn before its name.
    pub lead: String,
    /// How deep it is; 0: the root.
    pub depth: usize,
    /// Whether its owner is its controller.
    pub is_controlled: bool,
}

/// A tree in the order in which it is shown: the root, and below each object what it owns, by kind and name.
pub fn tree(root: &Arc<Object>, objects: &[Arc<Object>]) -> Vec<Branch> {
    let mut owned: BTreeMap<&str, Vec<(&Arc<Object>, bool)>> = BTreeMap::new();
    for object in objects {
        for owner in object.owner_references() {
            owned
                .entry(owner.uid)
                .or_default()
                .push((object, owner.controller));
        }
    }
    for children in owned.values_mut() {
        children.sort_by_key(|(it, _)| (it.kind().to_owned(), it.name().to_owned()));
    }
    let mut branches = vec![Branch {
        object: Arc::clone(root),
        lead: String::new(),
        depth: 0,
        is_controlled: false,
    }];
    grow(root, "", 1, &owned, &mut branches);
    branches
}

fn grow(
    of: &Object,
    lead: &str,
    depth: usize,
    owned: &BTreeMap<&str, Vec<(&Arc<Object>, bool)>>,
    branches: &mut Vec<Branch>,
) {
    let children = owned.get(of.uid()).map_or(&[][..], Vec::as_slice);
    for (place, (child, is_controlled)) in children.iter().enumerate() {
        let is_last = place + 1 == children.len();
        let (own, below) = if is_last {
            ("└─", "  ")
        } else {
            ("├─", "│ ")
        };
        branches.push(Branch {
            object: Arc::clone(child),
            lead: format!("{lead}{own}"),
            depth,
            is_controlled: *is_controlled,
        });
        if depth < MAX_DEPTH {
            grow(child, &format!("{lead}{below}"), depth + 1, owned, branches);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, name: &str, owner: Option<&str>) -> Arc<Object> {
        let owners = owner.map(|uid| {
            json!([{"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid, "controller": true}])
        });
        let value = json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "ownerReferences": owners},
        });
        Arc::new(Object::parse(value.to_string()).unwrap())
    }

    fn lines(root: &Arc<Object>, objects: &[Arc<Object>]) -> Vec<String> {
        let branches = tree(root, objects);
        branches
            .iter()
            .map(|it| format!("{}{}", it.lead, it.object))
            .collect()
    }

    #[test]
    fn each_object_is_below_its_owner() {
        let root = object("Foo", "p", None);
        let objects = [
            object("Pod", "b", Some("d")),
            object("Deployment", "d", Some("p")),
            object("ConfigMap", "c", Some("p")),
            object("ConfigMap", "stranger", None),
        ];

        assert_eq!(
            lines(&root, &objects),
            ["Foo p", "├─ConfigMap c", "└─Deployment d", "  └─Pod b"]
        );
    }

    #[test]
    fn a_ring_ends() {
        let root = object("Foo", "p", Some("p"));

        assert_eq!(lines(&root, &[Arc::clone(&root)]).len(), MAX_DEPTH + 1);
    }
}
