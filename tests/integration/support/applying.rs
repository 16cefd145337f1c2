//! The two ways in which children are applied: a replica for each, and objects as Metacontroller makes them in that way.

use std::sync::OnceLock;

use metashard_api::names::ANNOTATION_LAST_APPLIED;
use metashard_testkit::{Replica, replica};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{Kind, OWN_REPLICA, Stage, WITHIN};

/// Field manager of Metacontroller, for updates and by default for applies.
pub(crate) const PEER: &str = "metacontroller";

/// Value of the label [`OWN_REPLICA`] of controllers whose children are applied by the server.
pub(crate) const SERVER_SIDE: &str = "server-side";

/// How children are applied: `--apply-strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applying {
    /// By a merge over the record in an annotation.
    Dynamic,
    /// By the API server.
    ServerSide,
}

impl Applying {
    /// The flag of a replica.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Dynamic => "--apply-strategy=dynamic-apply",
            Self::ServerSide => "--apply-strategy=server-side-apply",
        }
    }

    /// Makes sure that there is a replica of this kind, beside the shared one, which applies dynamically.
    pub(crate) async fn start(self, stage: &Stage) -> anyhow::Result<()> {
        match self {
            Self::Dynamic => Ok(()),
            Self::ServerSide => start_server_side(stage).await,
        }
    }

    /// Has a controller served by the replica of this kind.
    pub(crate) fn serve(self, controller: &mut Value) {
        if self == Self::ServerSide {
            controller["metadata"]["labels"] = json!({ OWN_REPLICA: SERVER_SIDE });
        }
    }

    /// Writes `desired` as Metacontroller does: an object that holds what the hook wants, labels and owner included.
    pub(crate) async fn put(
        self,
        stage: &Stage,
        kind: Kind,
        desired: &Value,
        owner: Value,
    ) -> anyhow::Result<Value> {
        let mut object = desired.clone();
        object["metadata"]["ownerReferences"] = json!([owner]);
        let objects = stage.objects(kind);
        match self {
            Self::ServerSide => objects.apply_as(PEER, &object).await,
            Self::Dynamic => {
                object["metadata"]["annotations"][ANNOTATION_LAST_APPLIED] =
                    desired.to_string().into();
                objects.create_as(PEER, object).await
            }
        }
    }
}

/// Starts the replica that applies by the server, if no test has yet.
async fn start_server_side(stage: &Stage) -> anyhow::Result<()> {
    static REPLICA: OnceLock<Mutex<Option<Replica>>> = OnceLock::new();
    let mut started = REPLICA.get_or_init(Mutex::default).lock().await;
    if started.is_none() {
        let cluster = &stage.shared.cluster;
        let namespace = cluster.namespace(SERVER_SIDE).await?;
        let selector = format!("--target-label-selector={OWN_REPLICA}={SERVER_SIDE}");
        let options = replica::Options::new(cluster, SERVER_SIDE, &namespace)?
            .flags([selector.as_str(), Applying::ServerSide.flag()]);
        let mut replica = Replica::start(cluster.group(), &options)?;
        replica.ready(WITHIN).await?;
        *started = Some(replica);
    }
    Ok(())
}

/// The reference of a controller owner.
pub(crate) fn owner(kind: Kind, parent: &Value) -> Value {
    json!({
        "apiVersion": kind.api_version, "kind": kind.kind,
        "name": parent["metadata"]["name"], "uid": parent["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}
