//! Certificates and handshakes between replicas.

use std::{
    io,
    time::{Duration, SystemTime},
};

use metashard_api::id::{Incarnation, ReplicaId};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use super::*;

fn now() -> SystemTime {
    crate::clock::Clock::system().wall()
}

fn subject(replica: &str) -> Subject {
    Subject {
        replica: ReplicaId::new(replica),
        incarnation: Incarnation::new("0f3a"),
    }
}

fn authority() -> Authority {
    Authority::generate(DEFAULT_TRUST_DOMAIN, now()).unwrap()
}

/// Carries bytes between the two ends until both are content; the error of the end that refuses.
fn handshake(
    client: ClientConfig,
    server: ServerConfig,
    roots: &Roots,
) -> Result<(ClientConnection, ServerConnection), io::Error> {
    let name = roots.server_name().unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    loop {
        let mut wire = Vec::new();
        client.write_tls(&mut wire)?;
        let to_server = wire.len();
        server.read_tls(&mut &wire[..])?;
        server.process_new_packets().map_err(io::Error::other)?;
        wire.clear();
        server.write_tls(&mut wire)?;
        client.read_tls(&mut &wire[..])?;
        client.process_new_packets().map_err(io::Error::other)?;
        if to_server == 0 && wire.is_empty() {
            return Ok((client, server));
        }
    }
}

#[test]
fn replicas_of_one_authority_know_each_other_by_name() {
    let authority = authority();
    let roots = Roots::from_pem(authority.cert_pem()).unwrap();
    let leader = authority.issue(&subject("leader"), now()).unwrap();
    let worker = authority.issue(&subject("worker"), now()).unwrap();

    let (client, server) = handshake(
        client_config(&roots, &worker, Some(subject("leader"))).unwrap(),
        server_config(&roots, &leader).unwrap(),
        &roots,
    )
    .unwrap();

    let seen = |chain: Option<&[_]>| peer_subject(&roots, chain.unwrap()).unwrap();
    assert_eq!(seen(client.peer_certificates()), subject("leader"));
    assert_eq!(seen(server.peer_certificates()), subject("worker"));
    assert_eq!(client.alpn_protocol(), Some(&b"h2"[..]));
}

#[test]
fn server_that_is_not_the_expected_replica_is_refused() {
    let authority = authority();
    let roots = Roots::from_pem(authority.cert_pem()).unwrap();
    let other = authority.issue(&subject("other"), now()).unwrap();
    let worker = authority.issue(&subject("worker"), now()).unwrap();

    let refused = handshake(
        client_config(&roots, &worker, Some(subject("leader"))).unwrap(),
        server_config(&roots, &other).unwrap(),
        &roots,
    )
    .unwrap_err();

    assert!(refused.to_string().contains("another replica"), "{refused}");
}

#[test]
fn client_of_another_authority_is_refused() {
    let (ours, theirs) = (authority(), authority());
    let our_roots = Roots::from_pem(ours.cert_pem()).unwrap();
    let leader = ours.issue(&subject("leader"), now()).unwrap();
    let stranger = theirs.issue(&subject("worker"), now()).unwrap();

    let result = handshake(
        client_config(&our_roots, &stranger, None).unwrap(),
        server_config(&our_roots, &leader).unwrap(),
        &our_roots,
    );

    assert!(result.is_err());
}

#[test]
fn server_of_another_authority_is_refused() {
    let (ours, theirs) = (authority(), authority());
    let our_roots = Roots::from_pem(ours.cert_pem()).unwrap();
    let their_roots = Roots::from_pem(theirs.cert_pem()).unwrap();
    let worker = ours.issue(&subject("worker"), now()).unwrap();
    let stranger = theirs.issue(&subject("leader"), now()).unwrap();

    let result = handshake(
        client_config(&our_roots, &worker, None).unwrap(),
        server_config(&their_roots, &stranger).unwrap(),
        &our_roots,
    );

    assert!(result.is_err());
}

#[test]
fn client_without_a_certificate_is_refused() {
    let authority = authority();
    let roots = Roots::from_pem(authority.cert_pem()).unwrap();
    let leader = authority.issue(&subject("leader"), now()).unwrap();
    let mut store = rustls::RootCertStore::empty();
    for der in pem::certificates("CA certificate", authority.cert_pem()).unwrap() {
        store.add(der).unwrap();
    }
    let mut anonymous = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(store)
        .with_no_client_auth();
    anonymous.alpn_protocols = vec![b"h2".to_vec()];

    let refused = handshake(anonymous, server_config(&roots, &leader).unwrap(), &roots);

    assert!(refused.is_err());
}

#[test]
fn expired_certificate_is_refused() {
    let authority = authority();
    let roots = Roots::from_pem(authority.cert_pem()).unwrap();
    let leader = authority.issue(&subject("leader"), now()).unwrap();
    let old = authority
        .issue(&subject("worker"), now() - 2 * LEAF_LIFETIME)
        .unwrap();

    let result = handshake(
        client_config(&roots, &old, None).unwrap(),
        server_config(&roots, &leader).unwrap(),
        &roots,
    );

    assert!(result.is_err());
}

#[test]
fn both_authorities_are_believed_while_one_replaces_the_other() {
    let (old, new) = (authority(), authority());
    let both = Roots::from_pem(&[old.cert_pem(), new.cert_pem()].concat()).unwrap();
    let leader = old.issue(&subject("leader"), now()).unwrap();
    let worker = new.issue(&subject("worker"), now()).unwrap();

    handshake(
        client_config(&both, &worker, Some(subject("leader"))).unwrap(),
        server_config(&both, &leader).unwrap(),
        &both,
    )
    .unwrap();
}

#[test]
fn authority_read_back_issues_for_the_same_roots() {
    let authority = authority();
    let Certificate { cert_pem, key_pem } = authority.to_pem();

    let read_back = Authority::from_pem(&cert_pem, &key_pem).unwrap();

    let roots = Roots::from_pem(&cert_pem).unwrap();
    let leader = read_back.issue(&subject("leader"), now()).unwrap();
    let worker = authority.issue(&subject("worker"), now()).unwrap();
    assert_eq!(read_back.trust_domain(), DEFAULT_TRUST_DOMAIN);
    handshake(
        client_config(&roots, &worker, None).unwrap(),
        server_config(&roots, &leader).unwrap(),
        &roots,
    )
    .unwrap();
}

#[test]
fn certificate_is_renewed_at_two_thirds_and_never_outlives_its_authority() {
    let authority = authority();
    let end = authority.validity().not_after;

    let early = authority.issue(&subject("a"), now()).unwrap();
    let late = authority.issue(&subject("a"), end - LEAF_LIFETIME / 2);

    let validity = early.validity().unwrap();
    let life = validity.not_after.duration_since(validity.not_before);
    let to_renewal = validity.renew_at().duration_since(validity.not_before);
    assert_eq!(to_renewal.unwrap(), life.unwrap() * 2 / 3);
    assert_eq!(late.unwrap().validity().unwrap().not_after, end);
}

#[test]
fn certificate_counts_also_where_it_was_made_by_a_clock_that_is_hours_ahead_or_behind() {
    let authority = authority();
    let roots = Roots::from_pem(authority.cert_pem()).unwrap();
    let hours = Duration::from_hours(14);
    let leader = authority.issue(&subject("leader"), now()).unwrap();

    for made in [now() + hours, now() - hours] {
        let worker = authority.issue(&subject("worker"), made).unwrap();
        handshake(
            client_config(&roots, &worker, None).unwrap(),
            server_config(&roots, &leader).unwrap(),
            &roots,
        )
        .unwrap();
    }
}

#[test]
fn damaged_pem_is_refused_with_what_it_was() {
    let Certificate { cert_pem, key_pem } = authority().to_pem();
    let other_key = authority().to_pem().key_pem;
    let refuse =
        |cert: &str, key: &str| crate::log::chain(&Authority::from_pem(cert, key).unwrap_err());

    assert_eq!(
        refuse("", &key_pem),
        "read CA certificate: no PEM block `CERTIFICATE` in it"
    );
    assert_eq!(
        refuse(&cert_pem, &cert_pem),
        "read CA private key: no PEM block `PRIVATE KEY` in it"
    );
    assert!(refuse(&cert_pem, &other_key).contains("do not belong together"));
    let cut = cert_pem.split_at(cert_pem.len() / 2).0;
    assert!(refuse(cut, &key_pem).starts_with("read CA certificate from PEM: missing section end"));
    let leaf = authority().issue(&subject("a"), now()).unwrap();
    assert!(refuse(&leaf.cert_pem, &leaf.key_pem).contains("may not issue"));
    let many = cert_pem.repeat(51);
    assert!(refuse(&many, &key_pem).contains("over 64 KiB or 50 certificates"));
}

#[test]
fn debug_output_hides_private_keys() {
    let authority = authority();
    let leaf = authority.issue(&subject("a"), now()).unwrap();

    for text in [format!("{authority:?}"), format!("{leaf:?}")] {
        assert!(!text.contains("PRIVATE KEY"), "{text}");
    }
}
