//! The Placement: what people ask of where shards are. Written by them; its status by the leader.
//!
//! Group `metashard.io`, version `v1beta1`, namespaced, one object named [`NAME`] in the system namespace. It may be absent,
//! and so may its CRD: then nothing is asked.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Name of the one Placement of a fleet.
pub const NAME: &str = "metashard";

/// What is asked.
#[derive(
    CustomResource, Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "metashard.io",
    version = "v1beta1",
    kind = "Placement",
    plural = "placements",
    namespaced,
    status = "PlacementStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct PlacementSpec {
    /// Names of replicas that get no shard and hand over what they have. If all are cordoned, nothing moves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[schemars(inner(length(min = 1, max = 253)))]
    pub cordoned: Vec<String>,
    /// Where certain shards should be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = pin_list_rules()))]
    pub pins: Vec<Pin>,
    /// Any text; a new one asks once for a levelling of the load to 1.05 of the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub rebalance: Option<String>,
}

/// Where a shard should be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [json!({
    "rule": "has(self.shard) != has(self.controller)",
    "message": "name one of shard and controller",
})]))]
pub struct Pin {
    /// Number of the shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 4095))]
    pub shard: Option<u16>,
    /// Name or uid of a controller: its shard is meant, with all that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub controller: Option<String>,
    /// Name of the replica that should have it.
    #[schemars(length(min = 1, max = 253))]
    pub replica: String,
}

/// What the leader says of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStatus {
    /// The generation of the spec that the conditions are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The last value of `spec.rebalance` that was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_rebalance: Option<String>,
    /// What became of what was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

fn pin_list_rules() -> serde_json::Value {
    let once = |field: &str| {
        json!({
            "rule": format!("self.all(a, !has(a.{field}) || self.all(b, !has(b.{field}) || b.{field} != a.{field} || b.replica == a.replica))"),
            "message": format!("the same {field} is pinned to two replicas"),
        })
    };
    json!([once("shard"), once("controller")])
}
