//! Status of a controller object: an addition of ours, which Metacontroller's own CRDs prune.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is known about a controller object. All of it is optional: under Metacontroller's own CRDs it stays empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    /// The `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The shard that this controller, or the first slice of a split one, belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u16>,
    /// The replica that serves that shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// How many parents it has; counted anew now and then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<u32>,
    /// One entry for each type, see `names::condition`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// While the controller is being moved from Metacontroller: how it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationStatus>,
}

/// What a replica answers to the annotation `metashard.io/migration` of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationStatus {
    /// The annotation's value that this answers.
    pub round: String,
    /// Whether what the hooks ask for is written, or only observed.
    pub acts: bool,
    /// Whether the replica rests all controllers that carry no such annotation.
    pub held: bool,
    /// How many parents there are.
    pub parents: u32,
    /// How many of them were synced since the controller observes, or acts.
    pub synced: u32,
    /// How many of them failed in their last sync.
    pub failing: u32,
    /// Writes that the last sync of each parent would have made; of a controller that acts: those that were made.
    pub writes: u32,
    /// Some of them, and of the failures.
    pub examples: Vec<String>,
}

impl ControllerStatus {
    /// The condition of this type, if there is one.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.type_ == type_)
    }
}
