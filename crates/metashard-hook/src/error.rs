//! Why a call of a hook gave no answer. The texts reach users in events, so they begin as Metacontroller's do.

use std::{io, net::SocketAddr, time::Duration};

/// A hook gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The exchange did not end in time, body included.
    #[error("http error: call {url}: timed out after {limit:?}")]
    TimedOut {
        /// What was called.
        url: String,
        /// The hook's time-out.
        limit: Duration,
    },
    /// The name of the host could not be turned into an address.
    #[error("http error: resolve {host}")]
    Resolve {
        /// The host.
        host: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Nobody accepted the connection.
    #[error("http error: connect to {address}")]
    Connect {
        /// The address that was tried last.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// No secure connection came about. There is no falling back to plain text.
    #[error("http error: TLS handshake with {host}")]
    Handshake {
        /// The host.
        host: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A connection that was made could not be taken into use.
    #[error("http error: begin HTTP with {host}")]
    Begin {
        /// The host.
        host: String,
        /// Why not.
        #[source]
        source: hyper::Error,
    },
    /// The connection broke, or what came over it is not HTTP within limits.
    #[error("http error: {method} {url}")]
    Exchange {
        /// The method.
        method: http::Method,
        /// What was called.
        url: String,
        /// What went wrong.
        #[source]
        source: hyper::Error,
    },
    /// One redirect led to the next.
    #[error("http error: {url}: stopped after {limit} redirects")]
    TooManyRedirects {
        /// What was called first.
        url: String,
        /// How many requests were made.
        limit: usize,
    },
    /// A redirect leads to something that is no address of a hook.
    #[error("http error: follow redirect from {url}: bad Location {location:?}")]
    BadRedirect {
        /// What was called.
        url: String,
        /// Where it wanted to lead.
        location: String,
    },
    /// The answer is encoded in a way that was not asked for, as a compressed one is.
    #[error("http error: response has an encoding that was not asked for: {encoding:?}")]
    Encoded {
        /// Value of the header `Content-Encoding`.
        encoding: String,
    },
    /// The answer is longer than any good one.
    #[error("http error: response body is longer than {limit} bytes")]
    TooLarge {
        /// Longest body read.
        limit: usize,
    },
    /// A status other than 200 and 429.
    #[error("unsupported status code: {code} body: {body}")]
    Status {
        /// The status.
        code: u16,
        /// The beginning of the body.
        body: String,
    },
    /// Certificates and credentials have not been read yet.
    #[error("http error: certificates and credentials have not been read yet")]
    NotSecured,
    /// Certificates for https could not be set up.
    #[error("http error: set up TLS")]
    Tls {
        /// Why not.
        #[source]
        source: rustls::Error,
    },
}

impl Error {
    /// Whether the connections that are still open are likely to be as bad as the one that this is about: the Pod behind
    /// all of them may be gone without a word.
    pub(crate) const fn speaks_against_its_connection(&self) -> bool {
        match self {
            Self::TimedOut { .. }
            | Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Handshake { .. }
            | Self::Begin { .. }
            | Self::Exchange { .. } => true,
            Self::TooManyRedirects { .. }
            | Self::BadRedirect { .. }
            | Self::Encoded { .. }
            | Self::TooLarge { .. }
            | Self::Status { .. }
            | Self::NotSecured
            | Self::Tls { .. } => false,
        }
    }
}
