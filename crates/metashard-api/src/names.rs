//! Labels, annotations, finalizers, conditions, reasons and other names that are written to the cluster.
//!
//! What Metacontroller writes too has its spelling, so that either can take over from the other.

use crate::id::ControllerKind;

/// Label of generated selectors; its value is the parent's uid.
pub const LABEL_CONTROLLER_UID: &str = "controller-uid";

/// Annotation of a child: what the hook wanted at our last write, as JSON text.
pub const ANNOTATION_LAST_APPLIED: &str = "metacontroller.k8s.io/last-applied-configuration";

/// Annotation of an attachment: the name of its DecoratorController.
pub const ANNOTATION_DECORATOR: &str = "metacontroller.k8s.io/decorator-controller";

/// Label of a ControllerRevision: the API group of its parent.
pub const LABEL_REVISION_GROUP: &str = "metacontroller.k8s.io/apiGroup";

/// Label of a ControllerRevision: the plural of its parent's resource.
pub const LABEL_REVISION_RESOURCE: &str = "metacontroller.k8s.io/resource";

/// Annotation of a former child that its parent has let go: the parent's uid.
pub const ANNOTATION_ORPHANED_FROM: &str = "metashard.io/orphaned-from";

/// Annotation of a parent or controller: any new value starts a sync.
pub const ANNOTATION_SYNC_NOW: &str = "metashard.io/sync-now";

/// Annotation of a parent: with the value `true` it rests until it is deleted. No hook is called, nothing is written.
pub const ANNOTATION_PAUSED: &str = "metashard.io/paused";

/// Annotation of a controller: with the value `true` its hooks are called, and what they ask for is not written.
pub const ANNOTATION_OBSERVE: &str = "metashard.io/observe";

/// Annotation of a controller that is being moved from Metacontroller or back: which round of the move it takes part in.
/// Whoever serves it answers in its status.
pub const ANNOTATION_MIGRATION: &str = "metashard.io/migration";

/// Name of the ConfigMap of the system namespace that says how far a move from Metacontroller has come.
pub const MIGRATION_RECORD: &str = "metashard-migration";

/// Its key that is `true` while Metacontroller may act: nothing is acted on then.
pub const MIGRATION_HOLD: &str = "hold";

/// Label of a record of the system namespace: what it is about.
pub const LABEL_RECORD: &str = "metashard.io/record";

/// Value of [`LABEL_RECORD`]: which kinds of parents carry a controller's finalizer.
pub const RECORD_FINALIZERS: &str = "finalizers";

/// Prefix of the names of such records; the controller's uid follows.
pub const RECORD_FINALIZERS_PREFIX: &str = "metashard-finalizers-";

/// Annotation required of CRDs in groups below `k8s.io`.
pub const ANNOTATION_API_APPROVED: &str = "api-approved.kubernetes.io";

/// Value of [`ANNOTATION_API_APPROVED`] for a group that was not submitted for approval.
pub const API_UNAPPROVED: &str = "unapproved, request not yet submitted";

/// Finalizer by which the garbage collector deletes dependents first.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// Finalizer by which the garbage collector orphans dependents first.
pub const FINALIZER_ORPHAN: &str = "orphan";

/// Field manager of writes where no flag names another; Metacontroller's own, so that fields change hands without a conflict.
pub const FIELD_MANAGER: &str = "metacontroller";

/// Source component of events, as Metacontroller's.
pub const EVENT_COMPONENT: &str = "metacontroller";

/// First word of the User-Agent of every request.
pub const USER_AGENT: &str = "metashard";

/// Name of Metacontroller's own leader Lease: while it is live, nothing is acted on.
pub const PEER_LEADER_LEASE: &str = "metacontroller";

/// Default name of the leader's Lease.
pub const LEADER_LEASE: &str = "metashard-leader";

/// Prefix of the names of workers' Leases; the incarnation follows.
pub const WORKER_LEASE_PREFIX: &str = "metashard-worker-";

/// Prefix of the names of candidates' Leases; the incarnation follows.
pub const CANDIDATE_LEASE_PREFIX: &str = "metashard-candidate-";

/// Default system namespace.
pub const SYSTEM_NAMESPACE: &str = "metashard-system";

/// Label of a worker's Lease: the replica's name.
pub const LABEL_REPLICA: &str = "metashard.io/replica";

/// Label of a Lease: what it is for, `worker` or `candidate`.
pub const LABEL_ROLE: &str = "metashard.io/role";

/// Annotation of a Lease: number of the holder's write.
pub const ANNOTATION_ATTEMPT: &str = "metashard.io/attempt";

/// Annotation of a Lease: gRPC address of its holder, `host:port`.
pub const ANNOTATION_ADDRESS: &str = "metashard.io/address";

/// Annotation of a Lease: version of its holder's program.
pub const ANNOTATION_VERSION: &str = "metashard.io/version";

/// Annotation of a Lease: zone of its holder's node.
pub const ANNOTATION_ZONE: &str = "metashard.io/zone";

/// Annotation of a Lease: capacity of its holder in hundredths.
pub const ANNOTATION_CAPACITY: &str = "metashard.io/capacity";

/// Annotation of a Lease: worker pool of its holder.
pub const ANNOTATION_POOL: &str = "metashard.io/pool";

/// Header of a hook call: the shard that makes it.
pub const HEADER_SHARD: &str = "X-Metashard-Shard";

/// Header of a hook call: the epoch of that shard.
pub const HEADER_EPOCH: &str = "X-Metashard-Epoch";

/// The finalizer that a controller of this kind and name puts on its parents or targets.
pub fn finalizer(kind: ControllerKind, name: &str) -> String {
    match kind {
        ControllerKind::Composite => format!("metacontroller.io/compositecontroller-{name}"),
        ControllerKind::Decorator => format!("metacontroller.io/decoratorcontroller-{name}"),
    }
}

/// Types of the conditions of a controller object.
pub mod condition {
    /// The spec is valid, and this version serves all that it asks for.
    pub const ACCEPTED: &str = "Accepted";
    /// The ServiceAccount may do what the controller declares.
    pub const AUTHORIZED: &str = "Authorized";
    /// Parents and children are watched.
    pub const WATCHES_READY: &str = "WatchesReady";
    /// The last hook call went well.
    pub const HOOKS_READY: &str = "HooksReady";
    /// A worker owns the controller's shard.
    pub const ASSIGNED: &str = "Assigned";
    /// All of the others.
    pub const READY: &str = "Ready";
    /// Abnormal: work is under way.
    pub const RECONCILING: &str = "Reconciling";
    /// Abnormal: it will not go on without a change of the object.
    pub const STALLED: &str = "Stalled";
    /// Abnormal: the same child is written again and again.
    pub const HOT_LOOP: &str = "HotLoop";
    /// Abnormal: a limit of the tenant holds it back.
    pub const THROTTLED: &str = "Throttled";
    /// Of a Placement: every replica and controller that it names is there.
    pub const RESOLVED: &str = "Resolved";
    /// Of a Placement: replicas that are cordoned have no shard.
    pub const DRAINED: &str = "Drained";
    /// Of a Placement: what is pinned is where it should be.
    pub const PINNED: &str = "Pinned";
    /// Of a Placement: the levelling that was asked for last is done.
    pub const LEVELLED: &str = "Levelled";
}

/// The condition that a roll-out puts into the status of a parent.
pub mod rollout {
    /// Type of the condition: whether all children are at the latest revision.
    pub const UPDATED: &str = "Updated";
    /// They are.
    pub const ON_LATEST_REVISION: &str = "OnLatestRevision";
    /// One child is being moved.
    pub const PROGRESSING: &str = "RolloutProgressing";
    /// The next child waits for one that was moved.
    pub const WAITING: &str = "RolloutWaiting";
}

/// Reasons of conditions.
pub mod reason {
    /// The spec is valid and served.
    pub const VALID: &str = "Valid";
    /// A field has a value that cannot work.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// A field asks for what this version does not do yet.
    pub const NOT_SUPPORTED: &str = "NotSupported";
    /// The object cannot be read as its kind.
    pub const UNREADABLE: &str = "Unreadable";
    /// A field is accepted and has no effect.
    pub const NO_EFFECT: &str = "NoEffect";
    /// The API server does not serve a resource that the spec names.
    pub const RESOURCE_NOT_FOUND: &str = "ResourceNotFound";
    /// The parent resource has no status subresource.
    pub const NO_STATUS_SUBRESOURCE: &str = "NoStatusSubresource";
    /// The API server refuses to list or watch a resource.
    pub const FORBIDDEN: &str = "Forbidden";
    /// The first list has not come in yet.
    pub const SYNCING: &str = "Syncing";
    /// All watches have delivered their first list.
    pub const SYNCED: &str = "Synced";
    /// The API server refuses the content of a write.
    pub const WRITE_REFUSED: &str = "WriteRefused";
    /// Somebody else changes a child each time it is put right.
    pub const FOUGHT_OVER: &str = "FoughtOver";
    /// What was told of before is over.
    pub const SETTLED: &str = "Settled";
    /// The API server does not answer a watch or a write.
    pub const UNAVAILABLE: &str = "Unavailable";
    /// No hook has been called yet.
    pub const NOT_CALLED: &str = "NotCalled";
    /// The last call was answered and the answer was used.
    pub const ANSWERED: &str = "Answered";
    /// The last call failed.
    pub const CALL_FAILED: &str = "CallFailed";
    /// The last answer was refused.
    pub const ANSWER_REFUSED: &str = "AnswerRefused";
    /// Certificates or credentials that a hook is to be called with are missing or cannot be used.
    pub const ENDPOINT_NOT_RESOLVED: &str = "EndpointNotResolved";
    /// A worker owns the shard.
    pub const OWNED: &str = "Owned";
    /// Nobody owns the shard.
    pub const UNOWNED: &str = "Unowned";
    /// `spec.paused` is set.
    pub const PAUSED: &str = "Paused";
    /// All conditions hold, and nothing is written: it is only observed what would be.
    pub const OBSERVING: &str = "Observing";
    /// A sync panicked: an error of this program, not of the controller.
    pub const PANICKED: &str = "Panicked";
    /// A move from Metacontroller has not come to this controller, or has gone back: it is not served.
    pub const HELD: &str = "Held";
    /// The replicas that served it do so no longer: it does not match their target selector.
    pub const NOT_SERVED: &str = "NotServed";
    /// All conditions hold.
    pub const READY: &str = "Ready";
    /// A condition does not hold; the message names it.
    pub const NOT_READY: &str = "NotReady";
    /// Nothing of this kind is asked.
    pub const NOT_ASKED: &str = "NotAsked";
    /// What was asked is done.
    pub const DONE: &str = "Done";
    /// It is being done.
    pub const IN_PROGRESS: &str = "InProgress";
    /// No replica lives that could take what is to be moved.
    pub const NOWHERE_TO_GO: &str = "NowhereToGo";
    /// It cannot be done at the moment; the message says what it waits for.
    pub const WAITING: &str = "Waiting";
    /// Every name is that of something that is there.
    pub const FOUND: &str = "Found";
    /// A name is that of nothing that is there.
    pub const NOT_FOUND: &str = "NotFound";
}

/// Reasons of events.
pub mod event {
    /// A controller is about to start.
    pub const STARTING: &str = "Starting";
    /// A controller has started.
    pub const STARTED: &str = "Started";
    /// A controller is about to stop.
    pub const STOPPING: &str = "Stopping";
    /// A controller has stopped.
    pub const STOPPED: &str = "Stopped";
    /// A controller cannot be started.
    pub const CREATE_ERROR: &str = "CreateError";
    /// A sync failed.
    pub const SYNC_ERROR: &str = "SyncError";
    /// Certificates or credentials of a running controller's hook are missing or cannot be used.
    pub const ENDPOINT_NOT_RESOLVED: &str = "EndpointNotResolved";
    /// A certificate that a hook is called with ends soon, or has ended.
    pub const CERTIFICATE_EXPIRES: &str = "CertificateExpires";
    /// An answer has fields that are not known or repeated, or names no children at all.
    pub const ODD_ANSWER: &str = "OddAnswer";
    /// A desired child exists already and belongs to nobody or to another.
    pub const CHILD_CONFLICT: &str = "ChildConflict";
    /// An object that was nobody's has become a child because its rule says so.
    pub const CHILD_ADOPTED: &str = "ChildAdopted";
    /// A child is changed by somebody else each time it is put right: it is let be for a while.
    pub const HOT_LOOP: &str = "HotLoop";
    /// A desired child is refused before it is written.
    pub const CHILD_REFUSED: &str = "ChildRefused";
    /// A parent, or a controller, rests.
    pub const PAUSED: &str = "Paused";
    /// A parent rests no longer.
    pub const RESUMED: &str = "Resumed";
    /// Shards have had no live owner for longer than a hand-over takes. On the ShardMap.
    pub const SHARDS_UNOWNED: &str = "ShardsUnowned";
    /// Every shard has a live owner again. On the ShardMap.
    pub const SHARDS_OWNED: &str = "ShardsOwned";
    /// Two leaders write one ShardMap: two installations share a namespace. On the ShardMap.
    pub const LEAD_CONTESTED: &str = "LeadContested";
    /// Two replicas that run have one name. On the ShardMap.
    pub const REPLICA_NAME_TWICE: &str = "ReplicaNameTwice";
    /// Somebody edited the ShardMap, and it was written as it was. On the ShardMap.
    pub const SHARD_MAP_EDITED: &str = "ShardMapEdited";
    /// The ShardMap was deleted, replaced, set back, or edited so that workers take notice. On the ShardMap as it was.
    pub const SHARD_MAP_LOST: &str = "ShardMapLost";
    /// A newer version wrote the ShardMap, or somebody edited it, so that it cannot be read. On the ShardMap.
    pub const SHARD_MAP_UNREADABLE: &str = "ShardMapUnreadable";
    /// Replicas of several versions share a fleet, as during an upgrade. On the ShardMap.
    pub const VERSIONS_MIXED: &str = "VersionsMixed";
    /// Replicas of versions share a fleet that are not made for that. On the ShardMap.
    pub const VERSION_SKEW: &str = "VersionSkew";
    /// All replicas are of one version again. On the ShardMap.
    pub const VERSIONS_ALIKE: &str = "VersionsAlike";
    /// The clock of a replica's machine was set. On the ShardMap.
    pub const CLOCK_SET: &str = "ClockSet";
}
