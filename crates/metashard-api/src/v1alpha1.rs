//! `metacontroller.k8s.io/v1alpha1`: the kinds of Metacontroller, field for field, plus optional additions of our own.
//!
//! Whatever Metacontroller's own CRDs let through can be read: a word that its older schemas did not check is
//! read as `Unknown` and reported by [`crate::validate`], so that one odd object never hides the others.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

pub mod composite;
pub mod decorator;
pub mod revision;
pub mod status;
pub mod webhook;

/// API group of these kinds.
pub const GROUP: &str = "metacontroller.k8s.io";

/// Their only version.
pub const VERSION: &str = "v1alpha1";

/// `apiVersion` of these kinds.
pub const API_VERSION: &str = "metacontroller.k8s.io/v1alpha1";

/// How an observed child that differs from the desired one is changed. Absent: `OnDelete`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum UpdateMethod {
    /// Not at all: it is created anew once somebody deletes it. The default.
    OnDelete,
    /// Deleted at once, and created anew when it is gone.
    Recreate,
    /// Updated at once.
    InPlace,
    /// Deleted and created anew, one child at a time.
    RollingRecreate,
    /// Updated, one child at a time.
    RollingInPlace,
    /// A word that no version of the API knows.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl UpdateMethod {
    /// Whether children are moved one at a time, by revisions of the parent.
    pub fn is_rolling(self) -> bool {
        matches!(self, Self::RollingRecreate | Self::RollingInPlace)
    }
}

/// Which existing objects may become children. Absent: `IfOwnerless`, those without a controller that the selector matches.
///
/// `Force` also takes over one without a controller that has the name of a desired child; `Never` takes over none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Adoption {
    /// None: only what was created for the parent is its child.
    Never,
    /// Objects without a controller whose labels match the parent's selector: what Metacontroller does. The default.
    #[default]
    IfOwnerless,
    /// Also an object without a controller that has the name of a desired child, whatever its labels.
    /// An object that another controller owns is never taken.
    Force,
    /// A word that no version of the API knows; the object is not served.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What happens to a child that is no longer desired. Absent: `Delete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It is deleted: what Metacontroller does. The default.
    #[default]
    Delete,
    /// It stays, and loses its owner reference to the parent.
    Orphan,
    /// A word that no version of the API knows; the object is not served.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// The ServiceAccount that a controller acts as.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ServiceAccountRef {
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Name of the ServiceAccount.
    pub name: String,
}

/// How a controller with many parents is split over workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sharding {
    /// Number of slices that the parents are split into; a power of two. Absent: decided by load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub slices: Option<u16>,
}

/// Reads an empty text as an absent value, as Metacontroller does for enumerated fields.
fn empty_as_absent<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    match Option::<String>::deserialize(deserializer)? {
        Some(text) if !text.is_empty() => {
            T::deserialize(serde::de::value::StringDeserializer::new(text)).map(Some)
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
