//! The rules of safety that this replica keeps: all of them.
//!
//! But for a debug build with feature `mutants` that was planted with `break=<Rule>`, so that a run on real processes can
//! show that it would find a replica that breaks that rule.

use metashard_fleet::rules::Rules;

/// The rules.
#[cfg(not(feature = "mutants"))]
pub(crate) fn kept() -> Rules {
    Rules::default()
}

/// The rules, without one that was planted.
#[cfg(feature = "mutants")]
pub(crate) fn kept() -> Rules {
    let Some(word) = metashard_runtime::fault::word("break") else {
        return Rules::default();
    };
    if let Ok(rule) = serde_json::from_value(word.clone().into()) {
        tracing::warn!(%word, "This replica breaks a rule of safety");
        Rules::breaking(rule)
    } else {
        tracing::error!(%word, "There is no such rule to break");
        Rules::default()
    }
}
