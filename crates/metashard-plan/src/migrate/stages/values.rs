//! Steps of a move, and what is seen in it, for programs.

use serde_json::{Value, json};

use super::Next;
use crate::migrate::{
    record::Workload,
    seen::{ControllerSeen, LeaseSeen, PeerSeen, Seen},
};

/// A step that was carried out; `None` where nothing was. A step into another stage tells how
/// controllers were at the end of the one before.
pub fn as_step(next: &Next, seen: &Seen) -> Option<Value> {
    Some(match next {
        Next::Record(record) => json!({
            "step": "record", "stage": record.stage.as_str(), "round": record.round,
            "controllers": controllers(seen),
        }),
        Next::Mark { kind, name, mark } => json!({
            "step": "mark", "kind": kind, "name": name,
            "observe": mark.map(|it| it.observe), "round": mark.map(|it| it.round),
        }),
        Next::Scale(workload) => {
            let before = seen.peers.iter().find(|it| it.workload.is_same(workload));
            json!({
                "step": "scale", "workload": workload.title(),
                "from": before.map(|it| it.workload.replicas), "to": workload.replicas,
            })
        }
        Next::Wait(_) | Next::Stop(_) | Next::Finished(_) => return None,
    })
}

/// How far a move has come: its stage (`null`: none has begun), Metacontroller, and each controller.
pub fn as_seen(seen: &Seen) -> Value {
    let record = seen.record.as_ref();
    json!({
        "stage": record.map(|it| it.stage.as_str()),
        "round": record.map(|it| it.round),
        "metacontrollers": seen.peers.iter().map(peer).collect::<Vec<_>>(),
        "leases": seen.leases.iter().map(lease).collect::<Vec<_>>(),
        "strayPods": seen.strays,
        "replicas": seen.replicas,
        "controllers": controllers(seen),
    })
}

fn controllers(seen: &Seen) -> Vec<Value> {
    let all = seen.controllers.iter();
    all.map(|it| controller(it, seen)).collect()
}

fn peer(peer: &PeerSeen) -> Value {
    let Workload {
        kind,
        namespace,
        name,
        replicas,
    } = &peer.workload;
    json!({"kind": kind, "namespace": namespace, "name": name, "replicas": replicas, "pods": peer.pods})
}

fn lease(lease: &LeaseSeen) -> Value {
    json!({"name": lease.title, "holder": lease.holder, "isOver": lease.is_over})
}

/// What its replica answered, if that is of the round which goes on.
fn controller(controller: &ControllerSeen, seen: &Seen) -> Value {
    let round = seen.record.as_ref().map(|it| it.round);
    let answer = round.and_then(|it| controller.answer(it));
    json!({
        "kind": controller.kind,
        "name": controller.name,
        "observe": controller.observe,
        "ready": controller.ready,
        "message": controller.message,
        "answer": answer,
    })
}
