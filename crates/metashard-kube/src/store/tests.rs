//! Tests of the store.

use bytes::Bytes;

use super::*;

fn object(namespace: &str, name: &str, owner: Option<&str>) -> Arc<Object> {
    let references = owner.map_or_else(String::new, |uid| {
        format!(
            r#","ownerReferences":[{{"apiVersion":"v1","kind":"Thing","name":"t","uid":"{uid}","controller":true}}]"#
        )
    });
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"{namespace}","name":"{name}","uid":"u-{name}","resourceVersion":"1"{references}}}}}"#
    );
    Arc::new(Object::parse(Bytes::from(text)).unwrap())
}

fn names(objects: &[Arc<Object>]) -> Vec<&str> {
    objects.iter().map(|object| object.name()).collect()
}

#[test]
fn an_object_is_found_by_name_owner_and_lack_of_one() {
    let mut store = Store::default();
    store.insert(object("a", "two", Some("p")));
    store.insert(object("a", "one", Some("p")));
    store.insert(object("a", "free", None));
    store.insert(object("b", "free", None));

    assert_eq!(store.get("a", "one").unwrap().name(), "one");
    assert!(store.get("b", "one").is_none());
    assert_eq!(names(&store.owned_by("p")), ["one", "two"]);
    assert_eq!(names(&store.ownerless(Some("a"))), ["free"]);
    assert_eq!(store.ownerless(None).len(), 2);
}

#[test]
fn an_object_that_gets_an_owner_moves_between_the_indexes() {
    let mut store = Store::default();
    store.insert(object("a", "one", None));

    let old = store.insert(object("a", "one", Some("p")));

    assert!(old.unwrap().controller_owner().is_none());
    assert!(store.ownerless(None).is_empty());
    assert_eq!(names(&store.owned_by("p")), ["one"]);
    assert_eq!(store.len(), 1);
}

#[test]
fn an_emptied_store_holds_nothing_back() {
    let mut store = Store::default();
    store.insert(object("a", "one", Some("p")));
    store.insert(object("a", "two", None));
    assert!(store.bytes() > 0);

    store.remove("a", "one");
    store.remove("a", "two");

    assert_eq!((store.len(), store.bytes()), (0, 0));
    assert!(store.by_owner.is_empty() && store.ownerless.is_empty());
}
