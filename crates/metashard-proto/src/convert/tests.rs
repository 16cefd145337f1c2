//! Every message survives the wire; what makes no sense does not.

use metashard_api::id::{ControllerUid, Slice};
use metashard_fleet::message::{ControllerLoad, Load, ShardLoad};
use proptest::{collection::vec, prelude::*};
use prost::Message;

use super::*;

fn any_claim() -> impl Strategy<Value = Claim> {
    (0..MAX_SHARDS, 1..u64::MAX).prop_map(|(shard, epoch)| Claim {
        shard: ShardId(shard),
        epoch: Epoch(epoch),
    })
}

fn any_last_written() -> impl Strategy<Value = LastWritten> {
    ("[a-z]{1,8}/v1/[a-z]{1,12}", "[0-9]{1,20}").prop_map(|(resource, resource_version)| {
        LastWritten {
            resource,
            resource_version,
        }
    })
}

fn any_load() -> impl Strategy<Value = ShardLoad> {
    (0..MAX_SHARDS, any::<u64>(), any::<u32>(), any::<u64>()).prop_map(
        |(shard, cost_micros, queued, cached_bytes)| ShardLoad {
            shard: ShardId(shard),
            cost_micros,
            queued,
            cached_bytes,
        },
    )
}

fn any_controller_load() -> impl Strategy<Value = ControllerLoad> {
    ("[a-f0-9-]{36}", 0..64_u16, any::<u64>()).prop_map(|(uid, slice, cost_micros)| {
        ControllerLoad {
            controller: ControllerUid::new(uid),
            slice: Slice(slice),
            cost_micros,
        }
    })
}

fn any_whole_load() -> impl Strategy<Value = Load> {
    let controllers = vec(any_controller_load(), 0..8);
    (vec(any_load(), 0..8), controllers, 0..=1000_u32).prop_map(
        |(shards, controllers, busy_permille)| Load {
            shards,
            controllers,
            busy_permille,
        },
    )
}

fn any_grace() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_millis)
}

fn any_from_worker() -> impl Strategy<Value = FromWorker> {
    prop_oneof![
        (
            "[a-z0-9-]{1,60}",
            "[a-f0-9-]{36}",
            vec(any_claim(), 0..8),
            vec(any_claim(), 0..8)
        )
            .prop_map(|(replica, incarnation, held, released)| FromWorker::Hello {
                replica: ReplicaId::new(replica),
                incarnation: Incarnation::new(incarnation),
                held,
                released,
            }),
        any_whole_load().prop_map(FromWorker::Load),
        (0..MAX_SHARDS).prop_map(|shard| FromWorker::WarmReady {
            shard: ShardId(shard)
        }),
        (any_claim(), vec(any_last_written(), 0..4)).prop_map(|(claim, last_written)| {
            FromWorker::Released {
                claim,
                last_written,
            }
        }),
        any_grace().prop_map(|grace| FromWorker::Leaving { grace }),
    ]
}

fn any_from_leader() -> impl Strategy<Value = FromLeader> {
    let order = prop_oneof![
        (0..MAX_SHARDS).prop_map(|shard| Order::Warm {
            shard: ShardId(shard)
        }),
        (
            any_claim(),
            vec(any_last_written(), 0..4),
            any::<(u64, u64)>()
        )
            .prop_map(|(claim, last_written, (term, seq))| Order::Assign {
                claim,
                last_written,
                splits_as_of: (Term(term), Seq(seq)),
            }),
        (any_claim(), any_grace()).prop_map(|(claim, grace)| Order::Drain { claim, grace }),
    ];
    (any::<u64>(), any::<u64>(), order).prop_map(|(term, seq, order)| FromLeader {
        term: Term(term),
        seq: Seq(seq),
        order,
    })
}

proptest! {
    #[test]
    fn every_worker_message_survives_the_wire(message in any_from_worker()) {
        let bytes = wire::WorkerMessage::from(message.clone()).encode_to_vec();

        let read = wire::WorkerMessage::decode(bytes.as_slice()).unwrap();

        prop_assert_eq!(FromWorker::try_from(read), Ok(message));
    }

    #[test]
    fn every_leader_message_survives_the_wire(message in any_from_leader()) {
        let bytes = wire::LeaderMessage::from(message.clone()).encode_to_vec();

        let read = wire::LeaderMessage::decode(bytes.as_slice()).unwrap();

        prop_assert_eq!(FromLeader::try_from(read), Ok(message));
    }

    #[test]
    fn no_bytes_make_the_conversion_panic(bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(read) = wire::WorkerMessage::decode(bytes.as_slice()) {
            drop(FromWorker::try_from(read));
        }
        if let Ok(read) = wire::LeaderMessage::decode(bytes.as_slice()) {
            drop(FromLeader::try_from(read));
        }
    }
}

fn worker_error(body: wire::worker_message::Body) -> Error {
    FromWorker::try_from(wire::WorkerMessage { body: Some(body) }).unwrap_err()
}

#[test]
fn a_message_without_content_is_refused() {
    let worker = FromWorker::try_from(wire::WorkerMessage { body: None });
    let leader = FromLeader::try_from(wire::LeaderMessage::default());

    assert_eq!(worker, Err(Error::Missing("body")));
    assert_eq!(leader, Err(Error::Missing("order")));
}

#[test]
fn of_a_newer_version_fields_are_ignored_and_other_messages_refused() {
    let said = FromWorker::WarmReady { shard: ShardId(7) };
    // Field 100, a number.
    let field = [0xa0, 0x06, 0x01];
    // Field 15, a message, as of a further kind.
    let kind = [0x7a, 0x00];

    let mut bytes = wire::WorkerMessage::from(said.clone()).encode_to_vec();
    bytes.extend(field);
    let read = wire::WorkerMessage::decode(bytes.as_slice()).unwrap();
    let other = wire::WorkerMessage::decode(kind.as_slice()).unwrap();

    assert_eq!(FromWorker::try_from(read), Ok(said));
    assert_eq!(FromWorker::try_from(other), Err(Error::Missing("body")));
}

#[test]
fn a_shard_beyond_the_largest_map_is_refused() {
    for number in [u32::from(MAX_SHARDS), 65_536, u32::MAX] {
        let body = wire::worker_message::Body::WarmReady(wire::WarmReady { shard: number });

        assert_eq!(worker_error(body), Error::Shard(number));
    }
}

#[test]
fn a_release_without_a_claim_or_of_epoch_0_is_refused() {
    let without = wire::Released::default();
    let never_owned = wire::Released {
        claim: Some(wire::Claim { shard: 7, epoch: 0 }),
        last_written: Vec::new(),
    };

    let missing = worker_error(wire::worker_message::Body::Released(without));
    let zero = worker_error(wire::worker_message::Body::Released(never_owned));

    assert_eq!(missing, Error::Missing("released.claim"));
    assert_eq!(zero, Error::NeverOwned(7));
}

#[test]
fn a_hello_without_a_name_or_with_an_endless_one_is_refused() {
    for (replica, bytes) in [(String::new(), 0), ("x".repeat(254), 254)] {
        let hello = wire::Hello {
            replica,
            incarnation: "0".repeat(36),
            ..wire::Hello::default()
        };

        let error = worker_error(wire::worker_message::Body::Hello(hello));

        let field = "replica";
        assert_eq!(error, Error::Name { field, bytes });
    }
}

#[test]
fn a_load_of_too_many_controllers_or_of_one_that_cannot_be_is_refused() {
    let load = |controller: &str, slice, count| {
        let controller = wire::ControllerLoad {
            controller: controller.to_owned(),
            slice,
            cost_micros: 1,
        };
        worker_error(wire::worker_message::Body::Load(wire::Load {
            controllers: vec![controller; count],
            ..wire::Load::default()
        }))
    };

    let (field, uid) = ("load.controllers", "load.controller");
    assert_eq!(load("a", 0, 1025), Error::TooMany { field, count: 1025 });
    assert_eq!(load("a", 64, 1), Error::Slice(64));
    let [none, endless] = [0, 65].map(|bytes| Error::Name { field: uid, bytes });
    assert_eq!(load("", 0, 1), none);
    assert_eq!(load(&"a".repeat(65), 0, 1), endless);
}

#[test]
fn a_worker_is_busy_by_a_thousand_thousandths_at_most() {
    let body = wire::worker_message::Body::Load(wire::Load {
        busy_permille: u32::MAX,
        ..wire::Load::default()
    });

    let message = FromWorker::try_from(wire::WorkerMessage { body: Some(body) }).unwrap();

    assert_eq!(
        message,
        FromWorker::Load(Load {
            busy_permille: 1000,
            ..Load::default()
        })
    );
}
