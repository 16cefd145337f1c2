//! The order of ends.

use metashard_api::id::{Epoch, ShardId};
use tokio::sync::mpsc;

use super::*;

const GRACE: Duration = Duration::from_secs(10);

/// Notes `name` once `token` is requested.
async fn noted(log: mpsc::Sender<&'static str>, token: Token, name: &'static str) {
    token.requested().await;
    log.send(name).await.unwrap();
}

async fn all_of(names: &mut mpsc::Receiver<&'static str>) -> Vec<&'static str> {
    let mut all = Vec::new();
    while let Some(name) = names.recv().await {
        all.push(name);
    }
    all
}

#[tokio::test]
async fn the_worker_ends_before_the_leader_and_the_leader_before_the_rest() {
    let all = Shutdown::new();
    let mut services = Services::new(all.clone());
    let (log, mut noted_names) = mpsc::channel(8);
    services.service("other", noted(log.clone(), services.rest(), "other"));
    services.leader(noted(log.clone(), services.lead(), "leader"));
    let worker = noted(log.clone(), services.leaving(), "worker");
    services.worker(async move {
        worker.await;
        Vec::new()
    });

    all.request();
    services.run(&Clock::system(), GRACE).await.unwrap();

    drop(log);
    assert_eq!(
        all_of(&mut noted_names).await,
        ["worker", "leader", "other"]
    );
}

#[tokio::test]
async fn a_worker_that_ends_as_soon_as_it_is_told_to_has_not_ended_by_itself() {
    // Which of two events that are both there is seen first is drawn by lot.
    for _ in 0..50 {
        let all = Shutdown::new();
        let mut services = Services::new(all.clone());
        let leaving = services.leaving();
        services.worker(async move {
            leaving.requested().await;
            Vec::new()
        });

        tokio::task::yield_now().await;
        all.request();
        tokio::task::yield_now().await;

        services.run(&Clock::system(), GRACE).await.unwrap();
    }
}

#[tokio::test]
async fn a_replica_without_worker_or_leader_ends_too() {
    let all = Shutdown::new();
    let mut services = Services::new(all.clone());
    let (log, mut noted_names) = mpsc::channel(8);
    services.service("other", noted(log.clone(), services.rest(), "other"));

    all.request();
    services.run(&Clock::system(), GRACE).await.unwrap();

    drop(log);
    assert_eq!(all_of(&mut noted_names).await, ["other"]);
}

#[tokio::test]
async fn a_service_that_ends_by_itself_takes_the_others_down_and_is_named() {
    let mut services = Services::new(Shutdown::new());
    let (log, mut noted_names) = mpsc::channel(8);
    services.leader(noted(log.clone(), services.lead(), "leader"));
    services.worker(async { Vec::new() });

    let error = services.run(&Clock::system(), GRACE).await.unwrap_err();

    assert_eq!(error.to_string(), "worker ended by itself");
    drop(log);
    assert_eq!(all_of(&mut noted_names).await, ["leader"]);
}

#[tokio::test]
async fn a_service_that_does_not_end_is_left_when_the_grace_period_is_over() {
    let all = Shutdown::new();
    let mut services = Services::new(all.clone());
    services.service("stubborn", std::future::pending());
    services.worker(async {
        vec![Claim {
            shard: ShardId(7),
            epoch: Epoch(1),
        }]
    });

    all.request();
    let ended = services
        .run(&Clock::system(), Duration::from_millis(50))
        .await;

    assert!(ended.is_ok());
}
