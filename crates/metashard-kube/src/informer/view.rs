//! What users of a cache hold: its key, its state, and the reading of it.

use std::{fmt, sync::Arc, time::Duration};

use metashard_api::resource::Resource;
use metashard_reconcile::object::Object;
use tokio::sync::watch;

use super::{
    Informers,
    shared::{Shared, UserId},
};
use crate::identity::Identity;

/// How long [`View::reach`] waits for an event or a bookmark before it lists.
const PATIENCE: Duration = Duration::from_millis(250);

/// Which objects, seen with whose rights. Views of equal keys are one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewKey {
    pub(crate) identity: Identity,
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: Option<Box<str>>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) selector: Option<Box<str>>,
    pub(crate) metadata_only: bool,
}

/// How a view stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewState {
    /// Not listed yet.
    Opening,
    /// Listed completely, and followed.
    Live,
    /// Neither listed nor followed at the moment; tried again within 30 s, for a right or a kind within 5 s.
    Failing(Trouble),
}

/// Why a view is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What kind of trouble, for a condition's reason.
    pub kind: TroubleKind,
    /// One sentence that names verb, resource and the API server's words.
    pub message: Arc<str>,
    /// Whether the view was listed completely before: it then shows what was true when the trouble began.
    pub synced: bool,
}

/// Kinds of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TroubleKind {
    /// The API server does not serve the resource: its CRD is missing, or not served in this version.
    Missing,
    /// The identity lacks the right to list or watch.
    Forbidden,
    /// The API server cannot be reached, or is overloaded, or failed.
    Unavailable,
    /// The API server refuses the request for another reason.
    Refused,
}

/// A wish for a list that begins after it was made; the default one is for any list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish(pub(super) u64);

/// A user's hold on a cache. Drop it to let go.
pub struct View {
    informers: Informers,
    pub(super) shared: Arc<Shared>,
    user: UserId,
    /// Whose fulfilment shows all that its user wants.
    since: Wish,
}

impl ViewKey {
    /// All objects of `resource`, in all namespaces.
    pub fn new(identity: Identity, resource: Arc<Resource>) -> Self {
        Self {
            identity,
            resource,
            namespace: None,
            name: None,
            selector: None,
            metadata_only: false,
        }
    }

    /// Only those in `namespace`. No effect on a cluster-scoped resource.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<Box<str>>) -> Self {
        self.namespace = self.resource.namespaced.then(|| namespace.into());
        self
    }

    /// Only the one of this name, which has to be a valid one; the API server filters, so that a right to list and watch
    /// that name is enough.
    #[must_use]
    pub fn named(mut self, name: impl Into<Box<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only those that `selector` (the text form of a label selector) selects; the API server filters.
    #[must_use]
    pub fn selecting(mut self, selector: impl Into<Box<str>>) -> Self {
        self.selector = Some(selector.into()).filter(|selector| !selector.is_empty());
        self
    }

    /// Only their metadata. The objects then are of kind `PartialObjectMetadata`.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// The resource.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }
}

/// The form used in logs.
impl fmt::Display for ViewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.resource)?;
        if let Some(namespace) = &self.namespace {
            write!(f, " in {namespace}")?;
        }
        if let Some(name) = &self.name {
            write!(f, " named {name}")?;
        }
        if let Some(selector) = &self.selector {
            write!(f, " where {selector}")?;
        }
        Ok(())
    }
}

impl ViewState {
    /// Whether the view was listed completely once, so that it may be acted on.
    pub fn is_synced(&self) -> bool {
        match self {
            Self::Opening => false,
            Self::Live => true,
            Self::Failing(trouble) => trouble.synced,
        }
    }
}

impl View {
    pub(super) fn new(
        informers: Informers,
        shared: Arc<Shared>,
        user: UserId,
        since: Wish,
    ) -> Self {
        Self {
            informers,
            shared,
            user,
            since,
        }
    }

    /// What the view is of.
    pub fn key(&self) -> &ViewKey {
        &self.shared.key
    }

    /// The object of this name, as last seen.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Object>> {
        self.shared
            .store()
            .get(namespace.unwrap_or_default(), name)
            .cloned()
    }

    /// The objects whose controlling owner has this uid, in the order of namespace and name.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<Object>> {
        self.shared.store().owned_by(uid)
    }

    /// The objects without a controlling owner, in the order of namespace and name: of `namespace`, or all of them.
    pub fn ownerless(&self, namespace: Option<&str>) -> Vec<Arc<Object>> {
        self.shared.store().ownerless(namespace)
    }

    /// All objects, in no order.
    pub fn list(&self) -> Vec<Arc<Object>> {
        self.shared.store().iter().cloned().collect()
    }

    /// The objects that are `wanted`, in no order. It must be quick, and must not look at this view.
    pub fn filter(&self, wanted: impl Fn(&Object) -> bool) -> Vec<Arc<Object>> {
        let store = self.shared.store();
        store.iter().filter(|it| wanted(it)).cloned().collect()
    }

    /// How many objects are `wanted`. It must be quick, and must not look at this view.
    pub fn count(&self, wanted: impl Fn(&Object) -> bool) -> usize {
        self.shared.store().iter().filter(|it| wanted(it)).count()
    }

    /// How many bytes its objects have, as they came.
    pub fn cached_bytes(&self) -> usize {
        self.shared.store().bytes()
    }

    /// The resourceVersion up to which the view shows everything; `None` if that is not known.
    pub fn reached_version(&self) -> Option<Box<str>> {
        match self.shared.version() {
            0 => None,
            version => Some(version.to_string().into()),
        }
    }

    /// How the view stands, and how it changes.
    pub fn state(&self) -> watch::Receiver<ViewState> {
        self.shared.state()
    }

    /// Whether it was listed completely, with all that its user wants, so that it may be acted on.
    pub fn is_synced(&self) -> bool {
        self.shared.is_synced() && self.shared.has_listed(self.since.0)
    }

    /// Returns once that is so.
    pub async fn synced(&self) {
        // It fails only if the view is gone, and `self` holds it.
        _ = self.state().wait_for(ViewState::is_synced).await.map(drop);
        self.shared.listed(self.since.0).await;
    }

    /// Lets go what nobody wants any more, unless that was done a moment ago: it stays until then.
    pub fn tidy(&self) {
        self.shared.tidy(self.informers.now());
    }

    /// Whether it has let go something that `owner` controls: when that came, `owner` was not among the owners whose objects its
    /// users want. [`Self::refresh`] brings it back.
    pub fn lacks(&self, owner: &Object) -> bool {
        self.shared.lacks(owner)
    }

    /// Returns once the view is at least as new as the API server was when this was called.
    ///
    /// Lists anew, in a list that begins after the call; calls at the same time share one. Takes as long as the API
    /// server is away: limit it from outside. Dropping the future does not stop the list.
    pub async fn refresh(&self) {
        self.fulfilled(self.wish()).await;
    }

    /// Has the view listed by a list that begins after this call; calls at the same time share one.
    pub fn wish(&self) -> Wish {
        Wish(self.shared.want_list())
    }

    /// Returns once the view was listed completely as wished.
    pub async fn fulfilled(&self, wish: Wish) {
        self.synced().await;
        self.shared.listed(wish.0).await;
    }

    /// Returns once the view shows everything up to `resource_version` (of any object of its resource).
    ///
    /// It waits for an event or a bookmark that says so, and lists if there is none soon.
    pub async fn reach(&self, resource_version: &str) {
        let patient = tokio::time::timeout(PATIENCE, self.shared.reached(resource_version));
        if patient.await.is_err() {
            self.refresh().await;
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({})", self.shared.key)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.shared.leave(self.user);
        self.informers.close(&self.shared.key);
    }
}
