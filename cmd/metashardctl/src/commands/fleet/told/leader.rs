//! What a leader machine is told and does.

use metashard_fleet::{
    leader::{Action, Input},
    lease,
    message::FromWorker,
};

use super::{
    Told, of_answer, of_map, of_message, of_order, of_record, of_request, of_seen, of_write,
    of_written, version,
};

impl Told for Input {
    fn told(&self) -> String {
        match self {
            Self::LeaderLeaseSeen(seen) => format!("leader's Lease: {}", of_seen(seen)),
            Self::LeaderLeaseAnswered(answer) => format!("leader's Lease: {}", of_answer(answer)),
            Self::OwnRenewal(Some(_)) => "own renewals succeed".to_owned(),
            Self::OwnRenewal(None) => "own renewals fail".to_owned(),
            Self::WorkerLeaseSeen(worker, seen) => format!("Lease of {worker}: {}", of_seen(seen)),
            Self::WorkerLeaseRead(worker, None) => {
                format!("Lease of {worker}: no answer to a read")
            }
            Self::WorkerLeaseRead(worker, Some(seen)) => {
                format!("Lease of {worker}: reads {}", of_seen(seen))
            }
            Self::WorkerLeaseWritten(worker, written) => {
                format!("Lease of {worker}: {}", of_written(written, of_record))
            }
            Self::MapSeen(seen) => format!("ShardMap: {}", of_map(seen)),
            Self::MapRead(None) => "ShardMap: no answer to a read".to_owned(),
            Self::MapRead(Some(seen)) => format!("ShardMap: reads {}", of_map(seen)),
            Self::MapWritten(written) => {
                format!(
                    "ShardMap: {}",
                    of_written(written, |map| version(&map.spec))
                )
            }
            Self::ControllersSeen(all) => {
                let asking = all.values().flatten().count();
                format!(
                    "{} controllers, {asking} of which ask for slices",
                    all.len()
                )
            }
            Self::FromWorker(worker, message) => format!("{worker} says {}", of_message(message)),
            Self::SessionClosed(worker) => format!("session of {worker} closed"),
            Self::IncarnationDrawn(drawn) => format!("incarnation {drawn}"),
            other => format!("{other:?}"),
        }
    }

    fn is_routine(&self) -> bool {
        matches!(
            self,
            Self::LeaderLeaseSeen(_)
                | Self::LeaderLeaseAnswered(_)
                | Self::OwnRenewal(Some(_))
                | Self::WorkerLeaseSeen(..)
                | Self::FromWorker(_, FromWorker::Load(_))
        )
    }
}

impl Told for Action {
    fn told(&self) -> String {
        match self {
            Self::LeaderLease(request) => format!("leader's Lease: {}", of_request(request)),
            Self::WorkerLease(worker, request) => {
                format!("Lease of {worker}: {}", of_request(request))
            }
            Self::DeleteWorkerLease(worker, _) => format!("delete the Lease of {worker}"),
            Self::WriteMap(write) => of_write(write),
            Self::Send(worker, message) => format!("tell {worker} {}", of_order(&message.order)),
            Self::Report(report) => format!("report {report:?}"),
            other => format!("{other:?}"),
        }
    }

    fn is_routine(&self) -> bool {
        matches!(
            self,
            Self::LeaderLease(lease::Request::Put(_) | lease::Request::Read)
                | Self::WorkerLease(_, lease::Request::Read)
        )
    }
}
