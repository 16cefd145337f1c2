//! A recording, run again, asks for the same writes, and shows no values that it was not asked to keep.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::{
    recording::form::Raw,
    sync::{Candidates, HookResult},
};

/// A recording of a pass that was cut short before its first step.
fn started() -> Vec<u8> {
    let object = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": {"name": "c", "uid": "C-1", "resourceVersion": "1", "generation": 1},
        "spec": {
            "parentResource": {"apiVersion": "ex.io/v1", "resource": "foos"},
            "generateSelector": true,
            "hooks": {"sync": {"webhook": {"url": "http://hook/"}}},
        },
    });
    let resource = Arc::new(Resource {
        group: "ex.io".to_owned(),
        version: "v1".to_owned(),
        plural: "foos".to_owned(),
        kind: "Foo".to_owned(),
        namespaced: true,
        has_status: true,
    });
    let raw = Bytes::from(object.to_string());
    let lookup = |_: &str, plural: &str| (plural == "foos").then(|| Arc::clone(&resource));
    let controller =
        Controller::compile(&serde_json::from_value(object).unwrap(), &raw, &lookup).unwrap();
    let parent = r#"{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"p","namespace":"ns","uid":"P","resourceVersion":"7"},"spec":{"n":1.50}}"#;
    let input = SyncInput {
        controller: Arc::new(controller),
        resource: Arc::clone(&resource),
        parent: Arc::new(Object::parse(parent).unwrap()),
        candidates: Vec::new(),
        revisions: Candidates::default(),
        memory: memory::Memory::default(),
    };
    let origin = Origin {
        at: "2026-01-01T00:00:00Z",
        replica: "r",
        observed: false,
    };
    let mut line = Vec::new();
    Scribe::default()
        .start(
            &origin,
            &input,
            Some(Duration::from_millis(1500)),
            &mut line,
        )
        .unwrap();
    line
}

fn fed(fed: &Fed) -> Vec<u8> {
    let mut line = Vec::new();
    Scribe::default().fed(fed, &mut line).unwrap();
    line
}

/// Where lines go; tells how much has come.
struct Sink<'a>(&'a Cell<usize>);

impl io::Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.set(self.0.get() + bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn of_many_objects_one_is_written_before_the_next_is_looked_at() {
    let secret = |n: usize| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "data": {"k": "aHVzaA=="},
            "metadata": {"name": format!("s{n}"), "uid": format!("S-{n}"), "resourceVersion": "7"},
        });
        Ok(Some(Arc::new(Object::parse(secret.to_string()).unwrap())))
    };
    let read = Fed::Written((0..100).map(secret).collect());
    let (come, seen) = (Cell::new(0), RefCell::new(Vec::new()));
    let hide = |_: &str| {
        seen.borrow_mut().push(come.get());
        "hidden".to_owned()
    };

    let scribe = Scribe { hide: Some(&hide) };
    scribe.fed(&read, &mut Sink(&come)).unwrap();

    let seen = seen.into_inner();
    assert_eq!(seen.len(), 100);
    assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
}

#[test]
fn bytes_are_the_same_after_a_trip_whatever_they_are() {
    for bytes in [
        &br#"{"n":1.50,"t":"<\u00e9>"}"#[..],
        b"{\n}\n",
        b" {}",
        b"",
        b"not json",
        b"\"text\"",
        b"[1]",
        b"null",
        b"{\xff}",
        b"{\"a\":1}{\"b\":2}",
    ] {
        let line = serde_json::to_vec(&Raw::Told(bytes, None)).unwrap();
        assert!(!line.contains(&b'\n'));
        let raw: Raw<'_> = serde_json::from_slice(&line).unwrap();
        assert_eq!(raw.bytes(), bytes, "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn a_pass_without_a_last_line_was_cut_short_and_a_half_line_is_passed_over() {
    let mut bytes = started();
    let answer = HookResult::Answer(Bytes::from_static(b"{}"));
    let fed = fed(&Fed::Hook(answer));
    bytes.extend(&fed[..fed.len() / 2]);

    let recording = Recording::read(&bytes).unwrap();

    assert_eq!((recording.fed.len(), &recording.verdict), (0, &None));
    assert_eq!(recording.now, Some(Duration::from_millis(1500)));
    let replayed = recording.replay();
    assert_eq!((replayed.calls.len(), replayed.departs), (1, None));
    assert_eq!(replayed.outcome.verdict.as_str(), "no_authority");
}

#[test]
fn a_recording_that_another_program_would_go_on_with_says_so() {
    let mut bytes = started();
    bytes.extend(fed(&Fed::Written(Vec::new())));

    let replayed = Recording::read(&bytes).unwrap().replay();

    assert_eq!(
        replayed.departs.as_deref(),
        Some("it asks for a call of the sync hook")
    );
}

#[test]
fn what_is_no_recording_is_refused() {
    for (bytes, why) in [
        (b"".to_vec(), "line 1"),
        (b"{}\n".to_vec(), "line 1"),
        (fed(&Fed::Written(Vec::new())), "first line"),
        (
            String::from_utf8(started())
                .unwrap()
                .replace(r#""form":1"#, r#""form":2"#)
                .into_bytes(),
            "form 2",
        ),
    ] {
        let error = Recording::read(&bytes).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
