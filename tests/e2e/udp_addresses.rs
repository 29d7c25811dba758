//! Where UDP listeners listen, and from where they answer.

use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};

use crate::harness::{
    Answer, Backend, HeldPort, Pointsman, UdpBackend, UdpClient, command, fresh_directory,
    one_udp_listener,
};

fn wildcard(bind: &str, more: &str, backend: &UdpBackend) -> Pointsman {
    let yaml = one_udp_listener(more, &[backend], "");
    Pointsman::start(&yaml.replace("127.0.0.1:0", bind))
}

fn port(pointsman: &Pointsman) -> u16 {
    pointsman.address("edge").parse::<SocketAddr>().unwrap().port()
}

/// A connected socket takes an answer from nowhere but where it has sent to.
#[test]
fn an_answer_comes_from_the_address_that_was_asked() {
    const V4: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
    let backend = UdpBackend::mirror();
    for (bind, hosts) in [
        ("0.0.0.0:0", &V4[..]),
        ("[::]:0", &["127.0.0.1", "127.0.0.2", "127.0.0.3", "[::1]"]),
        ("127.0.0.2:0", &["127.0.0.2"]),
        ("[::1]:0", &["[::1]"]),
    ] {
        let pointsman = wildcard(bind, "timeouts: { idle: 500ms }", &backend);
        let port = port(&pointsman);
        for host in hosts {
            let used = format!("{host}:{port}");
            let client = UdpClient::to(&used);
            for bytes in [&b"question"[..], b"", &[7; 20_000]] {
                client.send(bytes);
                assert_eq!(client.receive(), bytes, "{bind} by {used}");
            }
            // A burst comes back as one.
            (0..20).for_each(|index| client.send([index; 500]));
            (0..20).for_each(|index| assert_eq!(client.receive(), [index; 500]));
        }
        pointsman.wait_idle();
        let records = pointsman.stop();
        let mut locals: Vec<_> = records.iter().map(|record| record.text("local")).collect();
        let mut expected: Vec<_> = hosts.iter().map(|host| format!("{host}:{port}")).collect();
        locals.sort_unstable();
        expected.sort_unstable();
        assert_eq!(locals, expected);
    }
}

/// One socket of a client that asks at two addresses has two flows.
#[test]
fn each_address_asked_is_a_flow_of_its_own() {
    let backend = UdpBackend::mirror();
    let pointsman = wildcard("0.0.0.0:0", "", &backend);
    let port = port(&pointsman);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(crate::harness::PATIENCE)).unwrap();
    for round in 0..4 {
        for host in ["127.0.0.1", "127.0.0.2"] {
            client.send_to(&[round], (host, port)).unwrap();
            let mut room = [0; 10];
            let (length, from) = client.recv_from(&mut room).unwrap();
            assert_eq!((&room[..length], from.ip().to_string()), (&[round][..], host.to_owned()));
        }
    }
    assert_eq!(pointsman.metrics().active("edge"), 2.0);
}

#[test]
fn v6_only_takes_no_ipv4() {
    let backend = UdpBackend::echo("a");
    // Nobody else takes what comes there by IPv4.
    let held = UdpBackend::refusing();
    let refusing = held.address();
    let (_, port) = refusing.rsplit_once(':').unwrap();
    let _pointsman = wildcard(&format!("[::]:{port}"), "v6_only: true", &backend);
    assert_eq!(UdpClient::to(&format!("[::1]:{port}")).backend("x"), "a");
    let refused = UdpClient::to(&refusing);
    refused.socket().send(b"x").unwrap();
    let error = refused.socket().recv(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// IPv6 in front and IPv4 behind, and the other way round.
#[test]
fn the_families_may_differ() {
    for (bind, backend) in [("[::1]:0", "127.0.0.1:0"), ("127.0.0.1:0", "[::1]:0")] {
        let backend = UdpBackend::named(backend, "a");
        let pointsman = wildcard(bind, "", &backend);
        assert_eq!(UdpClient::to(&pointsman.address("edge")).backend("x"), "a");
    }
}

#[test]
fn a_listener_may_have_several_addresses() {
    let backend = UdpBackend::echo("a");
    let yaml = one_udp_listener("", &[&backend], "");
    let three = "[\"127.0.0.1:0\", \"127.0.0.2:0\", \"[::1]:0\"]";
    let pointsman = Pointsman::start(&yaml.replace("\"127.0.0.1:0\"", three));
    let status = pointsman.status();
    let bound = status["listeners"]["edge"]["bind"].as_array().unwrap();
    assert_eq!(bound.len(), 3);
    for address in bound {
        assert_eq!(UdpClient::to(address.as_str().unwrap()).backend("x"), "a");
    }
    assert_eq!(pointsman.metrics().active("edge"), 3.0);
}

#[test]
fn tcp_and_udp_at_the_same_port() {
    let (stream, datagrams) = (Backend::echo(), UdpBackend::echo("a"));
    let port = HeldPort::of_both("127.0.0.1");
    let address = port.address();
    let pointsman = Pointsman::start(&format!(
        "listeners:\n  tcp: {{ bind: \"{address}\", pool: tcp }}\n  \
         udp: {{ bind: \"{address}\", protocol: udp, pool: udp }}\n\
         pools:\n  tcp: {{ backends: [\"{}\"], health: off }}\n  \
         udp: {{ backends: [\"{}\"] }}\n",
        stream.address(),
        datagrams.address()
    ));
    assert_eq!(pointsman.address("tcp"), pointsman.address("udp"));
    let mut client = pointsman.connect("tcp");
    client.send(100);
    client.receive(100);
    assert_eq!(UdpClient::to(&pointsman.address("udp")).backend("x"), "a");
    let metrics = pointsman.metrics();
    assert_eq!((metrics.active("tcp"), metrics.active("udp")), (1.0, 1.0));
}

fn start(yaml: &str) -> Answer {
    let directory = fresh_directory();
    let file = directory.join("test.yaml");
    std::fs::write(&file, yaml).unwrap();
    let answer = command(&["run", "-c", file.to_str().unwrap()]);
    std::fs::remove_dir_all(directory).unwrap();
    answer
}

/// Also by a socket that would share it.
#[test]
fn an_address_in_use_is_a_clear_error() {
    for (reuse_port, bind) in [(false, "127.0.0.1"), (true, "127.0.0.1"), (true, "0.0.0.0")] {
        let other = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        other.set_reuse_port(reuse_port).unwrap();
        other.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        let port = other.local_addr().unwrap().as_socket().unwrap().port();
        let backend = UdpBackend::echo("a");
        for workers in [1, 3] {
            let yaml = one_udp_listener("", &[&backend], "")
                .replace("127.0.0.1:0", &format!("{bind}:{port}"));
            let answer = start(&format!("workers: {workers}\n{yaml}"));
            assert_eq!(answer.code, 1, "{answer:?}");
            assert!(answer.stderr.contains(&format!("{bind}:{port}")), "{answer:?}");
            assert!(answer.stderr.contains("in use"), "{answer:?}");
        }
    }
}

/// What runs cannot be joined by another process of ours, nor by a reload of the same address.
#[test]
fn an_address_that_pointsman_has_is_in_use() {
    let backend = UdpBackend::echo("a");
    let yaml = one_udp_listener("", &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 2\n{yaml}"));
    let edge = pointsman.address("edge");
    let answer = start(&yaml.replace("127.0.0.1:0", &edge));
    assert!(answer.code == 1 && answer.stderr.contains("in use"), "{answer:?}");
    let twice = yaml.replace(
        "listeners: {",
        &format!("listeners: {{ other: {{ bind: \"{edge}\", protocol: udp, pool: pool }},"),
    );
    pointsman.reload(&format!("workers: 2\n{twice}")).unwrap_err();
    assert_eq!(UdpClient::to(&edge).backend("x"), "a");
}
