//! Secrets and ConfigMaps as holders of values.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use base64::{Engine, engine::general_purpose::STANDARD};
use metashard_api::{
    endpoint::{Source, SourceKind},
    validate::Finding,
};
use serde::Deserialize;

/// What is known of an object that holds certificates or credentials.
#[derive(Clone, Copy)]
pub enum Found<'a> {
    /// It is there: its JSON.
    Object(&'a [u8]),
    /// There is none of this name.
    Missing,
    /// It cannot be read, and why.
    Unreadable(&'a str),
}

impl fmt::Debug for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object(_) => "Object",
            Self::Missing => "Missing",
            Self::Unreadable(_) => "Unreadable",
        })
    }
}

/// Reads values of the objects that hold them.
pub(super) struct Holders<'f, 'a> {
    find: &'f dyn Fn(&Source) -> Found<'a>,
}

/// What counts of both kinds. Of a ConfigMap only `data`, as in Metacontroller.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(default, borrow)]
    data: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

impl<'f, 'a> Holders<'f, 'a> {
    pub(super) const fn new(find: &'f dyn Fn(&Source) -> Found<'a>) -> Self {
        Self { find }
    }

    /// The value of a key that has to be there, asked for by `field`.
    pub(super) fn value(
        &self,
        field: &str,
        source: &Source,
        key: &str,
    ) -> Result<Vec<u8>, Finding> {
        let bytes = match (self.find)(source) {
            Found::Object(bytes) => bytes,
            Found::Missing => {
                return Err(Finding::invalid(
                    field,
                    format!("{source} not found"),
                    "create it, or correct the reference",
                ));
            }
            Found::Unreadable(why) => {
                return Err(Finding::invalid(
                    field,
                    format!("{source} cannot be read: {why}"),
                    "allow metashard to list and watch it",
                ));
            }
        };
        // What is wrong with the JSON is left out: it may quote a value.
        let damaged = || {
            Finding::invalid(
                field,
                format!("{} cannot be read", place(key, source)),
                "write the object anew",
            )
        };
        let body: Body<'_> = serde_json::from_slice(bytes).map_err(|_| damaged())?;
        let value = body.data.as_ref().and_then(|data| data.get(key));
        let value = value.ok_or_else(|| {
            Finding::invalid(
                field,
                format!("{source} has no key {key:?}"),
                "add the key, or name another",
            )
        })?;
        match source.kind {
            SourceKind::Secret => STANDARD.decode(value.as_bytes()).map_err(|_| damaged()),
            SourceKind::ConfigMap => Ok(value.as_bytes().to_vec()),
        }
    }

    /// As [`Self::value`], of a key that must not be empty either.
    pub(super) fn some_value(
        &self,
        field: &str,
        source: &Source,
        key: &str,
    ) -> Result<Vec<u8>, Finding> {
        let value = self.value(field, source, key)?;
        if value.trim_ascii().is_empty() {
            return Err(Finding::invalid(
                field,
                format!("{} is empty", place(key, source)),
                "give it a value",
            ));
        }
        Ok(value)
    }
}

/// A value, as texts for people name it.
pub(super) fn place(key: &str, source: &Source) -> String {
    format!("key {key:?} of {source}")
}
