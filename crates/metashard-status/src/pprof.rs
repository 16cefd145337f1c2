//! `/debug/pprof`: profiles in the form that `go tool pprof` reads.

mod cpu;
mod heap;
mod profile;

use axum::{
    Router,
    extract::{RawQuery, State},
    http::{
        StatusCode,
        header::{CONTENT_DISPOSITION, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use metashard_runtime::{log::chain, task};
use prometheus::Registry;
use tracing::warn;

use self::profile::Profile;

const INDEX: &str = "/debug/pprof/\n\n\
    heap\tmemory in use, by what is cached\n\
    profile\tCPU time, sampled for ?seconds=30\n";

pub(crate) fn router(registry: Registry) -> Router {
    Router::new()
        .route("/debug/pprof/", get(async || INDEX))
        .route("/debug/pprof/heap", get(heap))
        .route("/debug/pprof/profile", get(cpu))
        .with_state(registry)
}

async fn heap(State(registry): State<Registry>) -> Response {
    answer("heap", &heap::profile_of(&registry.gather()))
}

/// A caller that goes away ends the sampling.
async fn cpu(RawQuery(query): RawQuery) -> Response {
    let asked = query.as_deref().and_then(|it| it.strip_prefix("seconds="));
    let Some(length) = cpu::length(asked) else {
        let text = "seconds: not a whole number from 1 to 300\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let sampled = match cpu::start() {
        Ok(sampled) => sampled,
        Err(error) => {
            warn!(error = chain(&error), "CPU profile not started");
            let text = "another profile is being taken\n";
            return (StatusCode::CONFLICT, text).into_response();
        }
    };
    tokio::time::sleep(length).await;
    let profile = task::blocking("cpu-profile", move || cpu::profile_of(&sampled)).await;
    match profile {
        Ok(Ok(profile)) => answer("profile", &profile),
        Ok(Err(error)) => {
            warn!(error = chain(&error), "CPU profile lost");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
        // It panicked, and that is in the log.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn answer(name: &str, profile: &Profile) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (
            CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}\""),
        ),
    ];
    (headers, profile.encode()).into_response()
}
