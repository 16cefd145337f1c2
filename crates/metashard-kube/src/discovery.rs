//! Which resources the API server serves.

mod document;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use metashard_api::resource::Resource;
use metashard_runtime::{clock::Clock, log::chain, shutdown::Token};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::{debug, warn};

use crate::{
    client::{Call, Clients},
    error::{Cause, Error},
    identity::Identity,
    informer::{Event, Informers, Subscriber, ViewKey},
};

/// A large cluster's document is some MiB long.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Wait after a change of a CRD: several come together.
const SETTLE: Duration = Duration::from_millis(100);
/// The API server serves a new resource some time after its CRD says so: looked again after these times.
const AGAIN: [Duration; 2] = [Duration::from_millis(900), Duration::from_secs(3)];
/// Wait after a refresh that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Most resources that are remembered after they were served.
const MAX_LOST: usize = 1000;

/// The two documents that together name all groups.
const ROOTS: [&str; 2] = ["/api", "/apis"];

/// What the API server serves, as last seen. Cheap to clone.
#[derive(Clone)]
pub struct Discovery(Arc<Inner>);

struct Inner {
    clients: Clients,
    informers: Informers,
    /// By apiVersion and plural.
    known: ArcSwap<Known>,
    /// Those that were served and are not any more.
    lost: Mutex<Known>,
    changed: watch::Sender<u64>,
    roots: Mutex<[Root; 2]>,
}

type Known = BTreeMap<(Box<str>, Box<str>), Arc<Resource>>;

/// One document as last read.
#[derive(Default, Clone)]
struct Root {
    etag: Option<String>,
    resources: Vec<Resource>,
}

impl Discovery {
    /// Knows nothing until [`Self::refresh`] or [`Self::run`].
    pub fn new(clients: &Clients, informers: &Informers) -> Self {
        Self(Arc::new(Inner {
            clients: clients.clone(),
            informers: informers.clone(),
            known: ArcSwap::default(),
            lost: Mutex::default(),
            changed: watch::Sender::default(),
            roots: Mutex::default(),
        }))
    }

    /// The resource of this apiVersion (`group/version`, `version` for the core group) and lower-case plural.
    pub fn lookup(&self, api_version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.0
            .known
            .load()
            .get(&(api_version.into(), plural.into()))
            .cloned()
    }

    /// The resource of this apiVersion and plural that was served before, since the start of the process, and is not now.
    pub fn lookup_lost(&self, api_version: &str, plural: &str) -> Option<Arc<Resource>> {
        let lost = self.0.lost.lock();
        lost.get(&(api_version.into(), plural.into())).cloned()
    }

    /// The resource of this apiVersion whose objects have this kind.
    pub fn lookup_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let known = self.0.known.load();
        let from = (api_version.into(), Box::<str>::default());
        known
            .range(from..)
            .take_while(|((version, _), _)| **version == *api_version)
            .find(|(_, resource)| resource.kind == kind)
            .map(|(_, resource)| Arc::clone(resource))
    }

    /// All resources, by apiVersion and plural.
    pub fn resources(&self) -> Vec<Arc<Resource>> {
        self.0.known.load().values().cloned().collect()
    }

    /// A resource of this group and lower-case plural, in whatever version is served.
    pub fn lookup_any(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        let known = self.0.known.load();
        let mut served = known.values();
        served
            .find(|resource| resource.group == group && resource.plural == plural)
            .map(Arc::clone)
    }

    /// Counts the times that the served resources were seen to change; 0 before the first refresh.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Asks the API server once. A document that has not changed since is not sent again.
    ///
    /// An API group whose server is down is served as last known, or not at all; the others are not affected.
    ///
    /// # Errors
    ///
    /// When the API server cannot be reached or its answer is no discovery document: what was known stays.
    pub async fn refresh(&self) -> Result<(), Error> {
        let mut roots = self.0.roots.lock().clone();
        for (root, path) in roots.iter_mut().zip(ROOTS) {
            if let Some(fresh) = self.read(path, root.etag.as_deref()).await? {
                *root = fresh;
            }
        }
        self.replace(&roots);
        *self.0.roots.lock() = roots;
        Ok(())
    }

    /// Keeps it up to date until `shutdown`: every `interval`, and soon after each change of a CRD.
    pub async fn run(self, interval: Duration, shutdown: Token) {
        let changes = Arc::new(Changes::default());
        let key = ViewKey::new(Identity::process(), Arc::new(crd_resource())).metadata_only();
        // Without the right to watch CRDs the interval is what remains.
        let crds = self
            .0
            .informers
            .open(key, Some(Arc::clone(&changes) as Arc<dyn Subscriber>));
        let clock = self.0.clients.clock();
        let mut again = AGAIN.iter();
        loop {
            let wait = match self.refresh().await {
                Ok(()) => again.next().copied().unwrap_or(interval),
                Err(error) => {
                    warn!(error = chain(&error), "discovery failed");
                    RETRY
                }
            };
            tokio::select! {
                () = shutdown.requested() => break,
                () = clock.sleep(wait.min(interval)) => {}
                () = changes.settled(clock) => again = AGAIN.iter(),
            }
        }
        drop(crds);
    }

    /// One document; `None` if it is the one with this ETag.
    async fn read(&self, path: &str, etag: Option<&str>) -> Result<Option<Root>, Error> {
        let identity = Identity::process();
        let mut call = Call::get(&identity, path.to_owned())
            .accept(document::ACCEPT)
            .within(TIMEOUT);
        if let Some(etag) = etag {
            call = call.unless(etag);
        }
        let answer = match self.0.clients.general().call(call).await {
            Err(error) if error.code().is_some_and(|code| code.as_u16() == 304) => return Ok(None),
            answer => answer?,
        };
        let resources = document::parse(&answer.body).map_err(|error| Error {
            method: answer.method,
            path: answer.path,
            cause: Cause::Answer(error.to_string()),
        })?;
        Ok(Some(Root {
            etag: answer.etag,
            resources,
        }))
    }

    /// Publishes what the documents say, if that is another than before.
    fn replace(&self, roots: &[Root; 2]) {
        let old = self.0.known.load();
        let mut known = Known::new();
        for resource in roots.iter().flat_map(|root| &root.resources) {
            let key = (
                resource.api_version().into(),
                resource.plural.as_str().into(),
            );
            let kept = old.get(&key).filter(|old| ***old == *resource).cloned();
            known.insert(key, kept.unwrap_or_else(|| Arc::new(resource.clone())));
        }
        if **old != known || *self.0.changed.borrow() == 0 {
            debug!(resources = known.len(), "served resources changed");
            self.0.remember_lost(&old, &known);
            self.0.known.store(Arc::new(known));
            self.0.changed.send_modify(|count| *count += 1);
            self.0.informers.retry_failing();
        }
    }
}

impl Inner {
    fn remember_lost(&self, old: &Known, known: &Known) {
        let mut lost = self.lost.lock();
        lost.retain(|key, _| !known.contains_key(key));
        for (key, resource) in old.iter().filter(|(key, _)| !known.contains_key(*key)) {
            if lost.len() < MAX_LOST {
                lost.insert(key.clone(), Arc::clone(resource));
            }
        }
    }
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery")
            .field("resources", &self.0.known.load().len())
            .finish_non_exhaustive()
    }
}

/// The resource of CRDs themselves, which every API server serves.
pub fn crd_resource() -> Resource {
    Resource {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        namespaced: false,
        has_status: true,
    }
}

/// Notices that some CRD changed.
#[derive(Default)]
struct Changes(Notify);

impl Changes {
    /// Returns a moment after the next change.
    async fn settled(&self, clock: &Clock) {
        self.0.notified().await;
        clock.sleep(SETTLE).await;
    }
}

impl Subscriber for Changes {
    fn on_event(&self, _event: Event) {
        self.0.notify_one();
    }
}
