//! The way back to Metacontroller, from wherever the move has come to.

use super::{BOTH_WAYS, Next};
use crate::migrate::{
    record::{Record, Stage},
    seen::{ControllerSeen, Seen},
};

/// The next step on the way back.
pub fn rollback(seen: &Seen) -> Next {
    let Some(record) = &seen.record else {
        return Next::Stop(vec![
            "no move is recorded in this namespace, so there is nothing to go back from; is it another --system-namespace?"
                .to_owned(),
        ]);
    };
    match record.stage {
        Stage::Observing | Stage::Stopping | Stage::Moving | Stage::Done => {
            seen.turn(Stage::HandingBack)
        }
        Stage::HandingBack => hand_back(seen, record),
        Stage::Back => Next::Finished(vec![
            "Metacontroller acts again, and metashard writes nothing.".to_owned(),
            "`kubectl rollout status` tells when its Pods are up. metashard may go on observing, or be stopped; \
             `metashardctl migrate apply` begins anew."
                .to_owned(),
        ]),
    }
}

fn hand_back(seen: &Seen, record: &Record) -> Next {
    if let Some(next) = seen.mark_all(record.round) {
        return next;
    }
    let acting = seen.controllers.iter().find(|it| !rests(it, record));
    if let (Some(acting), true) = (acting, seen.replicas != Some(0)) {
        return Next::Wait(format!(
            "metashard to say that it writes nothing any more for {}; where it cannot, stop it: then its Leases run out",
            acting.title()
        ));
    }
    for workload in &record.workloads {
        let Some(peer) = seen.peers.iter().find(|it| it.workload.is_same(workload)) else {
            return Next::Stop(vec![
                format!(
                    "{} is not there any more, so it cannot be started: install it again",
                    workload.title()
                ),
                BOTH_WAYS.to_owned(),
            ]);
        };
        if peer.workload.replicas < workload.replicas {
            return Next::Scale(workload.clone());
        }
    }
    Next::Record(Record {
        stage: Stage::Back,
        ..record.clone()
    })
}

/// Whether the replica that serves a controller has said, in this round, that it writes nothing for it.
fn rests(controller: &ControllerSeen, record: &Record) -> bool {
    let answer = controller.answer(record.round);
    answer.is_some_and(|answer| !answer.acts && answer.held)
}
