//! A memory as it is recorded: every field of it, so that a pass that is run again remembers the same.

use std::sync::Arc;

use metashard_api::hook::RelatedRule;
use serde::{Deserialize, Serialize};

use super::{Customized, Known, Memory, Pass, StatusWrite, writes::Written};
use crate::{
    fights::Fights,
    recording::{Error, Raw, Scribe},
};

/// A memory as it is recorded.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Form<'a> {
    about: u64,
    pass: Option<Pass>,
    children: Vec<Known>,
    status: Option<StatusWrite>,
    customized: Option<(u64, Vec<RelatedRule>)>,
    held: u64,
    collided: u64,
    missed: u64,
    gone: bool,
    paused: bool,
    fights: Fights,
    parent: Option<Raw<'a>>,
    /// Rule, object, and for how many passes it was taken to exist.
    written: Vec<(usize, Raw<'a>, u8)>,
    deleted: Vec<u64>,
}

impl<'a> Form<'a> {
    pub(crate) fn of(memory: &'a Memory, scribe: &Scribe<'a>) -> Self {
        let Memory {
            about,
            pass,
            children,
            status,
            customized,
            held,
            collided,
            missed,
            gone,
            paused,
            fights,
            // It is that of the last pass.
            now: _,
            parent,
            written,
            deleted,
        } = memory;
        let customized = customized.as_ref().map(|it| (it.about, it.rules.to_vec()));
        let own = |it: &'a Written| (it.rule, scribe.object(&it.object), it.passes);
        Self {
            about: *about,
            pass: *pass,
            children: children.clone(),
            status: *status,
            customized,
            held: *held,
            collided: *collided,
            missed: *missed,
            gone: *gone,
            paused: *paused,
            fights: fights.clone(),
            parent: parent.as_ref().map(|it| scribe.object(it)),
            written: written.iter().map(own).collect(),
            deleted: deleted.iter().copied().collect(),
        }
    }

    pub(crate) fn restore(self) -> Result<Memory, Error> {
        let written = self.written.into_iter().map(|(rule, object, passes)| {
            let object = object.object()?;
            Ok(Written {
                rule,
                object,
                passes,
            })
        });
        let customized = self.customized.map(|(about, rules)| Customized {
            about,
            rules: Arc::from(rules),
        });
        Ok(Memory {
            about: self.about,
            pass: self.pass,
            children: self.children,
            status: self.status,
            customized,
            held: self.held,
            collided: self.collided,
            missed: self.missed,
            gone: self.gone,
            paused: self.paused,
            fights: self.fights,
            now: None,
            parent: self.parent.map(|it| it.object()).transpose()?,
            written: written.collect::<Result<_, Error>>()?,
            deleted: self.deleted.into_iter().collect(),
        })
    }
}
