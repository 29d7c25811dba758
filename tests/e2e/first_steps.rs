//! One connection through the program, and what is seen of it everywhere.

use crate::harness::{Backend, Nginx, Pointsman, Stream, one_listener, wait_for};

#[test]
fn a_connection_is_relayed_counted_and_logged() {
    let backend = Backend::manual();
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], ""));
    let mut client = pointsman.connect("edge");
    let mut server = backend.accept();
    client.send(1000);
    server.receive(1000);
    server.send(2000);
    client.receive(2000);
    client.finish();
    server.expect_end();
    server.finish();
    client.expect_end();

    let records = pointsman.access_log(1);
    let record = &records[0];
    assert_eq!(record.text("termination"), "client_closed");
    assert_eq!(record.text("listener"), "edge");
    assert_eq!(record.text("pool"), "pool");
    assert_eq!(record.text("backend"), backend.address());
    assert_eq!(record.text("client"), client.local());
    assert_eq!(record.text("local"), pointsman.address("edge"));
    assert_eq!((record.number("bytes_in"), record.number("bytes_out")), (1000.0, 2000.0));
    assert_eq!(record.attempts(), [(backend.address(), "connected".to_owned())]);
    assert!(record.number("duration_ms") >= record.number("connect_ms"));

    let metrics = pointsman.metrics();
    let edge = [("listener", "edge")];
    assert_eq!(metrics.value("pointsman_connections_total", &edge), 1.0);
    assert_eq!(metrics.value("pointsman_connections_active", &edge), 0.0);
    assert_eq!(metrics.closed("edge", "client_closed"), 1.0);
    assert_eq!(pointsman.status()["listeners"]["edge"]["bytes_out"], 2000);
    pointsman.stop();
}

/// Who connects before the first worker runs is logged like everybody else.
#[test]
fn the_very_first_connection_is_logged() {
    let backend = Backend::serving(|mut stream| stream.expect_end());
    let yaml = one_listener("", &[&backend.address()], "");
    for _ in 0..40 {
        let mut pointsman = Pointsman::spawn(&yaml.replace("127.0.0.1:0", "unix:DIR/edge"));
        let edge = format!("unix:{}/edge", pointsman.directory().display());
        let mut clients: Vec<_> =
            (0..3).map(|_| wait_for("the listener", || Stream::try_connect(&edge).ok())).collect();
        for client in &mut clients {
            client.finish();
            client.expect_end();
        }
        pointsman.wait_ready();
        assert_eq!(pointsman.stop().len(), clients.len());
    }
}

#[test]
fn nginx_answers_through_it() {
    let nginx = Nginx::start("return 200 \"hello from $server_protocol\\n\";");
    let pointsman = Pointsman::start(&one_listener("", &[&nginx.address()], ""));
    let mut client = pointsman.connect("edge");
    client.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8(client.read_to_end()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello from HTTP/1.1\n"), "{answer}");
    drop(client);
    pointsman.stop();
}
