//! The fake hook: what it records, and each way in which it can fail a caller.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use anyhow::Context;
use metashard_testkit::{
    FakeHook,
    hook::{Answer, gap},
    wait::eventually,
};
use serde_json::json;

/// Sends one request on a new connection and reads all that comes until the connection ends.
fn call(hook: &FakeHook, path: &str, body: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", hook.port()))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: hook\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn an_answer_is_made_from_the_request_and_both_are_recorded() -> anyhow::Result<()> {
    let hook = FakeHook::json(|request| json!({ "seen": request["name"] }))?;

    let answer = call(&hook, "/sync", r#"{"name":"a"}"#)?;
    call(&hook, "/finalize", "{}")?;

    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with(r#"{"seen":"a"}"#), "{answer}");
    let calls = hook.calls_to("/sync");
    assert_eq!((calls.len(), hook.count()), (1, 2));
    assert_eq!(calls[0].json(), json!({ "name": "a" }));
    assert!(calls[0].answered >= Some(calls[0].received));
    Ok(())
}

#[test]
fn a_script_ends_by_repeating_its_last_answer() -> anyhow::Result<()> {
    let hook = FakeHook::scripted(vec![
        Answer::status(500, ""),
        Answer::status(429, "").header("retry-after", "7"),
    ])?;

    let answers: Vec<String> = (0..3)
        .map(|_| call(&hook, "/", ""))
        .collect::<Result<_, _>>()?;

    assert!(answers[0].starts_with("HTTP/1.1 500"));
    assert!(answers[1].starts_with("HTTP/1.1 429") && answers[1].contains("retry-after: 7"));
    assert!(answers[2].starts_with("HTTP/1.1 429"));
    Ok(())
}

#[test]
fn a_late_answer_is_late_by_the_delay() -> anyhow::Result<()> {
    let delay = Duration::from_millis(150);
    let hook = FakeHook::start(move |_| Answer::status(200, "").after(delay))?;

    call(&hook, "/", "")?;
    call(&hook, "/", "")?;

    let calls = hook.calls();
    assert!(gap(&calls[0], &calls[1]) >= delay);
    Ok(())
}

#[test]
fn a_cut_connection_gives_no_answer_or_half_of_one() -> anyhow::Result<()> {
    let hook = FakeHook::scripted(vec![
        Answer::cut(),
        Answer::status(200, "0123456789").cut_after(4),
    ])?;

    let nothing = call(&hook, "/", "")?;
    let half = call(&hook, "/", "")?;

    assert_eq!(nothing, "");
    assert!(
        half.contains("content-length: 10") && half.ends_with("0123"),
        "{half}"
    );
    Ok(())
}

#[tokio::test]
async fn a_hook_that_never_answers_keeps_its_caller_waiting_and_sees_it_go() -> anyhow::Result<()> {
    let hook = FakeHook::start(|_| Answer::never())?;
    let mut stream = TcpStream::connect(("127.0.0.1", hook.port()))?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    write!(
        stream,
        "POST / HTTP/1.1\r\nhost: hook\r\ncontent-length: 0\r\n\r\n"
    )?;

    let outcome = stream.read(&mut [0]);

    assert!(outcome.is_err(), "it answered or hung up: {outcome:?}");
    assert_eq!(hook.calls()[0].ended(), None);
    assert!(hook.take_calls().is_empty(), "it is under way");

    drop(stream);
    eventually(Duration::from_secs(5), "its end to be seen", async || {
        hook.calls()[0].cut.context("it is under way")
    })
    .await?;
    assert_eq!(hook.take_calls()[0].answered, None);
    assert_eq!(hook.count(), 0);
    Ok(())
}

#[test]
fn a_dropped_hook_can_come_back_on_its_port() -> anyhow::Result<()> {
    let port = metashard_testkit::cluster::free_port()?;
    let hook = FakeHook::start_on(port, |_| Answer::status(200, ""))?;

    drop(hook);
    let refused = TcpStream::connect(("127.0.0.1", port));
    let hook = FakeHook::start_on(port, |_| Answer::status(201, ""))?;
    let answer = call(&hook, "/", "")?;

    assert!(refused.is_err());
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    Ok(())
}
