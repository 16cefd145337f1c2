//! Reads the API server's audit log (`audit.k8s.io/v1`): what was written, by whom, and in which order.
//!
//! With bodies ([`crate::cluster::Options::audit_bodies`]) the order is that of resourceVersions; without, that of the
//! answers, which may differ for requests at the same moment.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use metashard_api::shard_map::ShardMapSpec;
use metashard_fleet::invariants::Verb;
use serde_json::Value;

use super::{ApiWrite, History, MapWrite, Writer};

impl History {
    /// Adds the writes that the events of a log tell of.
    pub fn take_audit(&mut self, events: &[Value]) {
        let mut writes: Vec<ApiWrite> = events.iter().filter_map(write).collect();
        self.writes.append(&mut writes);
        sort(&mut self.writes);
        let mut maps: Vec<(u64, MapWrite)> = events.iter().filter_map(map).collect();
        maps.sort_by_key(|(version, _)| *version);
        self.maps.extend(maps.into_iter().map(|(_, map)| map));
        let doubtful = || events.iter().filter(|event| is_doubtful(event));
        self.holes.extend(doubtful().filter_map(time));
        self.doubtful.extend(doubtful().filter_map(doubtful_map));
    }
}

/// By resourceVersion; what has none follows the state that it names, or what was answered before it.
fn sort(writes: &mut [ApiWrite]) {
    writes.sort_by_key(|write| write.at);
    let mut last = 0;
    let mut keyed: Vec<(u64, ApiWrite)> = Vec::with_capacity(writes.len());
    for write in writes.iter() {
        let named = write.replaced.as_deref().and_then(|it| it.parse().ok());
        let key = write.version.or(named).unwrap_or(last);
        last = last.max(key);
        keyed.push((key, write.clone()));
    }
    keyed.sort_by_key(|(key, write)| (*key, write.version.is_none()));
    for (place, (_, write)) in writes.iter_mut().zip(keyed) {
        *place = write;
    }
}

/// A write that was carried out and has changed something.
fn write(event: &Value) -> Option<ApiWrite> {
    let verb = match text(event, "/verb")? {
        "create" => Verb::Create,
        "update" | "patch" => Verb::Change,
        "delete" => Verb::Delete,
        _ => return None,
    };
    if !is_done(event) {
        return None;
    }
    let reference = |field: &str| event["objectRef"][field].as_str();
    let answered = |field: &str| text(event, &format!("/responseObject/metadata/{field}"));
    let is_object = text(event, "/responseObject/kind").is_some_and(|kind| kind != "Status");
    let name = reference("name").or_else(|| answered("name"))?;
    let version = answered("resourceVersion").and_then(|it| it.parse().ok());
    let replaced = match verb {
        Verb::Delete => text(event, "/requestObject/preconditions/resourceVersion"),
        Verb::Create | Verb::Change => text(event, "/requestObject/metadata/resourceVersion"),
    };
    let named = replaced.and_then(|it| it.parse().ok());
    if verb == Verb::Change && named.is_some() && named == version {
        return None;
    }
    Some(ApiWrite {
        at: time(event)?,
        writer: Writer::parse(text(event, "/userAgent").unwrap_or_default()),
        object: format!(
            "{} {}/{name}",
            reference("resource")?,
            reference("namespace").unwrap_or_default()
        ),
        verb: match verb {
            // An apply that has made the object.
            Verb::Change if event["responseStatus"]["code"] == 201 => Verb::Create,
            verb => verb,
        },
        replaced: replaced.map(str::to_owned),
        version: version.filter(|_| is_object),
    })
}

fn map(event: &Value) -> Option<(u64, MapWrite)> {
    let is_map = event["objectRef"]["resource"] == "shardmaps";
    let is_write = matches!(text(event, "/verb")?, "create" | "update" | "patch");
    if !is_map || !is_write || !is_done(event) {
        return None;
    }
    let version = text(event, "/responseObject/metadata/resourceVersion")?;
    let spec = event.pointer("/responseObject/spec")?;
    let spec: ShardMapSpec = serde_json::from_value(spec.clone()).ok()?;
    let at = time(event)?;
    Some((version.parse().ok()?, MapWrite { at, spec }))
}

/// A map of which nobody knows whether it was written.
fn doubtful_map(event: &Value) -> Option<MapWrite> {
    let is_map = event["objectRef"]["resource"] == "shardmaps";
    let spec = is_map.then(|| event.pointer("/requestObject/spec"))??;
    let spec: ShardMapSpec = serde_json::from_value(spec.clone()).ok()?;
    let at = time(event)?;
    Some(MapWrite { at, spec })
}

/// A write that the API server gave up on, as after a time-out: its store may have taken it all the same.
fn is_doubtful(event: &Value) -> bool {
    let verb = text(event, "/verb").unwrap_or_default();
    let code = event["responseStatus"]["code"].as_u64().unwrap_or(0);
    matches!(verb, "create" | "update" | "patch" | "delete") && !(200..500).contains(&code)
}

fn is_done(event: &Value) -> bool {
    let code = event["responseStatus"]["code"].as_u64().unwrap_or(0);
    let is_trial = text(event, "/requestURI").is_some_and(|uri| uri.contains("dryRun="));
    (200..300).contains(&code) && !is_trial
}

fn time(event: &Value) -> Option<Duration> {
    let at: Timestamp = text(event, "/requestReceivedTimestamp")?.parse().ok()?;
    Duration::try_from(at.duration_since(Timestamp::UNIX_EPOCH)).ok()
}

fn text<'a>(event: &'a Value, pointer: &str) -> Option<&'a str> {
    event.pointer(pointer)?.as_str()
}
