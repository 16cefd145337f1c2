//! One hook of one controller, ready to be called.

mod secured;

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, IF_NONE_MATCH, USER_AGENT},
    uri::PathAndQuery,
};
use metashard_api::{
    endpoint::Demand,
    id::{ControllerKind, Epoch, ShardId},
    v1alpha1::webhook::Etag,
};
use metashard_reconcile::sync::HookKind;
use metashard_runtime::build_info;

pub(crate) use self::secured::Secured;
use crate::{
    connection::Connection,
    etag::{Tags, Total},
    expiry::DaysLeft,
    metrics::Series,
    pool::Pool,
    rope::RopeBody,
    tls::SystemRoots,
    url,
};

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
    /// Certificates and credentials. `None`: the system's certificates are trusted, and nothing is shown.
    pub security: Option<Demand>,
    /// Re-use of former answers.
    pub etag: Option<Etag>,
}

/// What all endpoints share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) system_roots: Arc<SystemRoots>,
    pub(crate) tagged: Total,
}

/// One hook of one controller, with its own connections. Dropping it closes those that are idle, and takes its metrics
/// out of the registry.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) place: Place,
    pub(crate) timeout: Duration,
    pub(crate) pool: Arc<Pool>,
    pub(crate) series: Arc<Series>,
    /// Former answers, if the hook is to be asked with their tags.
    pub(crate) tags: Option<Tags>,
    hook: HookKind,
    demand: Option<Demand>,
    /// What `demand` came to. `None` until it has been read for the first time.
    secured: ArcSwapOption<Secured>,
    system_roots: Arc<SystemRoots>,
    days_left: DaysLeft,
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

/// What the requests of one call carry beside the body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carried<'a> {
    /// The ownership under which the call is made.
    pub(crate) shard: ShardId,
    pub(crate) epoch: Epoch,
    /// Value of `Authorization`.
    pub(crate) authorization: Option<&'a HeaderValue>,
    /// Tag of the former answer.
    pub(crate) tag: Option<&'a HeaderValue>,
}

impl Endpoint {
    pub(crate) fn new(
        target: Target,
        place: Place,
        pool: Arc<Pool>,
        series: Arc<Series>,
        shared: &Shared,
    ) -> Self {
        Self {
            place,
            timeout: target.timeout,
            pool,
            tags: Tags::new(target.etag.as_ref(), &shared.tagged),
            hook: target.hook,
            secured: ArcSwapOption::new(target.security.is_none().then(Arc::<Secured>::default)),
            demand: target.security,
            system_roots: Arc::clone(&shared.system_roots),
            days_left: series.days_left(),
            series,
        }
    }

    /// Which hook it is.
    pub const fn hook(&self) -> HookKind {
        self.hook
    }

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
        carried: Carried<'_>,
    ) -> Request<RopeBody> {
        let mut headers = self.headers.clone();
        headers.insert(SHARD, carried.shard.0.into());
        headers.insert(EPOCH, carried.epoch.0.into());
        let more = [
            (AUTHORIZATION, carried.authorization),
            (IF_NONE_MATCH, carried.tag),
        ];
        for (name, value) in more {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
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
