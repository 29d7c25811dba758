//! Flows: they keep their backend, and are counted, logged, listed and ended as sessions are.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{
    Backend, Metrics, Pointsman, UdpBackend, UdpClient, one_udp_listener, pass, wait_for,
    wait_until,
};

const EDGE: (&str, &str) = ("listener", "edge");

fn value(metrics: &Metrics, name: &str, more: &[(&str, &str)]) -> f64 {
    metrics.value(&format!("pointsman_udp_{name}"), &[&[EDGE], more].concat())
}

fn sessions(pointsman: &Pointsman) -> Value {
    let (status, body) = pointsman.admin("GET", "/api/v1/sessions");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn id(pointsman: &Pointsman, client: &UdpClient) -> Option<String> {
    let all = sessions(pointsman);
    let mut sessions = all["sessions"].as_array().unwrap().iter();
    let own = sessions.find(|session| session["client"] == client.local())?;
    Some(own["id"].as_str().unwrap().to_owned())
}

#[test]
fn a_flow_keeps_its_backend_and_is_recorded() {
    const CLIENTS: usize = 12;
    let backends = ["a", "b", "c"].map(UdpBackend::echo);
    let all: Vec<_> = backends.iter().collect();
    let config = |idle: &str| {
        let listener = format!("timeouts: {{ idle: {idle} }}");
        let yaml = one_udp_listener(&listener, &all, "balance: round_robin");
        format!("workers: 2\n{yaml}")
    };
    let pointsman = Pointsman::start(&config("1h"));
    assert_eq!(pointsman.status()["listeners"]["edge"]["protocol"], "udp");
    let edge = pointsman.address("edge");
    let clients: Vec<_> = (0..CLIENTS).map(|_| UdpClient::to(&edge)).collect();
    let names: Vec<_> = clients.iter().map(|client| client.backend("0")).collect();
    for name in ["a", "b", "c"] {
        assert_eq!(names.iter().filter(|own| *own == name).count(), CLIENTS / 3, "{names:?}");
    }
    for round in 1..10 {
        for (client, name) in clients.iter().zip(&names) {
            assert_eq!(client.backend(&round.to_string()), *name);
        }
    }
    let metrics = pointsman.metrics();
    assert_eq!(metrics.active("edge"), CLIENTS as f64);
    assert_eq!(value(&metrics, "flows_active", &[]), CLIENTS as f64);
    // While they are open.
    let labels = [EDGE, ("direction", "in")];
    assert_eq!(metrics.value("pointsman_bytes_total", &labels), (CLIENTS * 10) as f64);
    pointsman.reload(&config("700ms")).unwrap();
    // Of 1 byte each, to which an answer adds 2.
    let metrics = pointsman.wait_idle();
    let count = (CLIENTS * 10) as f64;
    for (direction, bytes) in [("in", count), ("out", 3.0 * count)] {
        let labels = [("direction", direction)];
        assert_eq!(value(&metrics, "datagrams_total", &labels), count);
        assert_eq!(metrics.value("pointsman_bytes_total", &[EDGE, labels[0]]), bytes);
        let of_backends = backends.iter().map(|backend| {
            let labels = [("pool", "pool"), ("backend", &*backend.address()), labels[0]];
            metrics.value("pointsman_backend_bytes_total", &labels)
        });
        assert_eq!(of_backends.sum::<f64>(), bytes);
    }
    assert_eq!(value(&metrics, "flows_total", &[]), CLIENTS as f64);
    assert_eq!(metrics.closed("edge", "idle_timeout"), CLIENTS as f64);
    assert_eq!(metrics.sum("pointsman_udp_dropped_total", EDGE), 0.0);
    assert_eq!(metrics.sum("pointsman_backend_connections_total", ("pool", "pool")), 12.0);
    let records = pointsman.access_log(CLIENTS);
    for (client, name) in clients.iter().zip(&names) {
        let own = records.iter().filter(|record| record.text("client") == client.local());
        let [record] = &own.collect::<Vec<_>>()[..] else { panic!("{records:?}") };
        let backend = &backends[usize::from(name.as_bytes()[0] - b'a')];
        assert_eq!((record.text("listener"), record.text("protocol")), ("edge", "udp"));
        assert_eq!((record.text("local"), record.text("pool")), (&*edge, "pool"));
        assert_eq!(record.text("backend"), backend.address());
        assert_eq!(record.attempts(), [(backend.address(), "connected".to_owned())]);
        assert_eq!((record.number("bytes_in"), record.number("bytes_out")), (10.0, 30.0));
        assert_eq!(record.text("termination"), "idle_timeout");
        assert!(record.number("first_byte_ms") < record.number("duration_ms"));
        assert!(record.number("duration_ms") >= 700.0);
        assert!(record.is_null("preread_ms") && record.is_null("sni") && record.is_null("peer"));
    }
    pointsman.stop();
}

/// Answers keep a flow alive as questions do; one without either ends.
#[test]
fn what_passes_either_way_keeps_a_flow() {
    let backend = UdpBackend::sink();
    let yaml = one_udp_listener("timeouts: { idle: 400ms }", &[&backend], "");
    let pointsman = Pointsman::start(&yaml);
    let client = UdpClient::to(&pointsman.address("edge"));
    client.send("hello");
    wait_until("the datagram", || backend.count() == 1);
    let to = backend.received()[0].from;
    for _ in 0..10 {
        pass(Duration::from_millis(100));
        backend.send(b"still here", to);
        assert_eq!(client.receive(), b"still here");
    }
    assert_eq!(pointsman.metrics().active("edge"), 1.0);
    pointsman.wait_idle();
    let record = pointsman.access_log(1).remove(0);
    assert!(record.number("duration_ms") >= 1400.0, "{record:?}");
    assert_eq!((record.number("bytes_in"), record.number("bytes_out")), (5.0, 100.0));
}

#[test]
fn flows_are_listed_and_one_ends_by_its_id() {
    let backend = UdpBackend::echo("a");
    let yaml = one_udp_listener("", &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 2\n{yaml}"));
    let edge = pointsman.address("edge");
    let clients = [0; 4].map(|_| UdpClient::to(&edge));
    for (client, rounds) in clients.iter().zip(1..) {
        (0..rounds).for_each(|_| drop(client.backend("1234")));
    }
    let all = sessions(&pointsman);
    assert_eq!(all["total"], 4);
    for (session, rounds) in all["sessions"].as_array().unwrap().iter().zip([4, 3, 2, 1]) {
        assert_eq!(session["client"], clients[rounds - 1].local());
        assert_eq!((&session["protocol"], &session["state"]), (&"udp".into(), &"relaying".into()));
        assert_eq!(session["backend"], backend.address());
        assert_eq!(session["bytes_in"], 4 * rounds);
        assert_eq!(session["bytes_out"], 6 * rounds);
    }
    let ended = id(&pointsman, &clients[1]).unwrap();
    let answer = pointsman.command(&["sessions", "end", &ended]).success();
    assert_eq!(answer, format!("{ended}: told to end\n"));
    let record = pointsman.access_log(1).remove(0);
    assert_eq!((record.text("id"), record.text("termination")), (&*ended, "drained"));
    assert_eq!(sessions(&pointsman)["total"], 3);
    // Its client's next datagram begins another.
    assert_eq!(clients[1].backend("again"), "a");
    assert_ne!(id(&pointsman, &clients[1]).unwrap(), ended);
    assert_eq!(pointsman.admin("DELETE", &format!("/api/v1/sessions/{ended}")).0, 404);
    // Also when the client is told nothing and goes on at once.
    let next = wait_for("the flow", || id(&pointsman, &clients[0]));
    assert_eq!(pointsman.admin("DELETE", &format!("/api/v1/sessions/{next}")).0, 200);
    assert_eq!(clients[0].backend("again"), "a");
    assert_eq!(pointsman.metrics().closed("edge", "drained"), 2.0);
}

#[test]
fn status_shows_the_protocol() {
    let backend = UdpBackend::echo("a");
    let yaml = one_udp_listener("", &[&backend], "");
    let pointsman = Pointsman::start(&yaml);
    let table = pointsman.command(&["status"]).success();
    let row = table.lines().find(|line| line.starts_with("edge")).unwrap();
    assert!(row.contains("udp"), "{table}");
}

/// Their time passes without anybody looking at them.
#[test]
fn idle_flows_cost_no_time() {
    let backend = UdpBackend::echo("a");
    let pointsman = Pointsman::start(&one_udp_listener("", &[&backend], ""));
    let edge = pointsman.address("edge");
    let clients: Vec<_> = (0..200).map(|_| UdpClient::to(&edge)).collect();
    clients.iter().for_each(|client| drop(client.backend("x")));
    // Drops of the kernel are counted once more.
    pass(Duration::from_millis(700));
    let before = pointsman.cpu_time();
    pass(Duration::from_millis(500));
    let spent = pointsman.cpu_time() - before;
    assert!(spent < Duration::from_millis(30), "{spent:?} of 500ms");
    assert_eq!(pointsman.metrics().active("edge"), 200.0);
}

/// One worker for both: datagrams that never end leave connections their turn.
#[test]
fn a_flood_of_datagrams_leaves_sessions_their_turn() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let (sink, stream) = (UdpBackend::sink(), Backend::echo());
    let pointsman = Pointsman::start(&format!(
        "workers: 1\nlisteners:\n  tcp: {{ bind: \"127.0.0.1:0\", pool: tcp }}\n  \
         udp: {{ bind: \"127.0.0.1:0\", protocol: udp, pool: udp }}\n\
         pools:\n  tcp: {{ backends: [\"{}\"], health: off }}\n  \
         udp: {{ backends: [\"{}\"] }}\n",
        stream.address(),
        sink.address()
    ));
    let udp = pointsman.address("udp");
    let stop = AtomicBool::new(false);
    let since = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let client = UdpClient::to(&udp);
                while !stop.load(Relaxed) {
                    client.send([0; 100]);
                }
            });
        }
        wait_until("the flood", || sink.count() > 1000);
        let since = std::time::Instant::now();
        for _ in 0..20 {
            let mut session = pointsman.connect("tcp");
            session.send(1000);
            session.receive(1000);
        }
        stop.store(true, Relaxed);
        since.elapsed()
    });
    assert!(since < Duration::from_secs(4), "{since:?}");
}
