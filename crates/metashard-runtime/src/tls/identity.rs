//! The name of a replica's membership inside its certificate, as a SPIFFE id.

use std::fmt;

use metashard_api::id::{Incarnation, ReplicaId};

use super::Error;

const SCHEME: &str = "spiffe://";

/// Whom a certificate is for: one membership of one replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The replica.
    pub replica: ReplicaId,
    /// Its membership: after a restart it is another subject.
    pub incarnation: Incarnation,
}

/// `Display` of a subject within a trust domain is its SPIFFE URI.
pub(super) struct SpiffeId<'a> {
    pub(super) trust_domain: &'a str,
    pub(super) subject: &'a Subject,
}

impl fmt::Display for SpiffeId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subject {
            replica,
            incarnation,
        } = self.subject;
        let domain = self.trust_domain;
        write!(
            f,
            "{SCHEME}{domain}/replica/{replica}/incarnation/{incarnation}"
        )
    }
}

impl Subject {
    /// Refuses names that could be read back as something else.
    pub(super) fn check(&self) -> Result<(), Error> {
        check_name("replica name", self.replica.as_str())?;
        check_name("incarnation", self.incarnation.as_str())
    }

    /// Reads the SPIFFE URI of a peer in `trust_domain`.
    pub(super) fn from_uri(
        what: &'static str,
        uri: &str,
        trust_domain: &str,
    ) -> Result<Self, Error> {
        let fail = |why| Error::Identify { what, why };
        let path = uri
            .strip_prefix(SCHEME)
            .ok_or_else(|| fail("its URI is no SPIFFE id"))?
            .strip_prefix(trust_domain)
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or_else(|| fail("its SPIFFE id is of another trust domain"))?;
        let parts: Vec<&str> = path.split('/').collect();
        let ["replica", replica, "incarnation", incarnation] = parts[..] else {
            return Err(fail("its SPIFFE id names no replica and incarnation"));
        };
        let subject = Self {
            replica: ReplicaId::new(replica),
            incarnation: Incarnation::new(incarnation),
        };
        subject.check()?;
        Ok(subject)
    }
}

/// The SPIFFE id of an authority: its trust domain and no path.
pub(super) fn authority_uri(trust_domain: &str) -> String {
    format!("{SCHEME}{trust_domain}")
}

/// Reads the trust domain out of the SPIFFE id of an authority.
pub(super) fn trust_domain_of(what: &'static str, uri: &str) -> Result<String, Error> {
    let domain = uri.strip_prefix(SCHEME).ok_or(Error::Identify {
        what,
        why: "its URI is no SPIFFE id",
    })?;
    check_name("trust domain", domain)?;
    Ok(domain.to_owned())
}

/// Characters that SPIFFE allows in a path segment.
pub(super) fn check_name(what: &'static str, text: &str) -> Result<(), Error> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.is_empty() || text == "." || text == ".." || !text.bytes().all(fits) {
        return Err(Error::BadName {
            what,
            text: text.to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(replica: &str, incarnation: &str) -> Subject {
        Subject {
            replica: ReplicaId::new(replica),
            incarnation: Incarnation::new(incarnation),
        }
    }

    #[test]
    fn subject_is_read_back_from_its_uri() {
        let subject = subject("metashard-0", "9b6c");
        let uri = SpiffeId {
            trust_domain: "example.org",
            subject: &subject,
        }
        .to_string();

        assert_eq!(
            uri,
            "spiffe://example.org/replica/metashard-0/incarnation/9b6c"
        );
        assert_eq!(
            Subject::from_uri("peer", &uri, "example.org").unwrap(),
            subject
        );
    }

    #[test]
    fn uri_of_anybody_else_is_refused() {
        for uri in [
            "https://example.org/replica/a/incarnation/b",
            "spiffe://example.org.evil/replica/a/incarnation/b",
            "spiffe://other/replica/a/incarnation/b",
            "spiffe://example.org",
            "spiffe://example.org/replica/a",
            "spiffe://example.org/replica/a/incarnation/b/c",
            "spiffe://example.org/replica//incarnation/b",
            "spiffe://example.org/replica/a%2Fb/incarnation/c",
        ] {
            assert!(
                Subject::from_uri("peer", uri, "example.org").is_err(),
                "{uri}"
            );
        }
    }

    #[test]
    fn name_with_a_slash_is_no_subject() {
        assert!(subject("a/incarnation/b", "c").check().is_err());
        assert!(subject("a", "").check().is_err());
        assert!(subject("a", "..").check().is_err());
    }
}
