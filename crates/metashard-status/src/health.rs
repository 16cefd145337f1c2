//! `/healthz`, `/livez` and `/readyz`, in the form that the API server's own endpoints have.
//!
//! `ok` and 200 if all checks hold, else a line for each check and 500. `?verbose` always gives the lines,
//! `?exclude=<check>` leaves one out, and `/readyz/<check>` asks for one. Reasons are shown.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::get,
};
use metashard_runtime::shutdown::Token;

use crate::check::Check;

/// What the endpoints ask.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) live: Vec<Check>,
    pub(crate) ready: Vec<Check>,
    pub(crate) draining: Token,
}

/// A check's name and state at the time of asking.
type Asked = (&'static str, Result<(), String>);

#[derive(Debug, Clone, Copy)]
enum Endpoint {
    Healthz,
    Livez,
    Readyz,
}

pub(crate) fn router(checks: Arc<Checks>) -> Router {
    let endpoints = [
        ("/healthz", "/healthz/{check}", Endpoint::Healthz),
        ("/livez", "/livez/{check}", Endpoint::Livez),
        ("/readyz", "/readyz/{check}", Endpoint::Readyz),
    ];
    let mut router = Router::new();
    for (all, one, endpoint) in endpoints {
        router = router
            .route(
                all,
                get(
                    move |State(checks): State<Arc<Checks>>, uri: Uri| async move {
                        report(
                            endpoint,
                            &checks,
                            &Query::read(uri.query().unwrap_or_default()),
                        )
                    },
                ),
            )
            .route(
                one,
                get(
                    move |State(checks): State<Arc<Checks>>, Path(name): Path<String>| async move {
                        report_one(endpoint, &checks, &name)
                    },
                ),
            );
    }
    router.with_state(checks)
}

impl Endpoint {
    fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }

    /// All checks of this endpoint, the first of which says only that the process answers.
    fn ask(self, checks: &Checks) -> Vec<Asked> {
        let mut asked: Vec<Asked> = vec![(self.name(), Ok(()))];
        let named = match self {
            Self::Healthz | Self::Livez => &checks.live,
            Self::Readyz => {
                let is_draining = checks.draining.is_requested();
                let state = if is_draining {
                    Err("shutting down".to_owned())
                } else {
                    Ok(())
                };
                asked.push(("shutdown", state));
                &checks.ready
            }
        };
        asked.extend(named.iter().map(|check| (check.name(), check.state())));
        asked
    }
}

#[derive(Debug, Default)]
struct Query<'a> {
    is_verbose: bool,
    excluded: Vec<&'a str>,
}

impl<'a> Query<'a> {
    fn read(text: &'a str) -> Self {
        let mut query = Self::default();
        for part in text.split('&') {
            match part.split_once('=').unwrap_or((part, "")) {
                ("verbose", _) => query.is_verbose = true,
                ("exclude", name) => query.excluded.push(name),
                _ => {}
            }
        }
        query
    }
}

fn report(endpoint: Endpoint, checks: &Checks, query: &Query<'_>) -> Response {
    let asked = endpoint.ask(checks);
    let is_excluded = |name: &str| query.excluded.contains(&name);
    let fails = |(name, state): &Asked| state.is_err() && !is_excluded(name);
    let has_failed = asked.iter().any(fails);
    if !has_failed && !query.is_verbose {
        return "ok".into_response();
    }
    let mut text = String::new();
    for (name, state) in &asked {
        let line = match state {
            _ if is_excluded(name) => format!("[+]{name} excluded: ok"),
            Ok(()) => format!("[+]{name} ok"),
            Err(reason) => format!("[-]{name} failed: {reason}"),
        };
        push_line(&mut text, &line);
    }
    for name in &query.excluded {
        if !asked.iter().any(|(known, _)| known == name) {
            push_line(&mut text, &format!("warn: no check {name:?} to exclude"));
        }
    }
    let (status, outcome) = if has_failed {
        (StatusCode::INTERNAL_SERVER_ERROR, "failed")
    } else {
        (StatusCode::OK, "passed")
    };
    push_line(&mut text, &format!("{} check {outcome}", endpoint.name()));
    (status, text).into_response()
}

fn report_one(endpoint: Endpoint, checks: &Checks, name: &str) -> Response {
    match endpoint
        .ask(checks)
        .into_iter()
        .find(|(known, _)| *known == name)
    {
        None => (StatusCode::NOT_FOUND, format!("no check {name:?}\n")).into_response(),
        Some((_, Ok(()))) => "ok".into_response(),
        Some((_, Err(reason))) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{reason}\n")).into_response()
        }
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}
