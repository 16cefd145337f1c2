//! How connections are kept, given up and cancelled.

use std::time::SystemTime;

use metashard_fleet::time::Now;
use metashard_runtime::{clock::ManualClock, task};
use tokio::time::timeout;

use super::*;

#[tokio::test]
async fn thousand_calls_use_one_connection() {
    let (server, caller) = answered_with(ok("{}")).await;

    for _ in 0..1000 {
        assert_eq!(caller.call().await, good("{}"));
    }

    assert_eq!(server.counts().requests, 1000);
    assert_eq!(server.counts().connections, 1);
}

#[tokio::test]
async fn calls_at_a_time_keep_as_many_connections_and_no_more() {
    let (server, caller) = answered_with(ok("{}")).await;
    let caller = Arc::new(caller);

    for _ in 0..20 {
        let mut calls = task::Tasks::new();
        for _ in 0..8 {
            let caller = Arc::clone(&caller);
            calls.spawn("call", async move { caller.call().await });
        }
        while let Some(call) = calls.join_next().await {
            assert_eq!(call.result.unwrap(), good("{}"));
        }
    }

    assert!(server.counts().connections <= 8, "{:?}", server.counts());
}

#[tokio::test]
async fn bad_answers_keep_their_connection() {
    for status in ["500 Oops", "429 Too Many Requests", "404 Not Found"] {
        let (server, caller) = answered_with(answer(status, "", "<html>")).await;

        for _ in 0..10 {
            caller.call().await;
        }

        assert_eq!(server.counts().connections, 1, "{status}");
    }
}

#[tokio::test]
async fn hook_that_closes_after_each_answer_is_connected_to_anew() {
    let reply = || Reply::Close(answer("200 OK", "connection: close\r\n", "{}"));
    let server = Server::start(move |_| reply()).await;
    let caller = Caller::new(&server.url("/"));

    for _ in 0..5 {
        assert_eq!(caller.call().await, good("{}"));
    }

    assert_eq!(server.counts().connections, 5);
    assert_eq!(server.counts().requests, 5);
}

#[tokio::test]
async fn call_succeeds_after_the_hook_closed_the_idle_connection() {
    let server = Server::start(|_| Reply::Close(ok("{}"))).await;
    let caller = Caller::new(&server.url("/"));

    for _ in 0..50 {
        assert_eq!(caller.call().await, good("{}"));
    }

    assert_eq!(server.counts().requests, 50);
}

#[tokio::test]
async fn call_succeeds_after_the_hook_was_tired_of_the_idle_connection() {
    let idle = Duration::from_millis(50);
    let server = Server::start(move |_| Reply::CloseLater(ok("{}"), idle)).await;
    let caller = Caller::new(&server.url("/"));
    for calls in 1..=3 {
        assert_eq!(caller.call().await, good("{}"));
        server.until(|counts| counts.closed == calls).await;
    }

    assert_eq!(server.counts().requests, 3);
}

#[tokio::test]
async fn request_that_met_a_connection_closed_in_silence_is_sent_once_more() {
    let server = Server::start(|request| match request.number {
        1 => Reply::Reset(Vec::new()),
        _ => Reply::Keep(ok("{}")),
    })
    .await;
    let caller = Caller::new(&server.url("/"));
    caller.call().await;

    let second = caller.call_with(vec!["abc".into(), "def".into()]).await;

    assert_eq!(second, good("{}"));
    assert_eq!(server.counts().connections, 2);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[2].body, b"abcdef");
}

#[tokio::test]
async fn request_is_sent_no_third_time() {
    let server = Server::start(|request| match request.number {
        0 => Reply::Keep(ok("{}")),
        _ => Reply::Close(Vec::new()),
    })
    .await;
    let caller = Caller::new(&server.url("/"));
    caller.call().await;

    failure(caller.call().await);

    assert_eq!(server.counts().requests, 3);
}

#[tokio::test]
async fn request_that_was_answered_in_part_is_not_sent_again() {
    let server = Server::start(|request| match request.number {
        0 => Reply::Keep(ok("{}")),
        _ => Reply::Close(b"HTTP/1.1 200".to_vec()),
    })
    .await;
    let caller = Caller::new(&server.url("/"));
    caller.call().await;

    failure(caller.call().await);

    assert_eq!(server.counts().requests, 2);
}

#[tokio::test]
async fn hook_that_never_answers_is_given_up_at_its_own_limit() {
    let server = Server::start(|_| Reply::Never).await;
    let caller = Caller::with_timeout(&server.url("/sync"), Duration::from_millis(80));

    let text = timeout(AMPLE / 2, caller.call())
        .await
        .map(failure)
        .unwrap();

    let expected = format!(
        "http error: call {}: timed out after 80ms",
        server.url("/sync")
    );
    assert_eq!(text, expected);
    assert!(caller.in_flight().abs() < f64::EPSILON);
    server.until(|counts| counts.closed == 1).await;
}

#[tokio::test]
async fn slow_hook_is_waited_for_within_its_own_limit() {
    let wait = Duration::from_millis(300);
    let server = Server::start(move |_| Reply::Later(Vec::new(), wait, ok("{}"))).await;
    let patient = Caller::with_timeout(&server.url("/"), AMPLE);
    let impatient = Caller::with_timeout(&server.url("/"), wait / 5);

    let (first, second) = tokio::join!(patient.call(), impatient.call());

    assert_eq!(first, good("{}"));
    assert!(failure(second).ends_with("timed out after 60ms"));
}

#[tokio::test]
async fn limit_covers_the_body() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc".to_vec();
    let server = Server::start(move |_| Reply::Later(head.clone(), AMPLE, Vec::new())).await;
    let caller = Caller::with_timeout(&server.url("/"), Duration::from_millis(80));

    let text = failure(caller.call().await);

    assert!(text.ends_with("timed out after 80ms"), "{text}");
}

#[tokio::test]
async fn call_that_is_dropped_closes_its_connection() {
    let server = Server::start(|_| Reply::Never).await;
    let caller = Arc::new(Caller::new(&server.url("/")));
    let calling = Arc::clone(&caller);
    let call = task::spawn("call", async move { calling.call().await });
    server.until(|counts| counts.requests == 1).await;
    assert!((caller.in_flight() - 1.0).abs() < f64::EPSILON);

    call.abort();

    server.until(|counts| counts.closed == 1).await;
    assert!(caller.in_flight().abs() < f64::EPSILON);
}

#[tokio::test]
async fn time_out_gives_up_the_idle_connections_too() {
    // Two at once make two connections; from the third request on, the Pod behind both is gone.
    let server = Server::start(|request| match request.number {
        0 | 1 => Reply::Later(Vec::new(), Duration::from_millis(50), ok("{}")),
        2 => Reply::Never,
        _ => Reply::Keep(ok("{}")),
    })
    .await;
    let caller = Caller::with_timeout(&server.url("/"), Duration::from_millis(500));
    tokio::join!(caller.call(), caller.call());
    failure(caller.call().await);

    let next = caller.call().await;

    assert_eq!(next, good("{}"));
    assert_eq!(server.counts().connections, 3);
}

#[tokio::test]
async fn connection_is_not_used_for_longer_than_a_minute() {
    let manual = ManualClock::new(Now::default(), SystemTime::UNIX_EPOCH);
    let server = Server::start(|_| Reply::Keep(ok("{}"))).await;
    let caller = Caller::with(target(&server.url("/")), manual.clock());
    for _ in 0..4 {
        caller.call().await;
        manual.advance(Duration::from_secs(16));
    }
    assert_eq!(server.counts().connections, 1);

    caller.call().await;

    assert_eq!(server.counts().connections, 2);
}

#[tokio::test]
async fn idle_connection_is_closed_by_itself() {
    let manual = ManualClock::new(Now::default(), SystemTime::UNIX_EPOCH);
    let server = Server::start(|_| Reply::Keep(ok("{}"))).await;
    let caller = Caller::with(target(&server.url("/")), manual.clock());
    caller.call().await;
    // Lets the task that looks after idle connections begin its wait.
    tokio::task::yield_now().await;

    manual.advance(Duration::from_secs(31));

    server.until(|counts| counts.closed == 1).await;
}

#[tokio::test]
async fn dropping_the_endpoint_closes_its_connections_and_removes_its_metrics() {
    let (server, caller) = answered_with(ok("{}")).await;
    caller.call().await;
    let Caller {
        endpoint, registry, ..
    } = caller;
    assert!(!registry.gather().is_empty());

    drop(endpoint);

    server.until(|counts| counts.closed == 1).await;
    assert!(registry.gather().is_empty());
}
