//! How controllers are run.

use std::time::Duration;

use clap::Args;
use metashard_api::{names::FIELD_MANAGER, selector::Selector};
use metashard_worker::{Apply, recordings::RecordTo};

use super::value::{self, Error};
use crate::config;

/// How controllers are run.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Syncs of one controller at once, and so the most calls that each of its hooks has at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) workers: u32,
    /// How often every parent is synced though nothing changed.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = value::duration)]
    pub(crate) cache_flush_interval: Duration,
    /// Serve only controllers whose labels match, as in `kubectl -l`. Default: all.
    #[arg(
        long,
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) target_label_selector: String,
    /// Call hooks and report what they ask for, and write nothing: beside a live Metacontroller, for instance. Such replicas
    /// share nothing with others: "-observe" is added to the names of the system namespace and of the leader's Lease.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", hide_default_value = true, value_parser = value::switch)]
    pub(crate) observe: bool,
    /// How children are updated: dynamic-apply (merged here, with a record in an annotation) or server-side-apply.
    #[arg(long, value_name = "STRATEGY", default_value = "dynamic-apply")]
    pub(crate) apply_strategy: String,
    /// Field manager of server-side apply.
    #[arg(long, value_name = "NAME", default_value = FIELD_MANAGER)]
    pub(crate) apply_strategy_ssa_field_manager: String,
    /// Record every sync in files of this folder, to be run again by `metashardctl render --recorded`. Parents, children and
    /// answers of hooks are in them: keep them as you keep these.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) record_dir: String,
    /// Most MiB of --record-dir; the oldest files make room.
    #[arg(long, value_name = "NUMBER", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) record_mib: u64,
    /// Record values of Secrets too. Without, other texts stand in their places, and a sync that compares them is not
    /// run again exactly.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", hide_default_value = true, value_parser = value::switch)]
    pub(crate) record_secrets: bool,
}

impl Options {
    pub(super) fn check(self) -> Result<config::Worker, Error> {
        let Self {
            workers,
            cache_flush_interval,
            target_label_selector,
            observe,
            apply_strategy,
            apply_strategy_ssa_field_manager,
            record_dir,
            record_mib,
            record_secrets,
        } = self;
        let record = (!record_dir.is_empty()).then(|| RecordTo {
            folder: record_dir.into(),
            max_bytes: record_mib << 20,
            secrets: record_secrets,
        });
        let selector: Selector = target_label_selector
            .parse()
            .map_err(|error| Error::new("target-label-selector", format!("{error}")))?;
        Ok(config::Worker {
            workers,
            flush_interval: cache_flush_interval,
            target_selector: selector,
            observe,
            apply: Apply::of_flags(&apply_strategy, &apply_strategy_ssa_field_manager)
                .map_err(|error| Error::new(error.flag(), error.to_string()))?,
            record,
        })
    }
}
