//! Tests of what a view's users see.

mod narrow;

use std::sync::Arc;

use bytes::Bytes;
use metashard_api::endpoint::SourceKind;

use super::*;
use crate::{
    identity::Identity,
    informer::{Trouble, TroubleKind},
};

/// Writes down what it is told.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Subscriber for Recorder {
    fn on_event(&self, event: Event) {
        let text = match event {
            Event::Applied { old: None, new } => {
                format!("+{}@{}", new.name(), new.resource_version())
            }
            Event::Applied {
                old: Some(old),
                new,
            } => {
                format!(
                    "{}@{}>{}",
                    new.name(),
                    old.resource_version(),
                    new.resource_version()
                )
            }
            Event::Deleted { old } => format!("-{}@{}", old.name(), old.resource_version()),
            Event::Synced => "synced".to_owned(),
        };
        self.0.lock().push(text);
    }
}

impl Recorder {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

fn shared() -> Shared {
    let resource = SourceKind::ConfigMap.resource();
    Shared::new(
        ViewKey::new(Identity::process(), Arc::new(resource)),
        MonoTime::default(),
    )
}

fn object(name: &str, uid: &str, version: u64) -> Object {
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"a","name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#
    );
    Object::parse(Bytes::from(text)).unwrap()
}

fn join<S: Subscriber + 'static>(shared: &Shared, subscriber: &Arc<S>) -> UserId {
    let subscriber = Arc::clone(subscriber) as Arc<dyn Subscriber>;
    shared.join(Interest::All, Some(subscriber)).0
}

/// A view that has listed `one` and `two`.
fn listed() -> (Shared, Arc<Recorder>) {
    let shared = shared();
    let recorder = Arc::new(Recorder::default());
    join(&shared, &recorder);
    let mut listing = shared.begin_list(0);
    shared.apply(object("one", "u1", 1), Some(&mut listing));
    shared.apply(object("two", "u2", 2), Some(&mut listing));
    shared.complete_list(listing, "5");
    (shared, recorder)
}

#[test]
fn a_first_list_tells_every_object_then_that_it_is_complete() {
    let (_, recorder) = listed();
    assert_eq!(recorder.take(), ["+one@1", "+two@2", "synced"]);
}

#[test]
fn a_list_of_what_is_known_tells_nothing_and_keeps_the_objects() {
    let (shared, recorder) = listed();
    recorder.take();
    let before = shared.store().get("a", "one").cloned().unwrap();

    let mut listing = shared.begin_list(1);
    shared.apply(object("two", "u2", 2), Some(&mut listing));
    shared.apply(object("one", "u1", 1), Some(&mut listing));
    shared.complete_list(listing, "6");

    assert_eq!(recorder.take(), Vec::<String>::new());
    assert!(Arc::ptr_eq(
        &before,
        shared.store().get("a", "one").unwrap()
    ));
}

#[test]
fn what_a_list_does_not_show_is_deleted_only_when_it_is_complete() {
    let (shared, recorder) = listed();
    recorder.take();

    let mut listing = shared.begin_list(1);
    shared.apply(object("two", "u2", 3), Some(&mut listing));
    assert_eq!(recorder.take(), ["two@2>3"]);
    assert!(shared.store().get("a", "one").is_some());
    shared.complete_list(listing, "6");

    assert_eq!(recorder.take(), ["-one@1"]);
}

#[test]
fn an_older_state_counts_only_if_a_list_shows_it() {
    let (shared, recorder) = listed();
    shared.apply(object("one", "u1", 8), None);
    recorder.take();

    shared.apply(object("one", "u1", 7), None);
    assert_eq!(recorder.take(), Vec::<String>::new());
    let mut listing = shared.begin_list(1);
    shared.apply(object("one", "u1", 7), Some(&mut listing));

    assert_eq!(recorder.take(), ["one@8>7"]);
}

#[test]
fn an_object_made_anew_unseen_is_a_deletion_and_a_new_object() {
    let (shared, recorder) = listed();
    recorder.take();

    shared.apply(object("one", "other", 9), None);

    assert_eq!(recorder.take(), ["-one@1", "+one@9"]);
}

#[test]
fn a_late_subscriber_is_told_what_is_there_and_a_former_one_nothing() {
    let (shared, _) = listed();
    let late = Arc::new(Recorder::default());

    let id = join(&shared, &late);
    let mut told = late.take();
    told.sort_unstable();
    assert_eq!(told, ["+one@1", "+two@2", "synced"]);
    shared.delete("a", "one");
    assert_eq!(late.take(), ["-one@1"]);

    shared.leave(id);
    shared.delete("a", "two");
    assert_eq!(late.take(), Vec::<String>::new());
}

#[test]
fn a_subscriber_that_panics_keeps_nothing_from_the_others() {
    struct Bad;
    impl Subscriber for Bad {
        fn on_event(&self, _: Event) {
            panic!("bad subscriber");
        }
    }
    let shared = shared();
    let recorder = Arc::new(Recorder::default());
    join(&shared, &Arc::new(Bad));
    join(&shared, &recorder);

    shared.apply(object("one", "u1", 1), None);

    assert_eq!(recorder.take(), ["+one@1"]);
}

/// Looks at its view when it is told that the view stands otherwise.
#[derive(Default)]
struct Looker {
    shared: Mutex<std::sync::Weak<Shared>>,
    saw: Mutex<Vec<bool>>,
}

impl Subscriber for Looker {
    fn on_event(&self, _event: Event) {}

    fn on_state(&self) {
        if let Some(shared) = self.shared.lock().upgrade() {
            let is_live = matches!(*shared.state().borrow(), ViewState::Live);
            self.saw.lock().push(is_live);
        }
    }
}

/// So nobody who waits for a view needs to look at it again and again, also if there is no object in it.
#[test]
fn who_is_told_that_a_view_stands_otherwise_finds_it_so() {
    let shared = Arc::new(shared());
    let looker = Arc::new(Looker::default());
    *looker.shared.lock() = Arc::downgrade(&shared);
    join(&shared, &looker);
    let trouble = Trouble {
        kind: TroubleKind::Forbidden,
        message: "no right".into(),
        synced: false,
    };

    shared.set_state(ViewState::Failing(trouble.clone()));
    shared.set_state(ViewState::Failing(trouble));
    shared.complete_list(shared.begin_list(0), "5");
    shared.set_state(ViewState::Live);
    shared.set_state(ViewState::Live);

    assert_eq!(
        *looker.saw.lock(),
        [false, true],
        "told of each change, once"
    );
}
