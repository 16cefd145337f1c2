//! What is sent, and what comes of each kind of answer.

use super::*;
use crate::answer::MAX_BODY;

#[tokio::test]
async fn request_is_a_post_with_its_length_and_its_ownership() {
    let (server, caller) = answered_with(ok("{}")).await;
    let pieces = ["{\"parent\":", "", "{}", "}"].map(|piece: &'static str| Bytes::from(piece));

    caller.call_with(pieces.to_vec()).await;

    let requests = server.requests();
    let request = &requests[0];
    assert_eq!(request.line, "POST /sync HTTP/1.1");
    assert_eq!(request.body, b"{\"parent\":{}}");
    assert_eq!(request.header("content-length"), Some("13"));
    assert_eq!(request.header("transfer-encoding"), None);
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("x-metashard-shard"), Some("7"));
    assert_eq!(request.header("x-metashard-epoch"), Some("42"));
    assert_eq!(request.header("accept-encoding"), Some("identity"));
    let agent = concat!("metashard/", env!("CARGO_PKG_VERSION"));
    assert_eq!(request.header("user-agent"), Some(agent));
    let host = server.url("").replace("http://", "");
    assert_eq!(request.header("host"), Some(host.as_str()));
}

#[tokio::test]
async fn body_of_many_pieces_arrives_whole() {
    let (server, caller) = answered_with(ok("{}")).await;
    let pieces: Vec<_> = (0..500)
        .map(|n| Bytes::from(format!("{n:04}").repeat(n)))
        .collect();

    caller.call_with(pieces.clone()).await;

    assert_eq!(server.requests()[0].body, pieces.concat());
}

#[tokio::test]
async fn body_of_200_is_the_answer() {
    let (_server, caller) = answered_with(ok("{\"children\":[]}")).await;

    assert_eq!(caller.call().await, good("{\"children\":[]}"));
}

#[tokio::test]
async fn answer_in_chunks_is_put_together() {
    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let (_server, caller) = answered_with(chunked).await;

    assert_eq!(caller.call().await, good("abcde"));
}

#[tokio::test]
async fn answer_without_a_length_ends_with_the_connection() {
    let server = Server::start(|_| Reply::Close(b"HTTP/1.0 200 OK\r\n\r\nabc".to_vec())).await;
    let caller = Caller::new(&server.url("/"));

    assert_eq!(caller.call().await, good("abc"));
}

#[tokio::test]
async fn any_other_status_is_a_failure_that_shows_the_body() {
    for (status, body, expected) in [
        ("201 Created", "{}", "unsupported status code: 201 body: {}"),
        (
            "404 Not Found",
            "nope",
            "unsupported status code: 404 body: nope",
        ),
        (
            "500 Internal Server Error",
            "<html>oops</html>",
            "unsupported status code: 500 body: <html>oops</html>",
        ),
        (
            "412 Precondition Failed",
            "",
            "unsupported status code: 412 body: ",
        ),
    ] {
        let (_server, caller) = answered_with(answer(status, "", body)).await;

        assert_eq!(failure(caller.call().await), expected);
    }
}

/// The recorded answers whose status decides, so that whoever reads bodies never sees them.
#[tokio::test]
async fn every_recorded_status_but_200_is_a_failure_in_metacontrollers_words() {
    let text = include_str!("../../../../tests/vectors/responses.jsonl");
    let cases = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut count = 0;
    for case in cases.filter(|case| case["errorClass"] == "status") {
        let status = format!("{} Some", case["status"]);
        let body = case["body"].as_str().unwrap();
        let (_server, caller) = answered_with(answer(&status, "", body)).await;

        assert_eq!(failure(caller.call().await), case["error"], "{case}");
        count += 1;
    }
    assert_eq!(count, 10, "every line of that kind is looked at");
}

#[tokio::test]
async fn status_without_a_body_is_a_failure() {
    let (_server, caller) = answered_with("HTTP/1.1 204 No Content\r\n\r\n").await;

    assert_eq!(
        failure(caller.call().await),
        "unsupported status code: 204 body: "
    );
}

#[tokio::test]
async fn shown_body_is_cut_between_characters() {
    let body = format!("a{}", "é".repeat(2000));
    let (_server, caller) = answered_with(answer("500 Oops", "", &body)).await;

    let text = failure(caller.call().await);

    let shown = text.strip_prefix("unsupported status code: 500 body: ");
    assert_eq!(shown.unwrap(), format!("a{}", "é".repeat(511)));
}

#[tokio::test]
async fn bad_answer_whose_body_never_ends_is_not_waited_for() {
    let head = b"HTTP/1.1 500 Oops\r\ncontent-length: 9999\r\n\r\nabc".to_vec();
    let server = Server::start(move |_| Reply::Later(head.clone(), AMPLE, Vec::new())).await;
    let caller = Caller::new(&server.url("/"));

    assert_eq!(
        failure(caller.call().await),
        "unsupported status code: 500 body: abc"
    );
}

#[tokio::test]
async fn status_429_says_how_long_to_wait() {
    for (header, expected) in [
        ("retry-after: 7\r\n", Some(7)),
        ("retry-after: 1000000000000\r\n", Some(600)),
        ("retry-after: -3\r\n", Some(1)),
        ("retry-after: Fri, 02 Jan 1970 03:04:05 GMT\r\n", Some(1)),
        ("retry-after: Fri, 02 Jan 9000 03:04:05 GMT\r\n", Some(600)),
        ("retry-after: soon\r\n", None),
        ("retry-after: 5\r\nretry-after: 9\r\n", Some(5)),
        ("", None),
    ] {
        let reply = answer("429 Too Many Requests", header, "slow down");
        let (_server, caller) = answered_with(reply).await;

        assert_eq!(
            caller.call().await,
            HookResult::TooManyRequests {
                retry_after: expected.map(Duration::from_secs)
            },
            "{header}"
        );
    }
}

#[tokio::test]
async fn status_503_may_say_how_long_to_wait_and_is_a_failure() {
    let reply = answer("503 Service Unavailable", "retry-after: 7\r\n", "soon");
    let (_server, caller) = answered_with(reply).await;
    let expected = HookResult::Unavailable {
        error: "unsupported status code: 503 body: soon".to_owned(),
        retry_after: Duration::from_secs(7),
    };
    assert_eq!(caller.call().await, expected);

    for (status, header) in [
        ("503 Service Unavailable", ""),
        ("503 Service Unavailable", "retry-after: soon\r\n"),
        ("500 Oops", "retry-after: 7\r\n"),
    ] {
        let (_server, caller) = answered_with(answer(status, header, "")).await;

        failure(caller.call().await);
    }
}

#[tokio::test]
async fn cut_answers_are_failures() {
    for reply in [
        Reply::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"a\":".to_vec()),
        Reply::Close(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab".to_vec()),
        Reply::Close(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nab".to_vec()),
        Reply::Close(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()),
        Reply::Close(Vec::new()),
        Reply::Close(b"<html>not HTTP</html>\r\n\r\n".to_vec()),
        Reply::Reset(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"a\":".to_vec()),
        Reply::Reset(Vec::new()),
    ] {
        let reply = parking_lot::Mutex::new(Some(reply));
        let server = Server::start(move |_| reply.lock().take().unwrap_or(Reply::Never)).await;
        let caller = Caller::new(&server.url("/sync"));

        let text = failure(caller.call().await);

        let expected = format!("http error: POST {}: ", server.url("/sync"));
        assert!(text.starts_with(&expected), "{text}");
        assert_eq!(server.counts().requests, 1, "{text}");
    }
}

#[tokio::test]
async fn answer_that_says_it_is_too_long_is_refused_before_it_is_read() {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
        MAX_BODY + 1
    );
    // No byte of the body ever comes.
    let server =
        Server::start(move |_| Reply::Later(head.clone().into_bytes(), AMPLE, Vec::new())).await;
    let caller = Caller::new(&server.url("/"));

    assert_eq!(
        failure(caller.call().await),
        "http error: response body is longer than 8388608 bytes"
    );
}

#[tokio::test]
async fn answer_that_turns_out_too_long_is_cut_off() {
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000)).into_bytes();
    let server = Server::start(move |_| Reply::Endless(head.clone(), chunk.clone())).await;
    let caller = Caller::new(&server.url("/"));

    let text = failure(caller.call().await);

    assert_eq!(
        text,
        "http error: response body is longer than 8388608 bytes"
    );
    server.until(|counts| counts.closed == 1).await;
}

#[tokio::test]
async fn longest_answer_is_read() {
    let body = "x".repeat(MAX_BODY);
    let (_server, caller) = answered_with(ok(&body)).await;

    assert_eq!(caller.call().await, good(&body));
}

#[tokio::test]
async fn compressed_answer_is_refused_unread() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 99\r\n\r\n".to_vec();
    let server = Server::start(move |_| Reply::Later(head.clone(), AMPLE, Vec::new())).await;
    let caller = Caller::new(&server.url("/"));

    assert_eq!(
        failure(caller.call().await),
        "http error: response has an encoding that was not asked for: \"gzip\""
    );
}

#[tokio::test]
async fn answer_that_says_it_is_not_encoded_is_read() {
    let (_server, caller) =
        answered_with(answer("200 OK", "content-encoding: identity\r\n", "{}")).await;

    assert_eq!(caller.call().await, good("{}"));
}

#[tokio::test]
async fn huge_heads_are_refused() {
    for headers in [
        "x-name: y\r\n".repeat(10_000),
        format!("x: {}\r\n", "y".repeat(1 << 20)),
    ] {
        let (_server, caller) = answered_with(answer("200 OK", &headers, "{}")).await;

        let text = failure(caller.call().await);

        assert!(text.contains("too large"), "{text}");
    }
}

#[tokio::test]
async fn hook_that_is_not_there_is_a_failure_that_names_its_address() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let caller = Caller::new(&format!("http://{address}/sync"));

    let text = failure(caller.call().await);

    assert!(
        text.starts_with(&format!("http error: connect to {address}: ")),
        "{text}"
    );
}

#[tokio::test]
async fn hook_whose_name_nobody_knows_is_a_failure_that_names_it() {
    let caller = Caller::new("http://hook.invalid/sync");

    let text = failure(caller.call().await);

    assert!(
        text.starts_with("http error: resolve hook.invalid: "),
        "{text}"
    );
}
