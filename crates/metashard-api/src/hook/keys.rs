//! Keys of the object maps in a request: by kind, then by name.

use std::borrow::Cow;

use super::Version;
use crate::resource::Resource;

/// Why a text is no key of a kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no dot.
    #[error("read {0:?} as Kind.group/version")]
    NoDot(String),
    /// The part after the first dot has more than one slash.
    #[error("read {0:?} as Kind.group/version: two slashes")]
    TwoSlashes(String),
}

/// A kind in a group and version, as an outer key names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// The kind.
    pub kind: String,
}

impl Kind {
    /// Reads an outer key: what is before the first dot is the kind, the rest the apiVersion.
    ///
    /// # Errors
    ///
    /// Where there is no dot, or more than one slash.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (kind, api_version) = text
            .split_once('.')
            .ok_or_else(|| Error::NoDot(text.to_owned()))?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.contains('/') {
            return Err(Error::TwoSlashes(text.to_owned()));
        }
        Ok(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        })
    }

    /// The outer key.
    pub fn to_key(&self) -> String {
        let Self {
            group,
            version,
            kind,
        } = self;
        if group.is_empty() {
            format!("{kind}.{version}")
        } else {
            format!("{kind}.{group}/{version}")
        }
    }
}

/// Key of the objects of a resource: `Deployment.apps/v1`, `Pod.v1`.
pub fn outer_key(resource: &Resource) -> String {
    format!("{}.{}", resource.kind, resource.api_version())
}

/// Key of the objects of this apiVersion and kind. An apiVersion with two slashes gives `.`, as in Metacontroller.
pub fn outer_key_of(api_version: &str, kind: &str) -> String {
    match api_version.split_once('/') {
        Some((_, version)) if version.contains('/') => ".".to_owned(),
        Some(("", version)) => format!("{kind}.{version}"),
        _ => format!("{kind}.{api_version}"),
    }
}

/// Key of an object within its kind; `None` where a hook of this version does not see it.
///
/// An empty namespace is that of a cluster-scoped object or parent.
pub fn inner_key<'a>(
    version: Version,
    parent_namespace: &str,
    namespace: &str,
    name: &'a str,
) -> Option<Cow<'a, str>> {
    match version {
        Version::V1 if !parent_namespace.is_empty() && namespace != parent_namespace => None,
        Version::V1 => Some(relative_key(parent_namespace, namespace, name)),
        Version::V2 => Some(uniform_key(namespace, name)),
    }
}

/// `namespace/name`, or `name` for a cluster-scoped object.
pub fn uniform_key<'a>(namespace: &str, name: &'a str) -> Cow<'a, str> {
    if namespace.is_empty() {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(format!("{namespace}/{name}"))
    }
}

/// As [`uniform_key`] below a cluster-scoped parent; else `name` alone.
pub fn relative_key<'a>(parent_namespace: &str, namespace: &str, name: &'a str) -> Cow<'a, str> {
    if parent_namespace.is_empty() {
        uniform_key(namespace, name)
    } else {
        Cow::Borrowed(name)
    }
}

#[cfg(test)]
mod tests;
