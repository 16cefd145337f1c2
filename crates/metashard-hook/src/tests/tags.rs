//! Former answers by entity tag.

use metashard_api::v1alpha1::webhook::Etag;

use super::{server::Request, *};

/// A caller whose endpoint keeps tags.
fn tagging(url: &str) -> Caller {
    let target = Target {
        etag: Some(Etag {
            enabled: true,
            ..Etag::default()
        }),
        ..target(url)
    };
    Caller::with(target, Clock::system())
}

/// A server that answers its n-th request with the n-th of `replies`, and a caller that keeps tags.
async fn answered_in_turn(replies: Vec<Vec<u8>>) -> (Arc<Server>, Caller) {
    let server =
        Server::start(move |request: &Request| Reply::Keep(replies[request.number].clone())).await;
    let caller = tagging(&server.url("/sync"));
    (server, caller)
}

fn tagged(tag: &str, body: &str) -> Vec<u8> {
    answer("200 OK", &format!("etag: {tag}\r\n"), body)
}

async fn results(caller: &Caller, n: usize) -> Vec<HookResult> {
    let mut results = Vec::new();
    for _ in 0..n {
        results.push(caller.call().await);
    }
    results
}

fn tags_sent(server: &Server) -> Vec<Option<String>> {
    let requests = server.requests();
    let sent = requests.iter().map(|it| it.header("if-none-match"));
    sent.map(|it| it.map(str::to_owned)).collect()
}

#[tokio::test]
async fn an_answer_that_has_not_changed_is_the_former_one() {
    let (server, caller) = answered_in_turn(vec![
        tagged("\"One\"", "first"),
        answer("304 Not Modified", "", ""),
        answer("412 Precondition Failed", "", "not again"),
        tagged("W/\"two\"", "second"),
        answer("304 Not Modified", "", ""),
    ])
    .await;

    let results = results(&caller, 5).await;

    let expected = ["first", "first", "first", "second", "second"].map(good);
    assert_eq!(results, expected);
    let one = Some("\"One\"".to_owned());
    let two = Some("W/\"two\"".to_owned());
    assert_eq!(
        tags_sent(&server),
        [None, one.clone(), one.clone(), one, two]
    );
    assert_eq!(server.counts().connections, 1);
}

#[tokio::test]
async fn not_modified_is_a_failure_unless_a_tag_was_sent() {
    for (code, name) in [(304, "Not Modified"), (412, "Precondition Failed")] {
        let status = format!("{code} {name}");
        let (_server, caller) = answered_in_turn(vec![answer(&status, "", "")]).await;

        let text = failure(caller.call().await);

        assert!(
            text.starts_with(&format!("unsupported status code: {code}")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_hook_that_fails_is_not_covered_by_its_former_answer() {
    let (server, caller) = answered_in_turn(vec![
        tagged("\"1\"", "first"),
        answer("500 Oops", "", "boom"),
        answer("429 Later", "retry-after: 7\r\n", ""),
        answer("304 Not Modified", "", ""),
    ])
    .await;

    let results = results(&caller, 4).await;

    assert_eq!(
        results[1],
        HookResult::Failed("unsupported status code: 500 body: boom".to_owned())
    );
    let retry_after = Some(Duration::from_secs(7));
    assert_eq!(results[2], HookResult::TooManyRequests { retry_after });
    // What was kept is kept on.
    assert_eq!(results[3], good("first"));
    assert_eq!(tags_sent(&server)[3].as_deref(), Some("\"1\""));
}

/// the peer has one answer for all revisions, and for a parent made anew under its name.
#[tokio::test]
async fn a_former_answer_is_for_the_same_question_only() {
    let server = Server::start(|request: &Request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        Reply::Keep(tagged("\"1\"", &body))
    })
    .await;
    let caller = tagging(&server.url("/sync"));

    for about in ["uid-1", "uid-1/revision", "uid-2"] {
        caller.call_about(about, vec!["{}".into()]).await;
    }

    assert_eq!(tags_sent(&server), [None, None, None]);
}

#[tokio::test]
async fn no_tag_is_sent_unless_it_is_asked_for() {
    let (server, caller) = answered_with(tagged("\"1\"", "{}")).await;

    results(&caller, 2).await;

    assert_eq!(tags_sent(&server), [None, None]);
}
