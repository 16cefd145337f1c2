//! Whether an object has become what it asks to be, from its status alone, by the rules that most tools share (kstatus).

use serde_json::Value;

/// Where an object stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It is as it asks to be, or says nothing.
    Current,
    /// It is on the way.
    InProgress,
    /// It is being deleted.
    Terminating,
    /// It will not get there by itself.
    Failed,
}

impl Health {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::InProgress => "InProgress",
            Self::Terminating => "Terminating",
            Self::Failed => "Failed",
        }
    }
}

/// Where an object stands, and why if it is not there yet.
pub fn of(object: &Value) -> (Health, String) {
    if object["metadata"]["deletionTimestamp"].is_string() {
        let holds = object["metadata"]["finalizers"].as_array();
        let holds: Vec<_> = holds
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let why = if holds.is_empty() {
            "is being deleted".to_owned()
        } else {
            format!("is held by {}", holds.join(", "))
        };
        return (Health::Terminating, why);
    }
    let status = &object["status"];
    let generation = object["metadata"]["generation"].as_i64();
    if let (Some(generation), Some(seen)) = (generation, status["observedGeneration"].as_i64())
        && seen < generation
    {
        let why = format!("generation {generation} is not observed yet, {seen} is");
        return (Health::InProgress, why);
    }
    let of_kind = match object["kind"].as_str().unwrap_or_default() {
        "Deployment" => replicas(object, &["updatedReplicas", "availableReplicas"]),
        "StatefulSet" => replicas(object, &["updatedReplicas", "readyReplicas"]),
        "ReplicaSet" | "ReplicationController" => replicas(object, &["readyReplicas"]),
        "DaemonSet" => daemons(status),
        "Pod" => pod(status),
        "Job" => job(object),
        "PersistentVolumeClaim" => phase(status, "Bound"),
        _ => None,
    };
    // What a condition says is worse or more telling than numbers.
    conditions(status)
        .or(of_kind)
        .unwrap_or((Health::Current, String::new()))
}

type Found = Option<(Health, String)>;

fn conditions(status: &Value) -> Found {
    let find = |type_: &str, status_: &str| {
        let conditions = status["conditions"].as_array()?;
        conditions
            .iter()
            .find(|it| it["type"] == type_ && it["status"] == status_)
    };
    let text = |condition: &Value| {
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        match (text("reason"), text("message")) {
            (reason, message) if message.is_empty() => reason,
            (reason, message) => format!("{reason}: {message}"),
        }
    };
    let stuck = [
        ("Stalled", "True"),
        ("ReplicaFailure", "True"),
        ("Failed", "True"),
    ];
    if let Some(found) = stuck.iter().find_map(|(type_, status)| find(type_, status)) {
        return Some((Health::Failed, text(found)));
    }
    let is_late = |it: &&Value| it["reason"] == "ProgressDeadlineExceeded";
    if let Some(found) = find("Progressing", "False").filter(is_late) {
        return Some((Health::Failed, text(found)));
    }
    let found = find("Reconciling", "True").or_else(|| find("Ready", "False"))?;
    Some((Health::InProgress, text(found)))
}

/// As many as wanted, by each of these fields of the status.
fn replicas(object: &Value, fields: &[&str]) -> Found {
    let wanted = object["spec"]["replicas"].as_u64().unwrap_or(1);
    let status = &object["status"];
    let short = fields
        .iter()
        .map(|field| (field, status[field].as_u64().unwrap_or(0)))
        .find(|(_, count)| *count < wanted)?;
    let (field, count) = short;
    Some((
        Health::InProgress,
        format!("{field} is {count} of {wanted}"),
    ))
}

fn daemons(status: &Value) -> Found {
    let count = |field: &str| status[field].as_u64().unwrap_or(0);
    let (wanted, ready) = (count("desiredNumberScheduled"), count("numberReady"));
    (ready < wanted).then(|| (Health::InProgress, format!("{ready} of {wanted} are ready")))
}

fn pod(status: &Value) -> Found {
    let waits = |field: &str| {
        let statuses = status[field].as_array()?;
        statuses
            .iter()
            .find_map(|it| it["state"]["waiting"]["reason"].as_str())
    };
    let waiting = waits("containerStatuses").or_else(|| waits("initContainerStatuses"));
    match (status["phase"].as_str().unwrap_or_default(), waiting) {
        ("Succeeded", _) => Some((Health::Current, String::new())),
        ("Failed", _) => {
            let reason = status["reason"].as_str().unwrap_or("it has failed");
            Some((Health::Failed, reason.to_owned()))
        }
        (_, Some(reason)) if reason.contains("BackOff") || reason.starts_with("Err") => {
            Some((Health::Failed, reason.to_owned()))
        }
        ("Running", _) => None,
        (phase, _) => Some((Health::InProgress, format!("its phase is {phase:?}"))),
    }
}

fn job(object: &Value) -> Found {
    let status = &object["status"];
    let conditions = status["conditions"].as_array();
    let is_complete = conditions
        .into_iter()
        .flatten()
        .any(|it| it["type"] == "Complete" && it["status"] == "True");
    if is_complete || object["spec"]["suspend"] == true {
        return None;
    }
    let done = status["succeeded"].as_u64().unwrap_or(0);
    let wanted = object["spec"]["completions"].as_u64().unwrap_or(1);
    Some((
        Health::InProgress,
        format!("{done} of {wanted} have succeeded"),
    ))
}

fn phase(status: &Value, wanted: &str) -> Found {
    let phase = status["phase"].as_str().unwrap_or_default();
    (phase != wanted).then(|| {
        (
            Health::InProgress,
            format!("its phase is {phase:?}, not {wanted}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn health(object: &Value) -> Health {
        of(object).0
    }

    #[test]
    fn what_says_nothing_is_current() {
        assert_eq!(health(&json!({"kind": "ConfigMap"})), Health::Current);
    }

    #[test]
    fn a_status_of_an_older_generation_is_not_believed() {
        let object = json!({
            "kind": "Foo", "metadata": {"generation": 3},
            "status": {"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True"}]},
        });

        assert_eq!(health(&object), Health::InProgress);
    }

    #[test]
    fn a_deployment_counts_its_replicas_and_fails_when_it_is_late() {
        let mut object = json!({
            "kind": "Deployment", "spec": {"replicas": 2},
            "status": {"updatedReplicas": 2, "availableReplicas": 1},
        });
        assert_eq!(
            of(&object),
            (Health::InProgress, "availableReplicas is 1 of 2".to_owned())
        );

        object["status"]["conditions"] = json!([
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"},
        ]);
        assert_eq!(health(&object), Health::Failed);

        object["status"] = json!({"updatedReplicas": 2, "availableReplicas": 2});
        assert_eq!(health(&object), Health::Current);
    }

    #[test]
    fn what_is_deleted_names_what_holds_it() {
        let object = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a", "b"]}});

        assert_eq!(
            of(&object),
            (Health::Terminating, "is held by a, b".to_owned())
        );
    }

    #[test]
    fn a_pod_that_crashes_again_and_again_has_failed() {
        let object = json!({"kind": "Pod", "status": {
            "phase": "Running",
            "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
        }});

        assert_eq!(of(&object), (Health::Failed, "CrashLoopBackOff".to_owned()));
    }
}
