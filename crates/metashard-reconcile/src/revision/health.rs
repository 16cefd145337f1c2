//! Whether a child that was moved is well, so that the next one may be moved.

use metashard_api::v1alpha1::composite::StatusCondition;
use serde_json::Value;

use crate::{
    controller::{ChildRule, UpdateStrategy},
    object::Object,
};

/// What is wrong with an observed child, as the end of a sentence that begins with `child <Kind> <name>`.
pub(crate) fn trouble(rule: &ChildRule, child: &Object) -> Option<String> {
    let checks = rule.rolling.as_deref().unwrap_or_default();
    let status: Value = child
        .status()
        .and_then(|raw| serde_json::from_slice(raw).ok())
        .unwrap_or_default();
    // A status says nothing of a spec that it is older than. Not every kind tells.
    let observed = status["observedGeneration"].as_i64().unwrap_or(0);
    if rule.update == UpdateStrategy::InPlace && observed > 0 && observed < child.generation() {
        return Some("with RollingInPlace update strategy hasn't observed latest spec".to_owned());
    }
    checks
        .iter()
        .find_map(|check| failure(check, &status))
        .map(|failure| format!("failed status check: {failure}"))
}

fn failure(check: &StatusCondition, status: &Value) -> Option<String> {
    let type_ = &check.type_;
    let conditions = status["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|it| it["type"] == type_.as_str()));
    let Some(found) = found else {
        return Some(format!("required condition type missing: {type_:?}"));
    };
    [("status", &check.status), ("reason", &check.reason)]
        .into_iter()
        .find_map(|(field, want)| {
            let want = want.as_deref()?;
            let has = found[field].as_str().unwrap_or_default();
            (has != want).then(|| format!("{type_:?} condition {field} is {has:?} (want {want:?})"))
        })
}
