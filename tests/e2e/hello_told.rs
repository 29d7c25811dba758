//! What pointsman tells of hellos: in the access log of every outcome, in its metrics. And what
//! reading them must not do to a session.

use std::time::{Duration, Instant};

use crate::harness::hello::Hello;
use crate::harness::{
    Backend, Edge, Metrics, Pointsman, Record, answer, answering, captured, one_listener, pass,
    routed, wait_until,
};

const NAME: &str = "www.example.com";

fn hello() -> Vec<u8> {
    Hello::to("WWW.example.com.").alpn(&["h2", "http/1.1"]).bytes()
}

fn count(metrics: &Metrics, name: &str) -> f64 {
    metrics.value(&format!("pointsman_{name}"), &[("listener", "edge")])
}

/// A record that tells of [`hello`].
fn expect_told(record: &Record, termination: &str) {
    assert_eq!(record.text("termination"), termination);
    assert_eq!(record.text("sni"), NAME, "{termination}");
    assert_eq!(record.list("alpn"), ["h2", "http/1.1"], "{termination}");
    let (preread, whole) = (record.number("preread_ms"), record.number("duration_ms"));
    assert!(preread > 0.0 && preread <= whole, "{record:?}");
}

/// One connection with [`hello`] through a listener with this route, whose pool has this backend.
fn outcome(listener: &[&str], route: &str, backend: &str, keys: &str, termination: &str) {
    let yaml = routed(listener, &[route], &[("pool", backend.to_owned())]);
    let pointsman = Pointsman::start(&yaml.replace("health: off", &format!("health: off{keys}")));
    let mut stream = pointsman.connect("edge");
    stream.write(&hello());
    wait_until("the end", || stream.is_hung_up());
    drop(stream);
    let records = pointsman.access_log(1);
    expect_told(&records[0], termination);
    let metrics = pointsman.wait_idle();
    assert_eq!(metrics.closed("edge", termination), 1.0);
    assert_eq!(count(&metrics, "preread_seconds_count"), 1.0);
}

#[test]
fn the_log_of_every_outcome() {
    let route = "{ sni: www.example.com, pool: pool }";
    let refusing = Backend::refusing();
    let silent = Backend::serving(|mut stream| drop(stream.read_to_end()));
    let resetting = Backend::serving(|mut stream| {
        stream.read(1);
        stream.reset();
    });
    let closing = Backend::serving(|mut stream| drop(stream.read(hello().len())));
    let silent = silent.address();
    outcome(&[], route, &refusing.address(), "", "connect_failed");
    outcome(&[], "{ sni: www.example.com, action: reject }", &silent, "", "rejected");
    outcome(&[], "{ sni: www.example.com, action: reset }", &silent, "", "rejected");
    outcome(&[], "{ sni: other.example.com, pool: pool }", &silent, "", "no_route");
    outcome(&["timeouts: { idle: 100ms }"], route, &silent, "", "idle_timeout");
    outcome(&["timeouts: { lifetime: 100ms }"], route, &silent, "", "lifetime");
    outcome(&[], route, &resetting.address(), "", "backend_reset");
    outcome(&[], route, &closing.address(), "", "backend_closed");
    outcome(
        &["preread: { always: true }"],
        "{ pool: pool }",
        &closing.address(),
        "",
        "backend_closed",
    );
}

#[test]
fn the_log_of_no_backend() {
    let backend = Backend::echo();
    let yaml = one_listener("preread: { always: true }", &[], "");
    let weightless = format!("{{ address: \"{}\", weight: 0 }}", backend.address());
    let pointsman =
        Pointsman::start(&yaml.replace("backends: []", &format!("backends: [{weightless}]")));
    let mut stream = pointsman.connect("edge");
    stream.write(&hello());
    stream.expect_end();
    drop(stream);
    expect_told(&pointsman.access_log(1)[0], "no_backend");
}

/// Where nothing needs the hello it is not read, and nothing is told of it.
#[test]
fn what_is_not_read_is_not_told() {
    let edge = Edge::start(&[], &["{ source: 127.0.0.0/8, pool: a }"], &["a"]);
    assert_eq!(edge.ask(&captured("chromium-156")).as_deref(), Some("a"));
    let metrics = edge.pointsman.wait_idle();
    assert_eq!(
        (count(&metrics, "preread_seconds_count"), count(&metrics, "ech_total")),
        (0.0, 0.0)
    );
    let record = edge.pointsman.access_log(1).remove(0);
    assert!(["sni", "alpn", "preread_ms"].iter().all(|key| record.is_null(key)), "{record:?}");
}

/// Browsers send GREASE for it; the outer name is what routes.
#[test]
fn ech_is_counted() {
    let routes = ["{ sni: [shop.example.com, ff.example.com], pool: browsers }", "{ pool: other }"];
    let edge = Edge::start(&[], &routes, &["browsers", "other"]);
    for (file, pool, counted) in [
        ("chromium-156", "browsers", 1.0),
        ("firefox-esr", "browsers", 2.0),
        ("openssl-3.0", "other", 2.0),
        ("openssl-no-sni", "other", 2.0),
    ] {
        assert_eq!(edge.ask(&captured(file)).as_deref(), Some(pool), "{file}");
        assert_eq!(count(&edge.pointsman.wait_idle(), "ech_total"), counted, "{file}");
    }
    assert_eq!(count(&edge.pointsman.metrics(), "preread_seconds_count"), 4.0);
}

#[test]
fn a_thousand_names_add_no_series() {
    let edge =
        Edge::start(&[], &["{ sni: \"*.example.com\", pool: a }", "{ pool: b }"], &["a", "b"]);
    edge.ask(&hello());
    let before = edge.pointsman.wait_idle().names();
    let named = |number| {
        let tail = if number % 2 == 0 { "example.com" } else { "example.org" };
        vec![Hello::to(&format!("host{number}.{tail}")).alpn(&[format!("p{number}")]).bytes()]
    };
    let flights: Vec<_> = (0..1000).map(named).collect();
    let answers = edge.ask_all(&flights);
    let expected = [Some("a".to_owned()), Some("b".to_owned())];
    assert!(answers.chunks(2).all(|pair| *pair == expected));
    let metrics = edge.pointsman.wait_idle();
    assert_eq!(count(&metrics, "connections_total"), 1001.0);
    assert_eq!(metrics.names(), before);
    // The log has them all.
    let records = edge.pointsman.access_log(1001);
    let names: std::collections::BTreeSet<_> = records.iter().map(|r| r.text("sni")).collect();
    assert_eq!(names.len(), 1001);
}

/// An attempt that fails has cost the client nothing: the next backend gets the whole hello.
#[test]
fn the_hello_is_replayed_to_the_next_backend() {
    let refusing = [Backend::refusing(), Backend::refusing()];
    let backend = answering("third");
    let list = [refusing[0].address(), refusing[1].address(), backend.address()];
    let list: Vec<_> = list.iter().map(String::as_str).collect();
    let yaml = one_listener("preread: { always: true }", &list, "balance: round_robin");
    let pointsman = Pointsman::start(&yaml);
    for flight in [hello(), captured("chromium-156"), [hello(), vec![1; 30_000]].concat()] {
        for _ in 0..3 {
            let mut stream = pointsman.connect("edge");
            stream.write(&flight);
            stream.finish();
            let answer = answer(&stream.read_to_end(), &flight);
            assert_eq!(answer.as_deref(), Some("third"));
        }
    }
    let records = pointsman.access_log(9);
    let most = records.iter().map(|record| record.attempts().len()).max();
    assert_eq!(most, Some(3), "an attempt at each");
    assert!(records.iter().all(|record| record.text("backend") == backend.address()));
}

/// No hello is waited for where no route asks for one.
#[test]
fn who_speaks_second_is_served_at_once() {
    let backend = Backend::serving(|mut stream| {
        stream.write(b"220 at your service\r\n");
        let _end = stream.read_to_end();
    });
    let pool = [("pool", backend.address())];
    let listener = ["preread: { timeout: 15s }"];
    for routes in
        [&["{ pool: pool }"][..], &["{ source: 127.0.0.0/8, pool: pool }", "{ action: reset }"]]
    {
        let pointsman = Pointsman::start(&routed(&listener, routes, &pool));
        let begun = Instant::now();
        let mut stream = pointsman.connect("edge");
        assert_eq!(stream.read(21), b"220 at your service\r\n");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        drop(stream);
        assert!(pointsman.access_log(1)[0].is_null("preread_ms"));
    }
}

/// The deadline is for the hello alone.
#[test]
fn the_deadline_ends_with_the_hello() {
    let backend = Backend::echo();
    let listener = ["preread: { timeout: 800ms }", "timeouts: { idle: 10s }"];
    let yaml = routed(
        &listener,
        &["{ sni: www.example.com, pool: pool }"],
        &[("pool", backend.address())],
    );
    let pointsman = Pointsman::start(&yaml);
    let mut stream = pointsman.connect("edge");
    let bytes = hello();
    // The last byte comes while the deadline runs.
    stream.write(&bytes[..bytes.len() - 1]);
    pass(Duration::from_millis(200));
    stream.write(&bytes[bytes.len() - 1..]);
    assert_eq!(stream.read(bytes.len()), bytes);
    pass(Duration::from_millis(900)); // the matter of the test: the deadline comes and goes
    stream.send(1000);
    stream.receive(1000);
    stream.finish();
    stream.expect_end();
    drop(stream);
    expect_told(&pointsman.access_log(1)[0], "client_closed");
}
