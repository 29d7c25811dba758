//! Address families: unix sockets, one socket for both IPs, IPv6 alone.

use crate::harness::{Backend, HeldPort, Pointsman, Stream, fresh_directory};

#[test]
fn unix_on_both_sides() {
    let directory = fresh_directory();
    let backend = Backend::listening(&format!("unix:{}/backend.sock", directory.display()));
    let pointsman = Pointsman::start(&format!(
        "listeners: {{ edge: {{ bind: \"unix:DIR/front.sock\", pool: pool }} }}\n\
         pools: {{ pool: {{ backends: [\"{}\"], health: off }} }}\n",
        backend.address()
    ));
    let front = format!("unix:{}/front.sock", pointsman.directory().display());
    assert_eq!(pointsman.address("edge"), front);
    let mut client = Stream::connect(&front);
    let mut server = backend.accept();
    std::thread::scope(|scope| {
        scope.spawn(|| server.exchange(100_000_000, 100_000_000));
        client.exchange(100_000_000, 100_000_000);
    });
    client.finish();
    server.expect_end();
    server.send(1000);
    drop(server);
    client.receive(1000);
    client.expect_end();
    let record = pointsman.access_log(1).remove(0);
    assert_eq!(record.text("client"), "-");
    assert_eq!(record.text("local"), front);
    assert_eq!(record.text("backend"), backend.address());
    assert_eq!(record.text("termination"), "client_closed");
    assert_eq!(record.number("bytes_in"), 1e8);
    assert_eq!(record.number("bytes_out"), 1e8 + 1000.0);
    let path = pointsman.directory().join("front.sock");
    assert!(path.exists());
    std::fs::remove_dir_all(directory).unwrap();
}

/// A killed process leaves its socket file behind; the next one takes the place.
#[test]
fn a_stale_unix_socket_is_no_obstacle() {
    let directory = fresh_directory();
    let backend = Backend::echo();
    let front = format!("unix:{}/front.sock", directory.display());
    for _ in 0..2 {
        let pointsman = Pointsman::start(&format!(
            "listeners: {{ edge: {{ bind: \"{front}\", pool: pool }} }}\n\
             pools: {{ pool: {{ backends: [\"{}\"], health: off }} }}\n",
            backend.address()
        ));
        let mut client = Stream::connect(&front);
        client.send(10);
        client.receive(10);
        drop(pointsman); // killed
    }
    std::fs::remove_dir_all(directory).unwrap();
}

fn any_v6(port: u16, backend: &Backend, more: &str) -> Pointsman {
    Pointsman::start(&format!(
        "listeners: {{ edge: {{ bind: \"[::]:{port}\", pool: pool{more} }} }}\n\
         pools: {{ pool: {{ backends: [\"{}\"], health: off }} }}\n",
        backend.address()
    ))
}

fn port(pointsman: &Pointsman) -> String {
    pointsman.address("edge").rsplit_once(':').unwrap().1.to_owned()
}

/// IPv4 addresses are written as such, not as `::ffff:127.0.0.1`.
#[test]
fn the_wildcard_serves_both_families() {
    let backend = Backend::echo();
    let pointsman = any_v6(0, &backend, "");
    let port = port(&pointsman);
    for (count, ip) in ["127.0.0.1", "[::1]"].into_iter().enumerate() {
        let address = format!("{ip}:{port}");
        let mut client = Stream::connect(&address);
        let local = client.local();
        client.send(10);
        client.receive(10);
        drop(client);
        let record = pointsman.access_log(count + 1).remove(count);
        assert_eq!(record.text("client"), local);
        assert_eq!(record.text("local"), address);
    }
}

#[test]
fn v6_only_leaves_ipv4_alone() {
    let backend = Backend::echo();
    // Nobody else listens on it either.
    let held = HeldPort::new("127.0.0.1");
    let port = held.address().port();
    let _pointsman = any_v6(port, &backend, ", v6_only: true");
    let error = Stream::try_connect(&format!("127.0.0.1:{port}")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let mut client = Stream::connect(&format!("[::1]:{port}"));
    client.send(10);
    client.receive(10);
}

#[test]
fn an_ipv6_backend() {
    let backend = Backend::listening("[::1]:0");
    let pointsman = Pointsman::start(&crate::harness::one_listener("", &[&backend.address()], ""));
    let mut client = pointsman.connect("edge");
    let mut server = backend.accept();
    client.send(10);
    server.receive(10);
    drop((client, server));
    assert_eq!(pointsman.access_log(1)[0].text("backend"), backend.address());
}
