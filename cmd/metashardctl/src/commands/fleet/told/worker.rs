//! What a worker machine is told and does.

use metashard_fleet::{
    lease,
    message::FromWorker,
    worker::{Action, Input},
};

use super::{Told, of_answer, of_claim, of_claims, of_map, of_message, of_order, of_request};

impl Told for Input {
    fn told(&self) -> String {
        match self {
            Self::MapSeen(seen) => format!("ShardMap: {}", of_map(seen)),
            Self::MapRead(None) => "ShardMap: no answer to a read".to_owned(),
            Self::MapRead(Some(seen)) => format!("ShardMap: reads {}", of_map(seen)),
            Self::IncarnationDrawn(drawn) => format!("incarnation {drawn}"),
            Self::LeaseAnswered { answer, .. } => format!("own Lease: {}", of_answer(answer)),
            Self::OrderReceived(message) => {
                format!(
                    "leader of term {} says {}",
                    message.term,
                    of_order(&message.order)
                )
            }
            Self::Warmed(shard) => format!("caches of shard {shard} are filled"),
            Self::Fresh(claim) => format!("caches of {} are fresh", of_claim(*claim)),
            Self::Drained { claim, .. } => format!("{} is drained", of_claim(*claim)),
            Self::ShutdownAsked { grace } => format!("shutdown within {grace:?}"),
            other => format!("{other:?}"),
        }
    }

    fn is_routine(&self) -> bool {
        matches!(self, Self::LeaseAnswered { .. } | Self::DispatcherAnswered)
    }
}

impl Told for Action {
    fn told(&self) -> String {
        match self {
            Self::Lease { request, .. } => format!("own Lease: {}", of_request(request)),
            Self::OpenSession(incarnation) => format!("open a session as {incarnation}"),
            Self::Send(message) => format!("tell the leader {}", of_message(message)),
            Self::Warm(shard) => format!("fill the caches of shard {shard}"),
            Self::Start { claim, .. } => format!("start {}", of_claim(*claim)),
            Self::Drain { claim, grace } => format!("drain {} within {grace:?}", of_claim(*claim)),
            Self::Drop(claim) => format!("drop {}", of_claim(*claim)),
            Self::Finish { unfinished } => {
                format!("finish; not drained: {}", of_claims(unfinished))
            }
            other => format!("{other:?}"),
        }
    }

    fn is_routine(&self) -> bool {
        matches!(
            self,
            Self::Lease {
                request: lease::Request::Put(_) | lease::Request::Read,
                ..
            } | Self::PingDispatcher
                | Self::Send(FromWorker::Load(_))
        )
    }
}
