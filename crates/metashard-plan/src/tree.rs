//! The objects that belong to one, by owner references.

use std::{collections::BTreeMap, sync::Arc};

use metashard_reconcile::object::Object;

/// Deepest level that is shown.
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

/// Trees in the order in which they are shown: each root, and below each object what it owns, by kind and name.
///
/// What an object owns is shown below it once, however many owners it has itself: owner references can form rings.
pub fn trees(roots: &[Arc<Object>], objects: &[Arc<Object>]) -> Vec<Branch> {
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
    let mut trees = Trees {
        owned,
        branches: Vec::new(),
    };
    for root in roots {
        trees.branches.push(Branch {
            object: Arc::clone(root),
            lead: String::new(),
            depth: 0,
            is_controlled: false,
        });
        trees.grow(root, "", 1);
    }
    trees.branches
}

/// Trees that grow.
struct Trees<'a> {
    /// What is owned by each uid, and was not shown yet.
    owned: BTreeMap<&'a str, Vec<(&'a Arc<Object>, bool)>>,
    branches: Vec<Branch>,
}

impl Trees<'_> {
    fn grow(&mut self, of: &Object, lead: &str, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let children = self.owned.remove(of.uid()).unwrap_or_default();
        for (place, (child, is_controlled)) in children.iter().enumerate() {
            let is_last = place + 1 == children.len();
            let (own, below) = if is_last {
                ("└─", "  ")
            } else {
                ("├─", "│ ")
            };
            self.branches.push(Branch {
                object: Arc::clone(child),
                lead: format!("{lead}{own}"),
                depth,
                is_controlled: *is_controlled,
            });
            self.grow(child, &format!("{lead}{below}"), depth + 1);
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
        let branches = trees(std::slice::from_ref(root), objects);
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

        assert_eq!(lines(&root, &[Arc::clone(&root)]), ["Foo p", "└─Foo p"]);
    }

    #[test]
    fn objects_that_all_own_each_other_are_shown_once_by_each_owner() {
        let names: Vec<_> = (0..30).map(|index| format!("o{index:02}")).collect();
        let owners: Vec<_> = names
            .iter()
            .map(|uid| json!({"apiVersion": "v1", "kind": "K", "name": uid, "uid": uid}))
            .collect();
        let object = |name: &String| {
            let metadata = json!({"name": name, "uid": name, "resourceVersion": "1", "ownerReferences": owners});
            let value = json!({"apiVersion": "v1", "kind": "K", "metadata": metadata});
            Arc::new(Object::parse(value.to_string()).unwrap())
        };
        let objects: Vec<_> = names.iter().map(object).collect();

        let shown = lines(&objects[0], &objects);

        assert!(shown.len() <= 1 + 30 * 30, "{}", shown.len());
    }
}
