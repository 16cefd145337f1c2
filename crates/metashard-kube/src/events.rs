//! Kubernetes Events: told to people, never waited for.

mod aggregate;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Method;
use k8s_openapi::{
    api::core::v1::{Event as Body, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::{Timestamp, Unit},
};
use metashard_api::{id::ControllerKind, resource::Resource};
use metashard_fleet::time::MonoTime;
use metashard_reconcile::object::Object;
use metashard_runtime::{log::chain, task};
use serde_json::json;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use self::aggregate::{Aggregator, Decision};
use crate::{
    client::{Call, Clients},
    error::{Cause, Error},
    identity::Identity,
};

/// Events that wait to be written; further ones are dropped.
const MAX_WAITING: usize = 1000;
/// An Event is not worth more time than this.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often the log warns of Events that are not written.
const TOLD_EVERY: Duration = Duration::from_hours(1);

/// How Events are written.
#[derive(Debug, Clone)]
pub struct Options {
    /// `source.component`, such as `metashard_api::names::EVENT_COMPONENT`.
    pub component: String,
    /// Name of this replica: `reportingInstance`.
    pub instance: String,
    /// Events about one object that may be written at once. Default: 25, as the peer's `--events-burst`.
    pub burst: u32,
    /// Events about one object per second after that. Default: one in 5 min, as the peer's `--events-qps`.
    pub qps: f64,
}

/// One Event to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Whether its type is `Warning` and not `Normal`.
    pub is_warning: bool,
    /// One of `metashard_api::names::event`, or a hook's own word.
    pub reason: Cow<'static, str>,
    /// For people. What is longer than 1,024 bytes is cut.
    pub message: String,
}

/// The object that an Event is about.
#[derive(Debug, Clone, PartialEq)]
pub struct About(ObjectReference);

/// Takes Events and writes them later. Cheap to clone; its task ends with the last clone.
///
/// Events about controllers go before all others: they are few, people wait for them, and what the parents of other
/// controllers suffer must not keep them back.
///
/// The same Event again raises the count of the first, which is written now and then; many that differ in their message only
/// become one.
#[derive(Clone)]
pub struct Recorder {
    /// `None`: nothing is written.
    send: Option<Lanes<mpsc::Sender<Told>>>,
    clients: Clients,
}

type Told = (Arc<About>, Event);

/// The two ends of what waits.
#[derive(Clone)]
struct Lanes<T> {
    /// About controllers.
    first: T,
    /// About all else.
    rest: T,
}

impl Options {
    /// The peer's limits, for `component` on the replica `instance`.
    pub fn new(component: impl Into<String>, instance: impl Into<String>) -> Self {
        Self {
            component: component.into(),
            instance: instance.into(),
            burst: 25,
            qps: 1.0 / 300.0,
        }
    }
}

impl About {
    /// About `object`.
    pub fn object(object: &Object) -> Self {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Self(ObjectReference {
            api_version: text(object.api_version()),
            kind: text(object.kind()),
            namespace: object.namespace().map(str::to_owned),
            name: text(object.name()),
            uid: text(object.uid()),
            resource_version: text(object.resource_version()),
            field_path: None,
        })
    }

    /// About the object of this name that was last seen with this uid.
    pub fn named(resource: &Resource, namespace: Option<&str>, name: &str, uid: &str) -> Self {
        Self(ObjectReference {
            api_version: Some(resource.api_version()),
            kind: Some(resource.kind.clone()),
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()).filter(|uid| !uid.is_empty()),
            resource_version: None,
            field_path: None,
        })
    }

    fn uid(&self) -> &str {
        self.0.uid.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.0.name.as_deref().unwrap_or_default()
    }

    fn is_of_controller(&self) -> bool {
        let kinds = [ControllerKind::Composite, ControllerKind::Decorator];
        let named = |kind: &ControllerKind| self.0.kind.as_deref() == Some(kind.as_str());
        kinds.into_iter().find(named).is_some_and(|kind| {
            let resource = Resource::of_controllers(kind);
            self.0.api_version == Some(resource.api_version())
        })
    }

    /// Events about cluster-scoped objects are kept in `default`.
    fn namespace(&self) -> &str {
        self.0.namespace.as_deref().unwrap_or("default")
    }
}

impl Recorder {
    /// Starts the task that writes.
    pub fn start(clients: &Clients, options: Options) -> Self {
        let (first, receive_first) = mpsc::channel(MAX_WAITING);
        let (rest, receive_rest) = mpsc::channel(MAX_WAITING);
        let receive = Lanes {
            first: receive_first,
            rest: receive_rest,
        };
        let writer = Writer {
            aggregator: Aggregator::new(options.burst, options.qps),
            told: None,
            clients: clients.clone(),
            options,
        };
        // It ends by itself once the last sender is gone.
        drop(task::spawn("events", writer.run(receive)));
        Self {
            send: Some(Lanes { first, rest }),
            clients: clients.clone(),
        }
    }

    /// Writes no Events: for a process that only observes what would be written.
    pub fn silent(clients: &Clients) -> Self {
        Self {
            send: None,
            clients: clients.clone(),
        }
    }

    /// Takes an Event. Returns at once; if too many wait already, it is dropped and counted.
    pub fn record(&self, about: &Arc<About>, event: &Event) {
        let Some(send) = &self.send else {
            debug!(object = about.name(), reason = %event.reason, message = event.message, "Event not told");
            return;
        };
        let lane = if about.is_of_controller() {
            &send.first
        } else {
            &send.rest
        };
        if lane.try_send((Arc::clone(about), event.clone())).is_err() {
            self.clients.metrics().event_dropped("queue_full");
        }
    }
}

impl Lanes<mpsc::Receiver<Told>> {
    /// What is to be told next; `None` once nobody can tell any more.
    async fn recv(&mut self) -> Option<Told> {
        tokio::select! {
            biased;
            Some(told) = self.first.recv() => Some(told),
            Some(told) = self.rest.recv() => Some(told),
            else => None,
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

struct Writer {
    clients: Clients,
    options: Options,
    aggregator: Aggregator,
    /// When the log last warned of an Event that was not written.
    told: Option<MonoTime>,
}

impl Writer {
    async fn run(mut self, mut receive: Lanes<mpsc::Receiver<Told>>) {
        while let Some((about, event)) = receive.recv().await {
            let now = self.clients.clock().now().mono;
            match self.aggregator.take(about.uid(), &event, now) {
                Decision::Drop => self.clients.metrics().event_dropped("rate_limited"),
                Decision::Hold => self.clients.metrics().event_dropped("repeated"),
                Decision::Create { message } => self.create(&about, &event, message, 1).await,
                Decision::Count {
                    message,
                    name,
                    count,
                } => {
                    let missing = self.raise_count(&about, &name, &message, count).await;
                    if missing {
                        self.create(&about, &event, message, count).await;
                    }
                }
            }
        }
    }

    async fn create(&mut self, about: &About, event: &Event, message: String, count: i32) {
        let body = self.body(about, event, message, count);
        let path = format!("/api/v1/namespaces/{}/events", about.namespace());
        let name = body.metadata.name.clone().unwrap_or_default();
        let encoded = serde_json::to_vec(&body).map_err(|error| Error {
            method: Method::POST,
            path: path.clone(),
            cause: Cause::Answer(error.to_string()),
        });
        let result = match encoded {
            Ok(encoded) => self.send(Method::POST, path, encoded.into()).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => self.aggregator.written(name, count),
            Err(error) => self.failed(&error),
        }
    }

    /// Whether the Event is there no longer: the API server keeps them for an hour.
    async fn raise_count(&mut self, about: &About, name: &str, message: &str, count: i32) -> bool {
        let body = json!({ "count": count, "message": message, "lastTimestamp": self.now() });
        let path = format!("/api/v1/namespaces/{}/events/{name}", about.namespace());
        match self
            .send(Method::PATCH, path, Bytes::from(body.to_string()))
            .await
        {
            Ok(()) => false,
            Err(error) if error.is_not_found() => true,
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    async fn send(&self, method: Method, path: String, body: Bytes) -> Result<(), Error> {
        let identity = Identity::process();
        let is_patch = method == Method::PATCH;
        let mut call = Call::new(&identity, method, path)
            .body(body)
            .within(TIMEOUT);
        if is_patch {
            call = call.content_type("application/merge-patch+json");
        }
        self.clients.general().call(call).await.map(drop)
    }

    /// People are told in the log, but not of each: where one is refused, most are.
    fn failed(&mut self, error: &Error) {
        self.clients.metrics().event_dropped("refused");
        let now = self.clients.clock().now().mono;
        if self.told.is_none_or(|at| now.since(at) >= TOLD_EVERY) {
            self.told = Some(now);
            warn!(
                error = chain(error),
                "Event not written; further ones are told of at level debug"
            );
        } else {
            debug!(error = chain(error), "Event not written");
        }
    }

    fn body(&self, about: &About, event: &Event, message: String, count: i32) -> Body {
        let now = self.now();
        Body {
            metadata: ObjectMeta {
                name: Some(self.name(about)),
                namespace: Some(about.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: about.0.clone(),
            type_: Some(
                if event.is_warning {
                    "Warning"
                } else {
                    "Normal"
                }
                .to_owned(),
            ),
            reason: Some(event.reason.to_string()),
            message: Some(message),
            source: Some(EventSource {
                component: Some(self.options.component.clone()),
                host: None,
            }),
            reporting_component: Some(self.options.component.clone()),
            reporting_instance: Some(self.options.instance.clone()),
            count: Some(count),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            ..Body::default()
        }
    }

    /// The object's name and the time, as client-go names them; at most 253 bytes long.
    fn name(&self, about: &About) -> String {
        let wall = self.clients.clock().wall();
        let nanos = wall
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos();
        let name: String = about.name().chars().take(230).collect();
        format!("{}.{nanos:x}", name.trim_end_matches(['-', '.']))
    }

    fn now(&self) -> Time {
        let now = Timestamp::try_from(self.clients.clock().wall()).unwrap_or(Timestamp::UNIX_EPOCH);
        Time(now.round(Unit::Second).unwrap_or(now))
    }
}
