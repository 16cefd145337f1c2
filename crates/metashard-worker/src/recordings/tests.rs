//! Files of recordings: what they hold, how many there are, and what is left out.

use std::sync::Arc;

use bytes::Bytes;
use metashard_api::resource::Resource;
use metashard_reconcile::{
    controller::Controller,
    memory::Memory,
    object::Object,
    recording::Recording,
    sync::{Candidates, HookResult},
};
use serde_json::{Value, json};

use super::*;

fn resource(plural: &str, kind: &str, group: &str) -> Arc<Resource> {
    Arc::new(Resource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        namespaced: true,
        has_status: true,
    })
}

fn object(value: &Value) -> Arc<Object> {
    Arc::new(Object::parse(value.to_string()).unwrap())
}

/// A pass over a Foo with a Secret.
fn input() -> SyncInput {
    let controller = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": { "name": "c", "uid": "C-1", "resourceVersion": "1", "generation": 1 },
        "spec": {
            "parentResource": { "apiVersion": "ex.io/v1", "resource": "foos" },
            "childResources": [{ "apiVersion": "v1", "resource": "secrets" }],
            "generateSelector": true,
            "hooks": { "sync": { "webhook": { "url": "http://hook/" } } },
        },
    });
    let raw = Bytes::from(controller.to_string());
    let [foos, secrets] = [
        resource("foos", "Foo", "ex.io"),
        resource("secrets", "Secret", ""),
    ];
    let lookup = |_: &str, plural: &str| {
        let all = [&foos, &secrets];
        all.into_iter().find(|it| it.plural == plural).cloned()
    };
    let typed = serde_json::from_value(controller).unwrap();
    let metadata = |name: &str| json!({ "name": name, "namespace": "ns", "uid": name, "resourceVersion": "7" });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata("s"), "data": { "k": "aHVzaA==" },
    });
    SyncInput {
        controller: Arc::new(Controller::compile(&typed, &raw, &lookup).unwrap()),
        resource: Arc::clone(&foos),
        parent: object(
            &json!({ "apiVersion": "ex.io/v1", "kind": "Foo", "metadata": metadata("p/../x") }),
        ),
        candidates: vec![Candidates::from(vec![object(&secret)])],
        revisions: Candidates::default(),
        memory: Memory::default(),
    }
}

struct Recorder {
    folder: tempfile::TempDir,
    recordings: Recordings,
}

impl Recorder {
    fn new(max_bytes: u64, secrets: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let to = RecordTo {
            folder: folder.path().to_owned(),
            max_bytes,
            secrets,
        };
        let replica = ReplicaId::new("r");
        let recordings = Recordings::open(&to, &replica, UNIX_EPOCH).unwrap();
        Self { folder, recordings }
    }

    fn start(&self) -> Tape<'_> {
        self.recordings
            .start(&input(), false, (Duration::ZERO, UNIX_EPOCH))
    }

    /// Names and contents of the files, the oldest first.
    fn files(&self) -> Vec<(String, String)> {
        let files = fs::read_dir(self.folder.path().join("r")).unwrap();
        let mut files: Vec<_> = files
            .map(|file| {
                let path = file.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                (name, fs::read_to_string(path).unwrap())
            })
            .collect();
        files.sort_unstable();
        files
    }
}

fn answer() -> Fed {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "stringData": { "k": "hush" },
    });
    let answer = json!({ "status": {}, "children": [secret] });
    Fed::Hook(HookResult::Answer(Bytes::from(answer.to_string())))
}

#[test]
fn a_step_is_on_record_while_its_pass_goes_on() {
    let recorder = Recorder::new(1 << 20, true);
    let mut tape = recorder.start();
    let begun = recorder.files();
    tape.fed(&answer());

    let files = recorder.files();

    assert!(
        Recording::read(begun[0].1.as_bytes())
            .unwrap()
            .fed
            .is_empty()
    );
    let recording = Recording::read(files[0].1.as_bytes()).unwrap();
    assert_eq!((recording.fed.len(), recording.verdict), (1, None));
    assert!(files[0].1.contains("aHVzaA==") && files[0].1.contains("hush"));
}

#[test]
fn values_of_secrets_are_not_in_files_unless_asked_for() {
    let recorder = Recorder::new(1 << 20, false);
    let mut tape = recorder.start();
    tape.fed(&answer());

    let (_, text) = &recorder.files()[0];

    assert!(
        !text.contains("aHVzaA==") && !text.contains("hush"),
        "{text}"
    );
    assert!(Recording::read(text.as_bytes()).unwrap().redacted);
}

#[test]
fn the_oldest_files_make_room() {
    let recorder = Recorder::new(1 << 20, true);
    drop(recorder.start());
    let size = recorder.files()[0].1.len() as u64;
    drop(recorder);

    let recorder = Recorder::new(2 * size + 1, true);
    for _ in 0..5 {
        drop(recorder.start());
    }

    let names: Vec<_> = recorder.files().into_iter().map(|it| it.0).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].contains("-00000003-") && names[1].contains("-00000004-"));
}

#[test]
fn files_of_an_earlier_process_count() {
    let recorder = Recorder::new(1 << 20, true);
    drop(recorder.start());
    let size = recorder.files()[0].1.len() as u64;
    let to = RecordTo {
        folder: recorder.folder.path().to_owned(),
        max_bytes: size,
        secrets: true,
    };
    let later = UNIX_EPOCH + Duration::from_secs(1);

    let recordings = Recordings::open(&to, &ReplicaId::new("r"), later).unwrap();
    drop(recordings.start(&input(), false, (Duration::ZERO, later)));

    let names: Vec<_> = recorder.files().into_iter().map(|it| it.0).collect();
    assert_eq!(names.len(), 1);
    assert!(names[0].starts_with("0000000001000-00000000-"), "{names:?}");
}

#[test]
fn a_pass_that_is_too_large_is_not_recorded() {
    let recorder = Recorder::new(10, true);
    let mut tape = recorder.start();
    tape.fed(&answer());
    drop(tape);

    assert_eq!(recorder.files(), []);
}

#[test]
fn a_name_of_a_file_cannot_lead_out_of_the_folder() {
    let recorder = Recorder::new(1 << 20, true);
    drop(recorder.start());

    let (name, _) = &recorder.files()[0];

    assert_eq!(name, "0000000000000-00000000-c_Foo_ns_p..x.jsonl");
}
