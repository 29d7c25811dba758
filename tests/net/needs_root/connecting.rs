//! Attempts to connect that fail in ways one machine alone does not show.

use std::time::{Duration, Instant};

use crate::harness::{Backend, Record, Stream, one_listener, wait_until};
use crate::namespace::{Namespace, Network};

/// Attempts of each record at `address`, and that all records ended well at `good`.
fn outcomes(records: &[Record], address: &str, good: &str) -> Vec<String> {
    let mut outcomes = Vec::new();
    for record in records {
        let mut attempts = record.attempts();
        assert_eq!(record.text("termination"), "client_closed", "{record:?}");
        assert_eq!(attempts.pop(), Some((good.to_owned(), "connected".to_owned())), "{record:?}");
        for (backend, outcome) in attempts {
            assert_eq!(backend, address, "{record:?}");
            outcomes.push(outcome);
        }
    }
    outcomes
}

/// Each way of not being there has its reason, and another backend takes the connection.
#[test]
fn what_does_not_answer_is_told_apart_and_passed_over() {
    let network = Network::new();
    let (middle, backend) = (&network.middle, &network.backend);
    // Packets to .66 leave for a host that is not there.
    middle.ip("neigh add 10.2.0.66 lladdr 02:00:00:00:00:66 dev right nud permanent");
    // The host itself knows that there is no way to .1, and a router tells it of .2.
    middle.ip("route add unreachable 10.9.0.1/32");
    middle.ip("route add 10.9.0.2/32 via 10.2.0.2");
    backend.set("net/ipv4/ip_forward", "1");
    backend.set("net/ipv4/icmp_ratelimit", "0");
    backend.ip("route add unreachable 10.9.0.2/32");
    let mut good = backend.within(|| Backend::listening("10.2.0.2:0"));
    good.serve(|mut stream| stream.expect_end());
    let good = good.address();
    let timeout = Duration::from_millis(400);
    for (address, reason) in [
        ("10.2.0.66:80", "timeout"),
        ("10.9.0.1:80", "unreachable"),
        ("10.9.0.2:80", "unreachable"),
        ("10.2.0.2:1", "refused"),
    ] {
        let pool = "balance: round_robin, connect: { timeout: 400ms }";
        let yaml = one_listener("", &[address, &good], pool);
        let yaml = yaml.replace("127.0.0.1:0", "10.1.0.1:0");
        let pointsman = middle.start(&yaml);
        let edge = pointsman.address("edge");
        let begun = Instant::now();
        for _ in 0..4 {
            let mut client = network.client.within(|| Stream::connect(&edge));
            client.finish();
            client.expect_end();
        }
        let failed = outcomes(&pointsman.access_log(4), address, &good);
        assert!(!failed.is_empty() && failed.iter().all(|outcome| outcome == reason), "{failed:?}");
        let (took, failures) = (begun.elapsed(), failed.len() as u32);
        assert_eq!(took >= timeout * failures, reason == "timeout", "{address}: {took:?}");
        let labels = [("pool", "pool"), ("backend", address), ("reason", reason)];
        let counted =
            pointsman.metrics().value("pointsman_backend_connect_failures_total", &labels);
        assert_eq!(counted, f64::from(failures));
        pointsman.stop();
    }
}

/// A check fails for the same reasons.
#[test]
fn a_check_says_why_it_failed() {
    let network = Network::new();
    let middle = &network.middle;
    middle.ip("neigh add 10.2.0.66 lladdr 02:00:00:00:00:66 dev right nud permanent");
    middle.ip("route add unreachable 10.9.0.1/32");
    let backends = ["10.2.0.66:80", "10.9.0.1:80", "10.2.0.2:1"];
    let yaml = one_listener("", &backends, "panic_threshold: off");
    let yaml = yaml.replace("health: off", "health: { interval: 1s, timeout: 200ms }");
    let pointsman = middle.start(&yaml);
    let status = pointsman.status();
    for (backend, reason) in backends.iter().zip(["timeout", "unreachable", "refused"]) {
        let backend = &status["pools"]["pool"]["backends"][backend];
        assert_eq!(backend["state"], "down", "{backend}");
        assert_eq!(backend["last_check"]["reason"], reason, "{backend}");
    }
    pointsman.stop();
}

/// With no local port left towards a backend the connection fails at once or goes elsewhere, and
/// the backend is not held to be down: neither by connections nor by checks.
#[test]
fn no_local_port_is_our_shortage() {
    let namespace = Namespace::new();
    let [backend, other] = namespace.within(|| {
        ["127.0.0.1:0", "127.0.0.2:0"].map(|address| {
            let mut backend = Backend::listening(address);
            backend.serve(|mut stream| stream.expect_end());
            backend
        })
    });
    let yaml = |backends: &[&str]| {
        one_listener("", backends, "panic_threshold: off")
            .replace("health: off", "health: { interval: 300ms, fall: 1 }")
            .replace("127.0.0.1:0", "unix:DIR/edge")
    };
    let (address, other) = (backend.address(), other.address());
    let pointsman = namespace.start(&yaml(&[&address]));
    namespace.set("net/ipv4/ip_local_port_range", "50000 50003");
    let edge = pointsman.address("edge");
    let failures = |backend: &str| {
        let labels = [("pool", "pool"), ("backend", backend), ("reason", "local_ports")];
        pointsman.metrics().value("pointsman_backend_connect_failures_total", &labels)
    };
    let mut sessions = Vec::new();
    while failures(&address) == 0.0 {
        sessions.push(Stream::connect(&edge));
        assert!(sessions.len() < 500, "ports never run out");
    }
    let begun = Instant::now();
    Stream::connect(&edge).expect_end();
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    for record in pointsman.access_log(1) {
        assert_eq!(record.text("termination"), "connect_failed");
        assert_eq!(record.attempts(), [(address.clone(), "local_ports".to_owned())]);
    }

    wait_until("a check without a port", || {
        let backend = &pointsman.status()["pools"]["pool"]["backends"][&*address];
        assert_eq!(backend["state"], "up", "{backend}");
        backend["last_check"]["reason"] == "local_ports"
    });
    // Ports are short towards one address only.
    pointsman.reload(&yaml(&[&address, &other])).unwrap();
    wait_until("the other one to be up", || {
        pointsman.status()["pools"]["pool"]["backends"][&*other]["state"] == "up"
    });
    let mut client = Stream::connect(&edge);
    client.finish();
    client.expect_end();
    wait_until("a connection elsewhere", || {
        pointsman.access_log(0).iter().any(|record| record.text("backend") == other)
    });

    // What is given back can be used again.
    drop(sessions);
    let before = pointsman.all_records().len();
    pointsman.reload(&yaml(&[&address])).unwrap();
    wait_until("a port to be free", || {
        let mut client = Stream::connect(&edge);
        client.finish();
        client.expect_end();
        drop(client);
        let records = pointsman.access_log(before + 1);
        records[before..].iter().any(|record| record.text("backend") == address)
    });
    pointsman.stop();
}
