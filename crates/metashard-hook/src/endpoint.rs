//! One hook of one controller, ready to be called.

use std::{fmt, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{ACCEPT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT},
    uri::PathAndQuery,
};
use metashard_api::id::{ControllerKind, Epoch, ShardId};
use metashard_reconcile::sync::HookKind;
use metashard_runtime::build_info;
use rustls::ClientConfig;

use crate::{connection::Connection, metrics::Series, pool::Pool, rope::RopeBody, url};

const SHARD: HeaderName = HeaderName::from_static("x-metashard-shard");
const EPOCH: HeaderName = HeaderName::from_static("x-metashard-epoch");

/// What to call, for [`crate::Invoker::endpoint`].
#[derive(Debug, Clone)]
pub struct Target {
    /// Kind of the controller; with its name it labels the metrics.
    pub controller_kind: ControllerKind,
    /// Name of the controller.
    pub controller_name: String,
    /// Which of its hooks.
    pub hook: HookKind,
    /// Where it is reached: see [`crate::url::resolve`].
    pub url: Uri,
    /// Longest time for one call, everything included: see [`crate::url::timeout`].
    pub timeout: Duration,
    /// For https: whom to trust, what to show, ALPN. `None`: the certificates of the system.
    /// One configuration must not be shared by controllers of different tenants, since it resumes sessions.
    pub tls: Option<Arc<ClientConfig>>,
}

/// One hook of one controller, with its own connections. Dropping it closes those that are idle, and takes its metrics
/// out of the registry.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) place: Place,
    pub(crate) timeout: Duration,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) series: Arc<Series>,
}

/// Where a URL leads, with all that its requests have in common.
pub(crate) struct Place {
    pub(crate) url: Uri,
    pub(crate) origin: Arc<Origin>,
    /// What an HTTP/1.1 request line names.
    path_and_query: Uri,
    headers: HeaderMap,
}

/// Whom a connection is with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) secure: bool,
    /// As in the URL: an IPv6 address is in brackets.
    host: Box<str>,
    pub(crate) port: u16,
}

/// The ownership under which a call is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ownership {
    pub(crate) shard: ShardId,
    pub(crate) epoch: Epoch,
}

impl Endpoint {
    /// Where it is.
    pub fn url(&self) -> &Uri {
        &self.place.url
    }

    /// Longest time for one call.
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }
}

impl Place {
    /// # Errors
    ///
    /// As [`url::check`].
    pub(crate) fn new(url: Uri) -> Result<Self, url::Error> {
        let url = url::check(url)?;
        let no_host = || url::Error::NoHost {
            url: url.to_string(),
        };
        let authority = url.authority().ok_or_else(no_host)?;
        let secure = url.scheme_str() == Some("https");
        let origin = Arc::new(Origin {
            secure,
            host: authority.host().into(),
            port: authority
                .port_u16()
                .unwrap_or(if secure { 443 } else { 80 }),
        });
        let path_and_query = url.path_and_query().cloned();
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| no_host())?;
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(HOST, host);
        headers.insert(USER_AGENT, HeaderValue::from_static(build_info::USER_AGENT));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Without it any encoding would be welcome.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        // Places for the values of each call, so that setting them moves nothing.
        headers.insert(SHARD, HeaderValue::from_static("0"));
        headers.insert(EPOCH, HeaderValue::from_static("0"));
        Ok(Self {
            origin,
            path_and_query: path_and_query
                .unwrap_or_else(|| PathAndQuery::from_static("/"))
                .into(),
            headers,
            url,
        })
    }

    /// A request to this place over `connection`.
    pub(crate) fn request(
        &self,
        connection: &Connection,
        method: Method,
        body: RopeBody,
        ownership: Ownership,
    ) -> Request<RopeBody> {
        let mut headers = self.headers.clone();
        headers.insert(SHARD, ownership.shard.0.into());
        headers.insert(EPOCH, ownership.epoch.0.into());
        if method == Method::GET {
            headers.remove(CONTENT_TYPE);
        }
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        *request.uri_mut() = match connection {
            Connection::Http1(_) => self.path_and_query.clone(),
            Connection::Http2(_) => self.url.clone(),
        };
        request
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.url).finish()
    }
}

impl Origin {
    /// The host without the brackets of an IPv6 address.
    pub(crate) fn bare_host(&self) -> &str {
        self.host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(&self.host)
    }
}

#[cfg(test)]
mod tests {
    use metashard_api::names;

    use super::*;

    #[test]
    fn header_names_are_those_of_the_dictionary() {
        assert!(SHARD.as_str().eq_ignore_ascii_case(names::HEADER_SHARD));
        assert!(EPOCH.as_str().eq_ignore_ascii_case(names::HEADER_EPOCH));
    }

    #[test]
    fn port_follows_from_the_scheme_unless_given() {
        for (text, host, port) in [
            ("http://hook/", "hook", 80),
            ("https://hook/", "hook", 443),
            ("https://hook:8443/", "hook", 8443),
            ("http://[::1]:81/", "::1", 81),
        ] {
            let place = Place::new(Uri::from_static(text)).unwrap();

            assert_eq!(place.origin.bare_host(), host, "{text}");
            assert_eq!(place.origin.port, port, "{text}");
        }
    }
}
