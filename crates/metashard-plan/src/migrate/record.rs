//! The record of a move: how far it has come, and what Metacontroller's workloads were before it. A ConfigMap, so that
//! whoever goes on, or goes back, knows; replicas read its key `hold`.

use std::collections::BTreeMap;

use metashard_api::names::MIGRATION_HOLD;
use serde::{Deserialize, Serialize};

/// How far a move has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// metashard looks at every controller and writes nothing; Metacontroller acts.
    Observing,
    /// Metacontroller is being stopped; metashard still writes nothing.
    Stopping,
    /// Metacontroller is stopped; metashard acts on one controller after the other.
    Moving,
    /// metashard acts on all of them.
    Done,
    /// metashard is being made to write nothing any more, so that Metacontroller can be started.
    HandingBack,
    /// Metacontroller acts again.
    Back,
}

/// One of Metacontroller's workloads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    /// `StatefulSet` or `Deployment`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Replicas that it had before it was stopped.
    pub replicas: i64,
}

/// The record of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// How far it has come.
    pub stage: Stage,
    /// Grows each time that the move turns round; controllers answer to it, so that no old answer is taken for a new one.
    pub round: u64,
    /// Metacontroller's workloads, and what they are to be when it goes back.
    pub workloads: Vec<Workload>,
}

/// Why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the record of the move has no readable `{0}`: correct or delete it")]
pub struct Unreadable(&'static str);

const STAGE: &str = "stage";
const ROUND: &str = "round";
const WORKLOADS: &str = "workloads";

impl Stage {
    const ALL: [Self; 6] = [
        Self::Observing,
        Self::Stopping,
        Self::Moving,
        Self::Done,
        Self::HandingBack,
        Self::Back,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observing => "observing",
            Self::Stopping => "stopping",
            Self::Moving => "moving",
            Self::Done => "done",
            Self::HandingBack => "handing back",
            Self::Back => "back",
        }
    }

    /// Whether Metacontroller may act, so that metashard must not.
    pub const fn holds(self) -> bool {
        match self {
            Self::Observing | Self::Stopping | Self::HandingBack | Self::Back => true,
            Self::Moving | Self::Done => false,
        }
    }
}

impl Workload {
    /// `StatefulSet namespace/name`.
    pub fn title(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }

    /// Whether both name the same one.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.kind, &self.namespace, &self.name) == (&other.kind, &other.namespace, &other.name)
    }
}

impl Record {
    /// The data of its ConfigMap.
    pub fn to_data(&self) -> BTreeMap<String, String> {
        let workloads = serde_json::to_string(&self.workloads).unwrap_or_default();
        [
            (STAGE, self.stage.as_str().to_owned()),
            (ROUND, self.round.to_string()),
            (WORKLOADS, workloads),
            (MIGRATION_HOLD, self.stage.holds().to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }

    /// Reads the data of its ConfigMap.
    ///
    /// # Errors
    ///
    /// If somebody has edited it into something else.
    pub fn from_data(data: &BTreeMap<String, String>) -> Result<Self, Unreadable> {
        let field = |key: &'static str| data.get(key).ok_or(Unreadable(key));
        let word = field(STAGE)?;
        let stage = Stage::ALL.into_iter().find(|it| it.as_str() == word);
        Ok(Self {
            stage: stage.ok_or(Unreadable(STAGE))?,
            round: field(ROUND)?.parse().map_err(|_| Unreadable(ROUND))?,
            workloads: serde_json::from_str(field(WORKLOADS)?)
                .map_err(|_| Unreadable(WORKLOADS))?,
        })
    }
}
