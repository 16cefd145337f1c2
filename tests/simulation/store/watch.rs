//! Watches: what happens in a collection, line by line.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::{Response, StatusCode, body::Frame, header};
use metashard_runtime::task;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{
    Store,
    http::{Body, refusal},
    request::Target,
    status,
};
use crate::plan::Weather;

/// Lines that wait for a slow client; the watch waits once it is full.
const LINES: usize = 64;

/// How often a watch says how far it is.
const BOOKMARK: Duration = Duration::from_secs(5);

/// How late a late watch is.
const LATE: Duration = Duration::from_millis(1_200);

type Sender = mpsc::Sender<Result<Frame<Bytes>, Infallible>>;

/// The client does not read any more.
struct Gone;

/// Opens a watch.
pub(super) fn answer(store: &Store, target: &Target, streaming: bool) -> Response<Body> {
    let begins_with_list = target.get("sendInitialEvents") == "true";
    if begins_with_list && !streaming {
        return refusal(422, "Invalid");
    }
    let (lines, body) = mpsc::channel(LINES);
    let watch = Watch {
        store: store.clone(),
        key: target.key.clone(),
        kind: json!({ "apiVersion": target.api_version, "kind": "Bookmark" }),
        version: target.get("resourceVersion").parse().unwrap_or(0),
        lines,
    };
    let life = target.get("timeoutSeconds").parse().unwrap_or(300);
    task::spawn("watch", async move {
        let life = Duration::from_secs(life);
        drop(tokio::time::timeout(life, watch.run(begins_with_list)).await);
    });
    let body = StreamBody::new(ReceiverStream::new(body)).boxed();
    let answer = Response::builder()
        .status(StatusCode::OK)
        .header(header::CONTENT_TYPE, "application/json");
    answer.body(body).expect("it is an answer")
}

struct Watch {
    store: Store,
    key: super::Key,
    kind: Value,
    version: u64,
    lines: Sender,
}

impl Watch {
    async fn run(mut self, begins_with_list: bool) -> Result<(), Gone> {
        let mut versions = self.store.0.version.subscribe();
        let mut ended = self.store.0.ended.subscribe();
        if begins_with_list {
            self.list().await?;
        }
        loop {
            versions.mark_unchanged();
            if self.store.is(Weather::LateWatches) {
                tokio::time::sleep(LATE).await;
            }
            let Some((version, changes)) = self.store.changes(&self.key, self.version) else {
                let gone = status(410, "Expired", "too old resource version");
                return self.say("ERROR", &gone.to_string()).await;
            };
            for change in changes {
                let object = std::str::from_utf8(&change.object).expect("it was text");
                self.say(change.kind, object).await?;
            }
            self.version = version;
            tokio::select! {
                biased;
                _ = ended.changed() => return Ok(()),
                _ = versions.changed() => {}
                () = tokio::time::sleep(BOOKMARK) => self.bookmark(false).await?,
                () = self.lines.closed() => return Ok(()),
            }
        }
    }

    /// What is there, and the bookmark that ends it.
    async fn list(&mut self) -> Result<(), Gone> {
        let (version, objects) = self.store.list(&self.key);
        for object in objects {
            self.say("ADDED", &object.to_string()).await?;
        }
        self.version = version;
        self.bookmark(true).await
    }

    async fn bookmark(&self, ends_list: bool) -> Result<(), Gone> {
        let mut object = self.kind.clone();
        object["metadata"] = json!({ "resourceVersion": self.version.to_string() });
        if ends_list {
            object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        self.say("BOOKMARK", &object.to_string()).await
    }

    async fn say(&self, kind: &str, object: &str) -> Result<(), Gone> {
        let line = format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
        let sent = self.lines.send(Ok(Frame::data(Bytes::from(line)))).await;
        sent.map_err(|_| Gone)
    }
}
