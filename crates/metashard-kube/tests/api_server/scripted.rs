//! Answers that no real API server gives on demand, from a scripted one.

use std::sync::Arc;

use anyhow::{Context, ensure};
use metashard_kube::{
    identity::Identity,
    informer::{Informers, View, ViewKey},
};
use metashard_runtime::task;
use metashard_testkit::wait::eventually;
use prometheus::Registry;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::kit::{Recorder, SOON, config_maps, connect};

/// One answer: what the request line must contain, and the lines of the body, after which the connection stays open
/// or ends.
struct Answer {
    expects: &'static str,
    status: &'static str,
    lines: Vec<String>,
    stays_open: bool,
}

/// Answers one request after the other, each on a connection of its own; tells the request lines.
async fn serve(
    listener: TcpListener,
    script: Vec<Answer>,
    told: mpsc::Sender<String>,
) -> anyhow::Result<()> {
    let mut open = Vec::new();
    for answer in script {
        let (mut stream, _) = listener.accept().await?;
        let request = read_request(&mut stream).await?;
        ensure!(
            request.contains(answer.expects),
            "{request} is not {}",
            answer.expects
        );
        told.send(request).await?;
        let head = format!(
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n",
            answer.status
        );
        stream.write_all(head.as_bytes()).await?;
        for line in answer.lines {
            stream.write_all(format!("{line}\n").as_bytes()).await?;
        }
        if answer.stays_open {
            open.push(stream);
        }
    }
    std::future::pending::<()>().await;
    drop(open);
    Ok(())
}

/// The request line of a request without a body.
async fn read_request(stream: &mut TcpStream) -> anyhow::Result<String> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await?);
    }
    let text = String::from_utf8(text)?;
    Ok(text.lines().next().context("a request line")?.to_owned())
}

fn object(name: &str, version: u64) -> String {
    format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}","resourceVersion":"{version}"}}}}"#
    )
}

fn line(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

fn bookmark(version: u64, ends_list: bool) -> String {
    let annotations = if ends_list {
        r#","annotations":{"k8s.io/initial-events-end":"true"}"#
    } else {
        ""
    };
    line(
        "BOOKMARK",
        &format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"{annotations}}}}}"#
        ),
    )
}

fn watch(expects: &'static str, lines: Vec<String>, stays_open: bool) -> Answer {
    Answer {
        expects,
        status: "200 OK",
        lines,
        stays_open,
    }
}

/// A view that is fed by a script.
struct Scene {
    view: View,
    recorder: Arc<Recorder>,
    serving: tokio::task::JoinHandle<anyhow::Result<()>>,
    requests: mpsc::Receiver<String>,
    /// The request lines so far.
    lines: Vec<String>,
    _kubeconfig: tempfile::TempDir,
}

impl Scene {
    async fn start(script: Vec<Answer>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let address = listener.local_addr()?;
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}], \
             users: [{{name: u, user: {{token: t}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}"
        );
        std::fs::write(&kubeconfig, text)?;
        let (told, requests) = mpsc::channel(64);
        let serving = task::spawn("script", serve(listener, script, told));
        let clients = connect(kubeconfig, &Registry::new()).await?;
        let recorder = Arc::new(Recorder::default());
        let key = ViewKey::new(Identity::process(), Arc::new(config_maps()));
        let view = Informers::new(&clients).open(key, Some(Arc::clone(&recorder) as _));
        Ok(Self {
            view,
            recorder,
            serving,
            requests,
            lines: Vec::new(),
            _kubeconfig: folder,
        })
    }

    /// Waits until `n_requests` were answered and the view shows exactly `names`; returns what was told since.
    async fn shows(&mut self, n_requests: usize, names: &[&str]) -> anyhow::Result<Vec<String>> {
        let result = eventually(SOON, "a step of the script", async || {
            while let Ok(line) = self.requests.try_recv() {
                self.lines.push(line);
            }
            ensure!(!self.serving.is_finished(), "the script ended early");
            ensure!(
                self.lines.len() == n_requests,
                "only {} requests: {:?}",
                self.lines.len(),
                self.lines
            );
            let mut shown: Vec<_> = self
                .view
                .list()
                .iter()
                .map(|object| object.name().to_owned())
                .collect();
            shown.sort_unstable();
            ensure!(shown == names, "it shows {shown:?}");
            Ok(())
        })
        .await;
        if result.is_err() && self.serving.is_finished() {
            (&mut self.serving).await??;
        }
        result?;
        Ok(self.recorder.take())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Runs a view against a script until it shows exactly `names`; returns what it was told.
async fn run(script: Vec<Answer>, names: &[&str]) -> anyhow::Result<Vec<String>> {
    let n_requests = script.len();
    Scene::start(script).await?.shows(n_requests, names).await
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_skipped_and_the_watch_goes_on() -> anyhow::Result<()> {
    let nameless = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"labels":{"a":"b"}}}"#;
    let script = vec![watch(
        "sendInitialEvents=true",
        vec![
            line("ADDED", &object("one", 1)),
            line("ADDED", nameless),
            "<html>".to_owned(),
            bookmark(5, true),
            line("MODIFIED", r#"{"kind":"#),
            line("ADDED", &object("two", 6)),
        ],
        true,
    )];

    let told = run(script, &["one", "two"]).await?;

    assert_eq!(told, ["+one", "synced", "+two"]);
    Ok(())
}

#[tokio::test]
async fn a_version_that_is_too_old_leads_to_a_list_and_no_false_events() -> anyhow::Result<()> {
    let gone = r#"{"kind":"Status","status":"Failure","reason":"Expired","message":"too old resource version","code":410}"#;
    let script = vec![
        watch(
            "sendInitialEvents=true",
            vec![
                line("ADDED", &object("one", 1)),
                line("ADDED", &object("two", 2)),
                bookmark(5, true),
                line("ERROR", gone),
            ],
            false,
        ),
        watch(
            "sendInitialEvents=true",
            vec![line("ADDED", &object("one", 1)), bookmark(9, true)],
            false,
        ),
        Answer {
            expects: "resourceVersion=9",
            status: "410 Gone",
            lines: vec![gone.to_owned()],
            stays_open: false,
        },
        watch(
            "sendInitialEvents=true",
            vec![line("ADDED", &object("one", 1)), bookmark(12, true)],
            true,
        ),
    ];

    let told = run(script, &["one"]).await?;

    assert_eq!(told, ["+one", "+two", "synced", "-two"]);
    Ok(())
}

#[tokio::test]
async fn nothing_is_deleted_by_a_list_that_was_cut_and_a_second_cut_leads_to_pages()
-> anyhow::Result<()> {
    let page = |items: &[String], next: &str| {
        format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"20","continue":"{next}"}},"items":[{}]}}"#,
            items.join(",")
        )
    };
    let bare = |name: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}","resourceVersion":"1"}}}}"#
        )
    };
    let whole = |lines: Vec<String>| [lines, vec![bookmark(5, true)]].concat();
    let script = vec![
        watch(
            "sendInitialEvents=true",
            whole(vec![
                line("ADDED", &object("one", 1)),
                line("ADDED", &object("two", 1)),
            ]),
            false,
        ),
        Answer {
            expects: "resourceVersion=5",
            status: "410 Gone",
            lines: vec![],
            stays_open: false,
        },
        watch(
            "sendInitialEvents=true",
            vec![line("ADDED", &object("two", 1))],
            false,
        ),
        watch(
            "sendInitialEvents=true",
            vec![line("ADDED", &object("two", 1))],
            false,
        ),
        watch("limit=500", vec![page(&[bare("one")], "next")], false),
        watch("continue=next", vec![page(&[bare("two")], "")], false),
        watch(
            "resourceVersion=20",
            vec![line("ADDED", &object("three", 21))],
            true,
        ),
    ];

    let told = run(script, &["one", "three", "two"]).await?;

    assert_eq!(told, ["+one", "+two", "synced", "+three"]);
    Ok(())
}

#[tokio::test]
async fn a_database_that_went_back_is_noticed_and_listed_without_false_deletions()
-> anyhow::Result<()> {
    let script = vec![
        watch(
            "sendInitialEvents=true",
            vec![
                line("ADDED", &object("one", 90)),
                line("ADDED", &object("two", 95)),
                bookmark(100, true),
                bookmark(40, false),
            ],
            false,
        ),
        watch(
            "sendInitialEvents=true",
            vec![
                line("ADDED", &object("one", 30)),
                line("ADDED", &object("two", 31)),
                bookmark(41, true),
                line("ADDED", &object("three", 42)),
            ],
            true,
        ),
    ];

    let told = run(script, &["one", "three", "two"]).await?;

    assert_eq!(told, ["+one", "+two", "synced", "~one", "~two", "+three"]);
    Ok(())
}

#[tokio::test]
async fn a_streaming_list_without_an_end_is_given_up_for_pages() -> anyhow::Result<()> {
    let script = vec![
        // As a server that does not know the parameters: a plain watch.
        watch(
            "sendInitialEvents=true",
            vec![line("ADDED", &object("one", 1))],
            true,
        ),
        watch(
            "limit=500",
            vec![r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#.to_owned()],
            false,
        ),
        watch(
            "resourceVersion=7",
            vec![line("ADDED", &object("two", 8))],
            true,
        ),
    ];

    let told = run(script, &["two"]).await?;

    assert_eq!(told, ["+one", "-one", "synced", "+two"]);
    Ok(())
}

#[tokio::test]
async fn a_refresh_whose_list_fails_is_fulfilled_by_a_later_one() -> anyhow::Result<()> {
    let page = |names: &[&str]| {
        let items: Vec<_> = names.iter().map(|name| object(name, 1)).collect();
        vec![format!(
            r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
            items.join(",")
        )]
    };
    let refused = |expects, status| Answer {
        expects,
        status,
        lines: vec![],
        stays_open: false,
    };
    let mut scene = Scene::start(vec![
        refused("sendInitialEvents=true", "422 Unprocessable Entity"),
        watch("limit=500", page(&["one"]), false),
        watch("resourceVersion=7", vec![], true),
        refused("limit=500", "500 Internal Server Error"),
        watch("limit=500", page(&["two"]), false),
        watch("resourceVersion=7", vec![], true),
    ])
    .await?;
    scene.shows(3, &["one"]).await?;

    tokio::time::timeout(SOON, scene.view.refresh()).await?;

    assert_eq!(scene.shows(6, &["two"]).await?, ["+two", "-one"]);
    Ok(())
}
