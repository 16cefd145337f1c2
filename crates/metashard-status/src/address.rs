//! Addresses to listen on, as Go writes them.

use std::{fmt, io, net::SocketAddr, str::FromStr};

use tokio::net::TcpListener;

/// Where to listen: a host, which may be empty for all interfaces, and a port, which may be 0 for any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read {0:?} as an address such as :8081 or 127.0.0.1:0")]
pub struct ParseError(String);

/// Listening is not possible.
#[derive(Debug, thiserror::Error)]
#[error("listen on {address}")]
pub struct BindError {
    /// Where.
    pub address: Address,
    /// Why not.
    #[source]
    pub source: io::Error,
}

impl Address {
    /// Reads an address where `0` and an empty text mean: do not listen.
    ///
    /// # Errors
    ///
    /// Where the text is neither that nor an address.
    pub fn parse_optional(text: &str) -> Result<Option<Self>, ParseError> {
        match text {
            "" | "0" => Ok(None),
            text => text.parse().map(Some),
        }
    }

    /// The host; empty for all interfaces.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 0 for any.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Listens. Without a host, on all interfaces of IPv6 and IPv4, or of IPv4 alone where there is no IPv6.
    ///
    /// # Errors
    ///
    /// Where the address is taken, not one of this machine, or not allowed.
    pub async fn bind(&self) -> Result<TcpListener, BindError> {
        let bound = if self.host.is_empty() {
            match TcpListener::bind(SocketAddr::from(([0_u16; 8], self.port))).await {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind(SocketAddr::from(([0_u8; 4], self.port))).await
                }
                bound => bound,
            }
        } else {
            TcpListener::bind((self.host.as_str(), self.port)).await
        };
        bound.map_err(|source| BindError {
            address: self.clone(),
            source,
        })
    }
}

impl FromStr for Address {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(error)?,
            None if host.contains(':') => return Err(error()),
            None => host,
        };
        let port = port.parse().map_err(|_| error())?;
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_go_are_read_and_written_back() {
        for text in [
            ":8081",
            "127.0.0.1:0",
            "localhost:65535",
            "[::1]:9",
            "[::]:9",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in [
            "8081",
            "::1:9",
            "host:",
            "host:65536",
            "[::1:9",
            "host:http",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn zero_and_nothing_mean_not_to_listen() {
        assert_eq!(Address::parse_optional("0"), Ok(None));
        assert_eq!(Address::parse_optional(""), Ok(None));
        assert!(Address::parse_optional("x").is_err());
    }

    #[tokio::test]
    async fn a_taken_address_is_named_in_the_error() {
        let taken = "127.0.0.1:0"
            .parse::<Address>()
            .unwrap()
            .bind()
            .await
            .unwrap();
        let address: Address = taken.local_addr().unwrap().to_string().parse().unwrap();

        let error = address.bind().await.unwrap_err();

        assert_eq!(error.to_string(), format!("listen on {address}"));
    }

    #[tokio::test]
    async fn without_a_host_ipv4_is_listened_on() {
        let listener = ":0".parse::<Address>().unwrap().bind().await.unwrap();
        let port = listener.local_addr().unwrap().port();

        let connected = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;

        assert!(connected.is_ok());
    }
}
