//! The server in front of the database: HTTP/1.1, and its moods.

use std::{
    convert::Infallible,
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    Method, Request, Response, StatusCode, body::Incoming, header, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use metashard_runtime::task;
use serde_json::{Value, json};

use super::{Refusal, Store, request::Target, status, watch};
use crate::{
    dice::Dice,
    facts::Writer,
    network::{Network, STORE, STORE_PORT},
    plan::{Plan, Weather},
};

pub(super) type Body = BoxBody<Bytes, Infallible>;

/// How a request is treated.
#[derive(Debug, Default)]
struct Treatment {
    /// Before it is carried out.
    delay: Duration,
    /// After it was carried out.
    answer_delay: Duration,
    /// It is not carried out, and this is answered.
    refused: Option<u16>,
    /// It is carried out, and this is answered nevertheless.
    spoiled: Option<u16>,
    /// The connection breaks instead of the answer.
    reset: bool,
}

/// Serves the store on its host for as long as that runs.
pub(crate) async fn serve(
    store: Store,
    network: Network,
    plan: Plan,
    start: u64,
) -> io::Result<()> {
    let ear = network.listen(STORE, STORE_PORT).await?;
    let mut n_connections = 0;
    loop {
        let link = ear.accept().await?;
        n_connections += 1;
        let connection = format!("connection {start} {n_connections}");
        let (store, seed, streaming) = (store.clone(), plan.seed, plan.streaming);
        task::spawn("connection", async move {
            let requests = AtomicU64::new(0);
            let service = service_fn(move |request| {
                let number = requests.fetch_add(1, Ordering::Relaxed);
                let dice = Dice::new(seed, &format!("{connection} {number}"));
                let answering = answer(store.clone(), request, dice, streaming);
                // A client that gives up takes nothing back.
                let answering = task::spawn("request", answering);
                async move { answering.await.map_err(io::Error::other)? }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(link), service);
            // Its end says nothing: clients come back.
            drop(connection.await);
        });
    }
}

async fn answer(
    store: Store,
    request: Request<Incoming>,
    mut dice: Dice,
    streaming: bool,
) -> io::Result<Response<Body>> {
    let Some(target) = Target::parse(request.uri()) else {
        return Ok(refusal(404, "NotFound"));
    };
    let treatment = Treatment::draw(&store, &mut dice, target.is_watch());
    tokio::time::sleep(treatment.delay.min(target.timeout())).await;
    if treatment.delay >= target.timeout() {
        return Ok(refusal(504, "Timeout"));
    }
    if let Some(code) = treatment.refused {
        return Ok(refusal(code, "Refused"));
    }
    if target.is_watch() {
        return Ok(watch::answer(&store, &target, streaming));
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let agent = parts.headers.get(header::USER_AGENT);
    let writer = Writer::of(agent.and_then(|it| it.to_str().ok()).unwrap_or_default());
    let done = carry_out(&store, &parts.method, &target, &body, &writer);
    tokio::time::sleep(treatment.answer_delay).await;
    if treatment.reset {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    if let Some(code) = treatment.spoiled {
        return Ok(refusal(code, "InternalError"));
    }
    Ok(match done {
        Ok(object) => json_answer(StatusCode::OK, &object),
        Err(Refusal::NotFound) => refusal(404, "NotFound"),
        Err(Refusal::AlreadyExists) => refusal(409, "AlreadyExists"),
        Err(Refusal::Conflict) => refusal(409, "Conflict"),
        Err(Refusal::Invalid) => refusal(422, "Invalid"),
    })
}

impl Treatment {
    fn draw(store: &Store, dice: &mut Dice, is_watch: bool) -> Self {
        let mut drawn = Self::default();
        if store.is(Weather::Blackout) {
            drawn.refused = Some(503);
        }
        if store.is(Weather::Slow) && dice.chance(60) {
            drawn.delay = dice.between(50, 1_600);
        }
        if is_watch {
            return drawn;
        }
        if store.is(Weather::SlowAnswers) && dice.chance(70) {
            drawn.answer_delay = dice.between(200, 980);
        }
        if store.is(Weather::LostAnswers) && dice.chance(40) {
            drawn.answer_delay = Duration::from_secs(30);
        }
        if store.is(Weather::TooMany) && dice.chance(40) {
            drawn.refused = Some(429);
        }
        if store.is(Weather::Errors) && dice.chance(40) {
            let code = Some(dice.pick(&[500, 503, 504]));
            if dice.chance(50) {
                drawn.refused = code;
            } else {
                drawn.spoiled = code;
            }
        }
        drawn.reset = store.is(Weather::Resets) && dice.chance(40);
        drawn
    }
}

fn carry_out(
    store: &Store,
    method: &Method,
    target: &Target,
    body: &[u8],
    writer: &Writer,
) -> Result<Value, Refusal> {
    let key = &target.key;
    let read = || serde_json::from_slice::<Value>(body).map_err(|_| Refusal::Invalid);
    match *method {
        Method::GET if key.name.is_empty() => Ok(list(store, target)),
        Method::GET => store.get(key).ok_or(Refusal::NotFound),
        Method::POST => {
            let object = read()?;
            let name = object["metadata"]["name"].as_str();
            let mut key = key.clone();
            name.ok_or(Refusal::Invalid)?.clone_into(&mut key.name);
            store.create(&key, &object, writer)
        }
        Method::PUT => store.update(key, &read()?, writer),
        Method::DELETE => {
            let options = read()?;
            store.delete(key, &options["preconditions"])?;
            Ok(json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }))
        }
        _ => Err(Refusal::Invalid),
    }
}

fn list(store: &Store, target: &Target) -> Value {
    let (version, items) = store.list(&target.key);
    json!({
        "kind": "List", "apiVersion": target.api_version,
        "metadata": { "resourceVersion": version.to_string() },
        "items": items,
    })
}

pub(super) fn refusal(code: u16, reason: &str) -> Response<Body> {
    let code = StatusCode::from_u16(code).expect("it is a code");
    let mut answer = json_answer(code, &status(code.as_u16(), reason, "by chance"));
    if code == StatusCode::TOO_MANY_REQUESTS {
        let wait = header::HeaderValue::from_static("1");
        answer.headers_mut().insert(header::RETRY_AFTER, wait);
    }
    answer
}

fn json_answer(code: StatusCode, body: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(body.to_string())).boxed();
    let answer = Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json");
    answer.body(body).expect("it is an answer")
}
