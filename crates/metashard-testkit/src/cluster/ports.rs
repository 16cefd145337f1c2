//! Ports of loopback for servers that tests start, and the address that others see.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use anyhow::bail;

/// Below the ranges from which Linux and macOS take the local ports of outgoing connections. From such a range, a
/// client that keeps trying to reach a stopped server could come to sit on the server's port, and even connect to itself.
const RANGE: std::ops::Range<u16> = 12_000..32_000;

/// Where nobody is: the address only chooses the way out.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 1), 9);

/// The address by which others see this machine; `None` if it has none but loopback and link-local ones.
pub fn own_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Nothing is sent.
    socket.connect(ELSEWHERE).ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(it) if !it.ip().is_loopback() && !it.ip().is_link_local() => Some(*it.ip()),
        _ => None,
    }
}

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
