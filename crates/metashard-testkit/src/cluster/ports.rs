//! Ports of loopback for servers that tests start.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::bail;

/// Below the ranges from which Linux and macOS take the local ports of outgoing connections. From such a range, a
/// client that keeps trying to reach a stopped server could come to sit on the server's port, and even connect to itself.
const RANGE: std::ops::Range<u16> = 12_000..32_000;

/// A port on which nobody listens now. Another process may take it before the caller does.
///
/// # Errors
/// If no free port is found.
pub fn free_port() -> anyhow::Result<u16> {
    for _ in 0..200 {
        let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
        let offset = u16::try_from(random % u64::from(RANGE.end - RANGE.start))?;
        let port = RANGE.start + offset;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("find a free port on loopback: 200 random ports of {RANGE:?} are taken");
}
