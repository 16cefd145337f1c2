//! Tests of views whose users want a part of them.

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use metashard_api::{
    id::{ControllerUid, ShardId},
    resource::Resource,
};
use metashard_fleet::shard::{Cut, slice_of};
use metashard_runtime::clock::Clock;
use prometheus::Registry;

use super::*;
use crate::{
    client::Clients,
    informer::{Controlled, Informers, View},
    metrics::Metrics,
};

/// Nobody answers there; nor do the feeds run, as no test waits.
fn informers() -> Informers {
    let metrics = Metrics::register(&Registry::new()).unwrap();
    let nowhere = Uri::from_static("http://127.0.0.1:1");
    let clients = Clients::over(&HttpConnector::new(), &nowhere, Clock::system(), metrics);
    Informers::new(&clients.unwrap())
}

/// A view of owners of a kind, not synced.
fn owners((group, kind): (&str, &str)) -> View {
    let resource = Resource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
        kind: kind.to_owned(),
        namespaced: true,
        has_status: true,
    };
    let key = ViewKey::new(Identity::process(), Arc::new(resource));
    informers().open(key, None)
}

/// A view of owners of these names, synced.
fn synced(of: (&str, &str), names: &[&str]) -> View {
    let view = owners(of);
    list(&view.shared, names.iter().map(|name| owner(of, name)), 0);
    view.shared.set_state(ViewState::Live);
    view
}

fn owner((group, kind): (&str, &str), name: &str) -> Object {
    let text = format!(
        r#"{{"apiVersion":"{group}/v1","kind":"{kind}","metadata":{{"namespace":"a","name":"{name}","uid":"u-{name}","resourceVersion":"1"}}}}"#
    );
    Object::parse(Bytes::from(text)).unwrap()
}

fn controlled(by: View, cut: Cut, with_ownerless: bool) -> Interest {
    Interest::Controlled(Controlled {
        by: [by].into(),
        cut,
        with_ownerless,
    })
}

/// In all that is of a kind, or nobody's.
fn whole(of: (&str, &str)) -> Interest {
    controlled(owners(of), Cut::WHOLE, true)
}

/// `name` at a version, controlled by an owner: its apiVersion, kind and name.
fn owned(name: &str, version: u64, (api_version, kind, owner): (&str, &str, &str)) -> Object {
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"a","name":"{name}","uid":"u-{name}","resourceVersion":"{version}","ownerReferences":[{{"apiVersion":"{api_version}","kind":"{kind}","name":"{owner}","uid":"u-{owner}","controller":true}}]}}}}"#
    );
    Object::parse(Bytes::from(text)).unwrap()
}

const THING: (&str, &str) = ("a.io", "Thing");
const OTHER: (&str, &str) = ("b.io", "Other");

fn things(name: &str, version: u64) -> Object {
    owned(name, version, ("a.io/v1beta1", "Thing", "p"))
}

fn others(name: &str, version: u64) -> Object {
    owned(name, version, ("b.io/v1", "Other", "p"))
}

/// Each time so much later that it may be tidied again.
fn later() -> MonoTime {
    static SECONDS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let seconds = SECONDS.fetch_add(60, Ordering::Relaxed);
    MonoTime::default() + Duration::from_secs(seconds)
}

fn narrow(shared: &Shared, interest: Interest) -> (UserId, u64, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let (id, since) = shared.join(interest, Some(Arc::clone(&recorder) as _));
    (id, since, recorder)
}

fn list(shared: &Shared, objects: impl IntoIterator<Item = Object>, serves: u64) {
    let mut listing = shared.begin_list(serves);
    for object in objects {
        shared.apply(object, Some(&mut listing));
    }
    shared.complete_list(listing, "50");
}

fn names(shared: &Shared) -> Vec<String> {
    let store = shared.store();
    let mut names: Vec<_> = store.iter().map(|it| it.name().to_owned()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn children_are_kept_of_parents_of_the_kind_in_any_version_and_what_nobody_controls() {
    let shared = shared();
    let (_, since, recorder) = narrow(&shared, whole(THING));
    assert_eq!(since, 0, "the first list shows all");

    let same_kind_of_another_group = owned("d", 4, ("c.io/v1", "Thing", "p"));
    let all = [
        things("a", 1),
        others("b", 2),
        object("c", "u", 3),
        same_kind_of_another_group,
    ];
    list(&shared, all, 0);

    assert_eq!(names(&shared), ["a", "c"]);
    assert_eq!(recorder.take(), ["+a@1", "+c@3", "synced"]);
}

#[tokio::test]
async fn what_no_decorator_can_adopt_is_let_go() {
    let shared = shared();
    narrow(&shared, controlled(owners(THING), Cut::WHOLE, false));

    list(&shared, [things("a", 1), object("c", "u", 3)], 0);

    assert_eq!(names(&shared), ["a"]);
}

#[tokio::test]
async fn of_a_slice_only_its_own_parents_and_their_children_are_kept() {
    let uid = ControllerUid::new("uid");
    let cuts = (0..8).filter_map(|shard| Cut::of(&uid, 4, ShardId(shard), 8));
    for cut in cuts {
        let (parents, children) = (shared(), shared());
        narrow(&parents, Interest::Named(cut));
        narrow(&children, controlled(owners(THING), cut, true));
        let takes = |n: u32| {
            cut.mine()
                .any(|it| it == slice_of(Some("a"), &format!("p{n}"), 4))
        };

        for n in 0..40 {
            parents.apply(object(&format!("p{n}"), "u", 1), None);
            let owner = format!("p{n}");
            let child = owned(&format!("c{n}"), 1, ("a.io/v1", "Thing", &owner));
            children.apply(child, None);
        }

        let mut kept: Vec<_> = (0..40).filter(|n| takes(*n)).collect();
        kept.sort_unstable_by_key(u32::to_string);
        let as_names =
            |letter: &str| -> Vec<_> { kept.iter().map(|n| format!("{letter}{n}")).collect() };
        assert!(!kept.is_empty() && kept.len() < 40, "{cut:?}");
        assert_eq!(names(&parents), as_names("p"));
        assert_eq!(names(&children), as_names("c"));
    }
}

#[tokio::test]
async fn a_child_that_is_given_to_a_foreign_owner_is_gone_for_the_one_before() {
    let shared = shared();
    let (_, _, recorder) = narrow(&shared, whole(THING));
    list(&shared, [things("a", 1)], 0);
    recorder.take();

    assert!(!shared.apply(others("a", 7), None));
    assert_eq!(recorder.take(), ["-a@1"]);
    assert!(!shared.apply(others("a", 8), None));
    assert_eq!(recorder.take(), Vec::<String>::new());
    assert!(shared.apply(things("a", 9), None));

    assert_eq!(recorder.take(), ["+a@9"]);
    // What comes late changes nothing.
    assert!(shared.apply(others("a", 8), None));
    assert_eq!(names(&shared), ["a"]);
}

#[tokio::test]
async fn who_wants_what_was_let_go_is_synced_by_a_list_that_begins_later() {
    let shared = shared();
    let (_, _, first) = narrow(&shared, whole(THING));
    list(&shared, [things("a", 1), others("b", 2)], 0);
    first.take();

    let (_, since, second) = narrow(&shared, whole(OTHER));

    assert!(since > 0 && !shared.has_listed(since));
    // The view has what others keep there.
    assert_eq!(second.take(), ["+a@1"]);
    list(&shared, [things("a", 1), others("b", 2)], since);
    assert!(shared.has_listed(since));
    assert_eq!(second.take(), ["+b@2", "synced"]);
    assert_eq!(first.take(), ["+b@2"], "told once that all was there");
}

#[tokio::test]
async fn who_wants_nothing_of_what_was_let_go_needs_no_list() {
    let shared = shared();
    narrow(&shared, whole(THING));
    list(&shared, [things("a", 1), others("b", 2)], 0);

    let (_, since, same) = narrow(&shared, whole(THING));
    assert_eq!(
        (since, same.take()),
        (0, vec!["+a@1".to_owned(), "synced".to_owned()])
    );
    let (_, since, new) = narrow(&shared, whole(("d.io", "New")));
    assert_eq!((since, new.take().len()), (0, 2));

    let (_, since, _) = narrow(&shared, Interest::All);
    assert_eq!(since, 1, "the other kind was let go");
}

#[tokio::test]
async fn who_comes_in_the_middle_of_a_list_waits_for_the_next() {
    let shared = shared();
    narrow(&shared, whole(THING));
    let mut listing = shared.begin_list(0);
    shared.apply(others("b", 2), Some(&mut listing));

    let (_, since, recorder) = narrow(&shared, whole(OTHER));
    shared.apply(others("c", 3), Some(&mut listing));
    shared.complete_list(listing, "50");

    assert_eq!(recorder.take(), ["+c@3"], "not all of it");
    list(&shared, [others("b", 2), others("c", 3)], since);
    assert_eq!(recorder.take(), ["+b@2", "synced"]);
}

#[tokio::test]
async fn a_list_that_was_cut_leaves_known_what_was_let_go_before() {
    let shared = shared();
    narrow(&shared, whole(THING));
    list(&shared, [others("b", 2)], 0);

    // It ends before it shows anything.
    drop(shared.begin_list(0));

    let (_, since, _) = narrow(&shared, whole(OTHER));
    assert!(since > 0);
}

#[tokio::test]
async fn what_only_one_who_left_wanted_is_let_go_and_can_be_had_again() {
    let shared = shared();
    let (_, _, stays) = narrow(&shared, whole(THING));
    let (leaves, ..) = narrow(&shared, whole(OTHER));
    let (twin, ..) = narrow(&shared, whole(OTHER));
    list(&shared, [things("a", 1), others("b", 2)], 0);
    stays.take();

    shared.leave(leaves);
    shared.tidy(later());
    assert_eq!(names(&shared), ["a", "b"], "another one wants the same");
    shared.leave(twin);
    shared.tidy(later());

    assert_eq!(names(&shared), ["a"]);
    assert_eq!(stays.take(), Vec::<String>::new(), "it concerns nobody");
    let (_, since, _) = narrow(&shared, whole(OTHER));
    assert!(since > 0);
}

#[tokio::test]
async fn of_owners_that_are_known_only_the_objects_of_these_are_kept() {
    let shared = shared();
    let things = || synced(THING, &["p"]);
    narrow(&shared, controlled(things(), Cut::WHOLE, true));
    let of = |name, version, owner| owned(name, version, ("a.io/v1", "Thing", owner));

    list(&shared, [of("a", 1, "p"), of("b", 2, "q")], 0);

    assert_eq!(names(&shared), ["a"]);
    assert!(!shared.lacks(&owner(THING, "p")));
    assert!(shared.lacks(&owner(THING, "q")), "it may be selected later");
    // Whose the others are is known: no list is needed for one who selects others, unless they are among these.
    let (_, since, others) = narrow(&shared, controlled(things(), Cut::WHOLE, true));
    assert_eq!((since, others.take().len()), (0, 2));
    let (_, since, _) = narrow(&shared, Interest::All);
    assert!(since > 0);
    assert!(!shared.lacks(&owner(OTHER, "q")) && !shared.lacks(&owner(THING, "r")));
}

#[tokio::test]
async fn who_is_selected_late_gets_by_a_list_what_was_let_go_before() {
    let shared = shared();
    let selected_ones: Arc<[View]> = [synced(THING, &[])].into();
    let interest = Interest::Controlled(Controlled {
        by: Arc::clone(&selected_ones),
        cut: Cut::WHOLE,
        with_ownerless: true,
    });
    let (_, _, recorder) = narrow(&shared, interest);
    list(&shared, [things("a", 1)], 0);
    assert_eq!(recorder.take(), ["synced"]);

    let selected = owner(THING, "p");
    selected_ones[0].shared.apply(owner(THING, "p"), None);
    assert!(shared.lacks(&selected));
    list(&shared, [things("a", 1)], 1);

    assert_eq!(recorder.take(), ["+a@1"]);
    assert!(!shared.lacks(&selected));
}

#[tokio::test]
async fn what_was_kept_before_owners_were_known_is_let_go_once_they_are() {
    let shared = shared();
    let selected_ones: Arc<[View]> = [owners(THING)].into();
    let interest = Interest::Controlled(Controlled {
        by: Arc::clone(&selected_ones),
        cut: Cut::WHOLE,
        with_ownerless: true,
    });
    narrow(&shared, interest);
    let of = |name, version, owner| owned(name, version, ("a.io/v1", "Thing", owner));
    list(&shared, [of("a", 1, "p"), of("b", 2, "q")], 0);
    shared.tidy(later());
    assert_eq!(names(&shared), ["a", "b"]);

    list(&selected_ones[0].shared, [owner(THING, "q")], 0);
    selected_ones[0].shared.set_state(ViewState::Live);
    shared.tidy(later());

    assert_eq!(names(&shared), ["b"]);
    assert!(shared.lacks(&owner(THING, "p")));
}
