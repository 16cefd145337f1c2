//! Where a hook is reached and how long it may take, from its webhook spec.

use std::time::Duration;

use http::{Uri, uri::InvalidUri};
use metashard_api::{
    duration, endpoint,
    v1alpha1::webhook::{DEFAULT_TIMEOUT, ServiceReference, Webhook},
};

/// A webhook spec names no place that can be called.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is neither a URL nor a Service with a path.
    #[error(
        "invalid webhook config: must specify either a full 'url', or both 'service' and 'path'"
    )]
    Missing,
    /// The Service is not named in full.
    #[error("invalid webhook config: 'service' must specify both 'name' and 'namespace'")]
    IncompleteService,
    /// The text is no URL.
    #[error("invalid webhook config: {url:?} is no URL")]
    Malformed {
        /// The text.
        url: String,
        /// What is wrong with it.
        #[source]
        source: InvalidUri,
    },
    /// The URL has no host, or an impossible port.
    #[error("invalid webhook config: {url:?} names no host and port")]
    NoHost {
        /// The URL.
        url: String,
    },
    /// The URL is neither http nor https.
    #[error("invalid webhook config: unsupported protocol scheme {scheme:?}")]
    Scheme {
        /// What it has in place of that.
        scheme: String,
    },
    /// The URL carries a user name or password, which would be shown in metrics and events.
    #[error("invalid webhook config: 'url' must not contain a user name or password")]
    UserInfo,
}

/// The URL of a hook: `url` as it is, else `<protocol>://<name>.<namespace>:<port><path>`.
///
/// The port of a Service is 80, or 443 for https, unless it is given.
///
/// # Errors
///
/// If the spec names no place that can be called. Only a change of the controller can help.
pub fn resolve(webhook: &Webhook) -> Result<Uri, Error> {
    let text = endpoint::url_of(webhook).ok_or(Error::Missing)?;
    if webhook.url.is_none() {
        check_service(webhook.service.as_ref())?;
    }
    let url: Uri = match text.parse() {
        Ok(url) => url,
        Err(source) => return Err(Error::Malformed { url: text, source }),
    };
    check(url)
}

/// How long one call may take, everything included. Absent, unreadable or not above zero: 10 s.
pub fn timeout(webhook: &Webhook) -> Duration {
    webhook
        .timeout
        .as_deref()
        .and_then(|text| duration::parse(text).ok())
        .filter(|length| !length.is_zero())
        .unwrap_or(DEFAULT_TIMEOUT)
}

fn check_service(service: Option<&ServiceReference>) -> Result<(), Error> {
    match service {
        Some(service) if service.name.is_empty() || service.namespace.is_empty() => {
            Err(Error::IncompleteService)
        }
        _ => Ok(()),
    }
}

/// Refuses what parses but cannot be called.
pub(crate) fn check(url: Uri) -> Result<Uri, Error> {
    match url.scheme_str() {
        Some("http" | "https") => {}
        other => {
            return Err(Error::Scheme {
                scheme: other.unwrap_or_default().to_owned(),
            });
        }
    }
    let no_host = || Error::NoHost {
        url: url.to_string(),
    };
    let authority = url.authority().ok_or_else(no_host)?;
    if authority.as_str().contains('@') {
        return Err(Error::UserInfo);
    }
    let host = authority.host();
    let after_host = authority.as_str().strip_prefix(host).unwrap_or_default();
    let is_bad_port = authority.port_u16().is_none() && !matches!(after_host, "" | ":");
    if host.is_empty() || is_bad_port {
        return Err(no_host());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, port: Option<i32>, protocol: Option<&str>) -> Webhook {
        Webhook {
            path: Some("/sync".to_owned()),
            service: Some(ServiceReference {
                name: name.to_owned(),
                namespace: "ns".to_owned(),
                port,
                protocol: protocol.map(str::to_owned),
            }),
            ..Webhook::default()
        }
    }

    fn url(text: &str) -> Webhook {
        Webhook {
            url: Some(text.to_owned()),
            ..Webhook::default()
        }
    }

    fn resolved(webhook: &Webhook) -> String {
        resolve(webhook).unwrap().to_string()
    }

    fn refusal(webhook: &Webhook) -> String {
        resolve(webhook).unwrap_err().to_string()
    }

    #[test]
    fn url_is_used_as_it_is_and_wins_over_the_service() {
        let both = Webhook {
            url: Some("https://hooks.example.org/a?b=c".to_owned()),
            ..service("hooks", None, None)
        };

        assert_eq!(resolved(&both), "https://hooks.example.org/a?b=c");
    }

    #[test]
    fn service_becomes_a_url_with_its_port() {
        assert_eq!(
            resolved(&service("hooks", None, None)),
            "http://hooks.ns:80/sync"
        );
        assert_eq!(
            resolved(&service("hooks", Some(8080), None)),
            "http://hooks.ns:8080/sync"
        );
        assert_eq!(
            resolved(&service("hooks", Some(8443), Some("https"))),
            "https://hooks.ns:8443/sync"
        );
    }

    /// Metacontroller calls port 80.
    #[test]
    fn https_service_without_a_port_is_at_443() {
        assert_eq!(
            resolved(&service("hooks", None, Some("https"))),
            "https://hooks.ns:443/sync"
        );
    }

    #[test]
    fn spec_without_a_place_is_refused_in_the_words_of_the_peer() {
        let missing = "invalid webhook config: must specify either a full 'url', or both 'service' and 'path'";
        assert_eq!(refusal(&Webhook::default()), missing);
        assert_eq!(
            refusal(&Webhook {
                path: None,
                ..service("hooks", None, None)
            }),
            missing
        );
        assert_eq!(
            refusal(&service("", None, None)),
            "invalid webhook config: 'service' must specify both 'name' and 'namespace'"
        );
    }

    #[test]
    fn what_cannot_be_called_is_refused() {
        for (text, expected) in [
            ("", "is no URL"),
            ("http://a b/", "is no URL"),
            ("ftp://a/", "unsupported protocol scheme \"ftp\""),
            ("/sync", "unsupported protocol scheme \"\""),
            ("http://me:secret@a/", "user name or password"),
            ("http://a:99999/", "no host and port"),
        ] {
            let text = refusal(&url(text));
            assert!(text.contains(expected), "{text}");
        }
        // A path is appended as it is, also without its slash.
        let no_slash = Webhook {
            path: Some("sync".to_owned()),
            ..service("hooks", None, None)
        };
        assert!(resolve(&no_slash).is_err());
    }

    #[test]
    fn timeout_is_ten_seconds_unless_it_is_above_zero() {
        for (text, expected) in [
            (None, 10_000),
            (Some("15s"), 15_000),
            (Some("1m0.5s"), 60_500),
            (Some("0s"), 10_000),
            (Some("-3s"), 10_000),
            (Some("soon"), 10_000),
        ] {
            let webhook = Webhook {
                timeout: text.map(str::to_owned),
                ..Webhook::default()
            };

            assert_eq!(
                timeout(&webhook),
                Duration::from_millis(expected),
                "{text:?}"
            );
        }
    }
}
