//! What is seen of a cluster in a move: all that the decisions of [`super::stages`] are made from.

use metashard_api::{
    names::{ANNOTATION_MIGRATION, ANNOTATION_OBSERVE, condition, reason},
    v1alpha1::status::{ControllerStatus, MigrationStatus},
};
use serde_json::Value;

use super::{
    Move,
    record::{Record, Workload},
};
use crate::document;

/// What is seen of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// How far the move has come; `None`: none has begun.
    pub record: Option<Record>,
    /// Metacontroller's workloads.
    pub peers: Vec<PeerSeen>,
    /// Pods that run Metacontroller and belong to none of these workloads.
    pub strays: Vec<String>,
    /// Metacontroller's leader Leases.
    pub leases: Vec<LeaseSeen>,
    /// All controllers.
    pub controllers: Vec<ControllerSeen>,
    /// Live replicas of metashard, by their Leases; `None` where that is not known yet.
    pub replicas: Option<usize>,
    /// What the cluster lacks for a move: for people.
    pub lacks: Vec<String>,
}

/// One of Metacontroller's workloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSeen {
    /// Which, and how many replicas it asks for.
    pub workload: Workload,
    /// Its Pods that have not ended.
    pub pods: usize,
    /// The cluster's own controllers have not seen yet what it asks for: Pods may still come.
    pub is_pending: bool,
}

/// A leader Lease of Metacontroller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSeen {
    /// `namespace/name`.
    pub title: String,
    /// Who holds it.
    pub holder: String,
    /// Whether its claim has ended: `None` while it was not watched for long enough.
    pub is_over: Option<bool>,
}

/// A controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerSeen {
    /// `CompositeController`, or `DecoratorController`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// It is marked to be observed only.
    pub observe: bool,
    /// Round of the move that it is marked with.
    pub round: Option<String>,
    /// What the replica that serves it says of the move.
    pub report: Option<MigrationStatus>,
    /// Whether it is ready, and why not.
    pub ready: Option<bool>,
    /// The text with it.
    pub message: String,
    /// It is paused: nobody calls its hooks.
    pub is_paused: bool,
    /// By its status a replica acts on it.
    pub is_acted_on: bool,
    /// What the move means for it.
    pub moved: Move,
}

impl ControllerSeen {
    /// Reads a controller object.
    pub fn read(controller: &Value, moved: Move) -> Self {
        let text = |pointer: &str| {
            let text = controller.pointer(pointer).and_then(Value::as_str);
            text.map(str::to_owned)
        };
        let annotations = &controller["metadata"]["annotations"];
        let status: ControllerStatus =
            serde_json::from_value(controller["status"].clone()).unwrap_or_default();
        let ready = status.condition(condition::READY);
        let is = |wanted: &str| ready.is_some_and(|it| it.status == wanted);
        let rests = [reason::OBSERVING, reason::PAUSED, reason::NOT_SERVED];
        let accepted = status.condition(condition::ACCEPTED);
        let is_acted_on = status.worker.is_some()
            && ready.is_some_and(|it| !rests.contains(&it.reason.as_str()))
            && accepted.is_some_and(|it| it.status == "True");
        Self {
            kind: text("/kind").unwrap_or_default(),
            name: text("/metadata/name").unwrap_or_default(),
            observe: annotations[ANNOTATION_OBSERVE] == "true",
            round: annotations[ANNOTATION_MIGRATION]
                .as_str()
                .map(str::to_owned),
            ready: if is("True") {
                Some(true)
            } else {
                is("False").then_some(false)
            },
            message: ready.map(|it| it.message.clone()).unwrap_or_default(),
            is_paused: controller["spec"]["paused"] == true,
            report: status.migration,
            is_acted_on,
            moved,
        }
    }

    /// `CompositeController name`.
    pub fn title(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }

    /// Whether it is meant by this word: NAME, or KIND/NAME.
    pub fn is_called(&self, word: &str) -> bool {
        document::is_called(&self.kind, &self.name, word)
    }

    /// What was answered to this round, if anything was.
    pub(super) fn answer(&self, round: u64) -> Option<&MigrationStatus> {
        let is_asked = self.round.as_deref() == Some(round.to_string().as_str());
        self.report
            .as_ref()
            .filter(|it| is_asked && Some(&it.round) == self.round.as_ref())
    }

    /// Whether it is marked to be observed in this round.
    pub(super) fn is_marked(&self, round: u64) -> bool {
        self.observe && self.round.as_deref() == Some(round.to_string().as_str())
    }
}

impl PeerSeen {
    /// Whether nothing of it runs or is to run.
    pub(super) fn is_stopped(&self) -> bool {
        self.workload.replicas == 0 && self.pods == 0 && !self.is_pending
    }
}
