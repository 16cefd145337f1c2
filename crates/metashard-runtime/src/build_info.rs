//! Which build this is, for logs, metrics and User-Agent headers.

/// Version of this program, as in its manifest.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Git revision that it was built from, if the build was told one in `METASHARD_REVISION`; else `unknown`.
pub const REVISION: &str = match option_env!("METASHARD_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// `User-Agent` of requests to hooks. Requests to the API server add replica, shard and epoch.
pub const USER_AGENT: &str = concat!("metashard/", env!("CARGO_PKG_VERSION"));
