//! The status of a controller object: what to write so that it says what is known, as a write like any other.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::{Timestamp, Unit},
};
use metashard_api::{
    resource::Resource,
    v1alpha1::status::{ControllerStatus, MigrationStatus},
};
use metashard_reconcile::{
    object::Object,
    write::{Op, Purpose, Write},
};
use serde_json::json;

/// What is known about one aspect of a controller: a condition without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// One of `metashard_api::names::condition`.
    pub type_: &'static str,
    /// `None`: unknown.
    pub is_true: Option<bool>,
    /// One of `metashard_api::names::reason`.
    pub reason: &'static str,
    /// For people: names object, field and fix.
    pub message: String,
}

/// Who serves a controller, and for how many parents; nothing of it where nobody does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Served<'a> {
    /// The shard that it belongs to.
    pub shard: Option<u16>,
    /// The replica that serves the shard.
    pub worker: Option<&'a str>,
    /// How many parents it has, as far as that is known.
    pub parents: Option<u32>,
    /// How its move from Metacontroller goes.
    pub migration: Option<&'a MigrationStatus>,
}

/// The write that makes `controller` say what is `known`, at `wall`; `None` if it says so already.
///
/// Conditions of other types stay. A condition whose status stays keeps its time. What is `served` is set as given.
/// The write needs an authority as every other: only the owner of the controller's shard may tell.
pub fn write(
    resource: &Arc<Resource>,
    controller: &Object,
    known: &[Known],
    served: Served<'_>,
    wall: SystemTime,
) -> Option<Write> {
    // A status that cannot be read is replaced.
    let old: ControllerStatus = controller
        .status()
        .and_then(|status| serde_json::from_slice(status).ok())
        .unwrap_or_default();
    let mut new = ControllerStatus {
        observed_generation: Some(controller.generation()),
        shard: served.shard,
        worker: served.worker.map(str::to_owned),
        parents: served.parents,
        conditions: old.conditions.clone(),
        migration: served.migration.cloned(),
    };
    for known in known {
        let status = match known.is_true {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let words = (known.type_, status, known.reason, known.message.as_str());
        set(&mut new.conditions, words, controller.generation(), wall);
    }
    if new == old {
        return None;
    }
    let body = json!({
        "apiVersion": controller.api_version(),
        "kind": controller.kind(),
        "metadata": {
            "name": controller.name(),
            "namespace": controller.namespace(),
            "uid": controller.uid(),
            "resourceVersion": controller.resource_version(),
        },
        "status": new,
    });
    Some(Write {
        resource: Arc::clone(resource),
        namespace: controller.namespace().map(Into::into),
        name: controller.name().into(),
        op: Op::UpdateStatus {
            body: Bytes::from(body.to_string()),
        },
        purpose: Purpose::UpdateStatus,
        why: "conditions".into(),
    })
}

/// Puts a condition in, by its type, status, reason and message. One whose status stays keeps its time.
pub(crate) fn set(
    conditions: &mut Vec<Condition>,
    (type_, status, reason, message): (&str, &str, &str, &str),
    generation: i64,
    wall: SystemTime,
) {
    let old = conditions
        .iter_mut()
        .find(|condition| condition.type_ == type_);
    let since = match &old {
        Some(old) if old.status == status => old.last_transition_time.clone(),
        _ => now(wall),
    };
    let new = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: Some(generation),
        last_transition_time: since,
    };
    match old {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

fn now(wall: SystemTime) -> Time {
    let now = Timestamp::try_from(wall).unwrap_or(Timestamp::UNIX_EPOCH);
    Time(now.round(Unit::Second).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metashard_api::id::ControllerKind;
    use serde_json::Value;

    use super::*;

    fn resource() -> Arc<Resource> {
        Arc::new(Resource::of_controllers(ControllerKind::Composite))
    }

    fn controller(status: &Value) -> Object {
        let object = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1",
            "kind": "CompositeController",
            "metadata": { "name": "c", "uid": "u", "resourceVersion": "5", "generation": 3 },
            "status": status,
        });
        Object::parse(Bytes::from(object.to_string())).unwrap()
    }

    fn known(is_true: bool, message: &str) -> Known {
        Known {
            type_: "Ready",
            is_true: Some(is_true),
            reason: "Valid",
            message: message.to_owned(),
        }
    }

    fn status_after(status: &Value, known: &[Known], at: u64) -> Option<Value> {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(at);
        let write = write(
            &resource(),
            &controller(status),
            known,
            Served {
                shard: Some(7),
                worker: Some("replica-1"),
                parents: Some(2),
                migration: None,
            },
            wall,
        )?;
        let Op::UpdateStatus { body } = write.op else {
            panic!("{write:?}")
        };
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["metadata"]["resourceVersion"], "5");
        Some(body["status"].clone())
    }

    #[test]
    fn what_is_said_already_is_not_written_again() {
        let status = status_after(&Value::Null, &[known(true, "all is well")], 10).unwrap();

        assert_eq!(status["observedGeneration"], 3);
        assert_eq!(status["parents"], 2);
        assert_eq!(
            status["conditions"][0]["lastTransitionTime"],
            "1970-01-01T00:00:10Z"
        );
        assert_eq!(
            status_after(&status, &[known(true, "all is well")], 99),
            None
        );
    }

    #[test]
    fn another_message_is_written_and_keeps_the_time() {
        let status = status_after(&Value::Null, &[known(false, "one")], 10).unwrap();

        let other = status_after(&status, &[known(false, "two")], 20).unwrap();
        let turned = status_after(&other, &[known(true, "")], 30).unwrap();

        assert_eq!(
            other["conditions"][0]["lastTransitionTime"],
            "1970-01-01T00:00:10Z"
        );
        assert_eq!(
            turned["conditions"][0]["lastTransitionTime"],
            "1970-01-01T00:00:30Z"
        );
    }

    #[test]
    fn a_condition_of_another_program_stays() {
        let foreign = json!({ "type": "Audited", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });

        let status =
            status_after(&json!({ "conditions": [foreign] }), &[known(true, "")], 10).unwrap();

        assert_eq!(status["conditions"][0], foreign);
        assert_eq!(status["conditions"][1]["type"], "Ready");
    }
}
