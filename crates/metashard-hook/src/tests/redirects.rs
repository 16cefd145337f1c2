//! Redirects, as Go follows them.

use super::*;

fn redirect(status: &str, location: &str) -> Reply {
    Reply::Keep(answer(status, &format!("location: {location}\r\n"), ""))
}

#[tokio::test]
async fn redirect_307_and_308_repeat_the_call() {
    for status in ["307 Temporary Redirect", "308 Permanent Redirect"] {
        let server = Server::start(move |request| match request.number {
            0 => redirect(status, "/moved?x=1"),
            _ => Reply::Keep(ok("{}")),
        })
        .await;
        let caller = Caller::new(&server.url("/sync"));

        let result = caller.call_with(vec!["abc".into()]).await;

        assert_eq!(result, good("{}"));
        let requests = server.requests();
        assert_eq!(requests[1].line, "POST /moved?x=1 HTTP/1.1");
        assert_eq!(requests[1].body, b"abc");
        assert_eq!(requests[1].header("x-metashard-epoch"), Some("42"));
        assert_eq!(server.counts().connections, 1);
    }
}

#[tokio::test]
async fn redirect_301_302_and_303_turn_the_call_into_a_get() {
    for status in ["301 Moved Permanently", "302 Found", "303 See Other"] {
        let server = Server::start(move |request| match request.number {
            0 => redirect(status, "elsewhere"),
            // Once a GET, it stays one.
            1 => redirect("307 Temporary Redirect", "/there"),
            _ => Reply::Keep(ok("{}")),
        })
        .await;
        let caller = Caller::new(&server.url("/hooks/sync"));

        let result = caller.call().await;

        assert_eq!(result, good("{}"));
        let requests = server.requests();
        assert_eq!(requests[1].line, "GET /hooks/elsewhere HTTP/1.1");
        assert_eq!(requests[1].header("content-length"), None);
        assert_eq!(requests[1].header("content-type"), None);
        assert_eq!(requests[2].line, "GET /there HTTP/1.1");
    }
}

#[tokio::test]
async fn redirect_leads_to_another_host() {
    let (other, _) = answered_with(ok("{\"other\":1}")).await;
    let location = other.url("/sync");
    let server = Server::start(move |_| redirect("307 Temporary Redirect", &location)).await;
    let caller = Caller::new(&server.url("/sync"));

    for _ in 0..5 {
        assert_eq!(caller.call().await, good("{\"other\":1}"));
    }

    let host = other.url("").replace("http://", "");
    assert_eq!(other.requests()[0].header("host"), Some(host.as_str()));
    assert_eq!(other.counts().connections, 1);
    assert_eq!(server.counts().connections, 1);
}

#[tokio::test]
async fn tenth_redirect_is_not_followed() {
    let server = Server::start(|_| redirect("307 Temporary Redirect", "/again")).await;
    let caller = Caller::new(&server.url("/sync"));

    let text = failure(caller.call().await);

    assert!(text.ends_with("stopped after 10 redirects"), "{text}");
    assert_eq!(server.counts().requests, 10);
}

#[tokio::test]
async fn redirect_without_a_place_is_a_bad_answer() {
    let (_server, caller) = answered_with(answer("302 Found", "", "where?")).await;

    assert_eq!(
        failure(caller.call().await),
        "unsupported status code: 302 body: where?"
    );
}

#[tokio::test]
async fn redirect_to_what_is_no_hook_is_a_failure() {
    for location in ["ftp://other/", "http://user:password@other/", "http://"] {
        let server = Server::start(move |_| redirect("302 Found", location)).await;
        let caller = Caller::new(&server.url("/sync"));

        let text = failure(caller.call().await);

        assert!(text.contains("bad Location"), "{text}");
    }
}
