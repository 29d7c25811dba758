//! Backends that are gone: what their machine says of them moves flows, and silences no socket.

use std::time::Duration;

use crate::harness::{Metrics, Pointsman, UdpBackend, UdpClient, one_udp_listener, wait_until};

fn refusals(metrics: &Metrics, backend: &UdpBackend, reason: &str) -> f64 {
    let labels = [("pool", "pool"), ("backend", &*backend.address()), ("reason", reason)];
    metrics.value("pointsman_backend_connect_failures_total", &labels)
}

#[test]
fn a_flow_moves_when_its_backend_is_refused() {
    let (a, b) = (UdpBackend::echo("a"), UdpBackend::echo("b"));
    let pool = "balance: round_robin, outlier: off";
    let config =
        |idle: &str| one_udp_listener(&format!("timeouts: {{ idle: {idle} }}"), &[&a, &b], pool);
    let pointsman = Pointsman::start(&config("1h"));
    let edge = pointsman.address("edge");
    let clients: Vec<_> = (0..6).map(|_| UdpClient::to(&edge)).collect();
    let names: Vec<_> = clients.iter().map(|client| client.backend("x")).collect();
    assert_eq!(names.iter().filter(|name| *name == "a").count(), 3);
    a.close();
    for (client, name) in clients.iter().zip(&names) {
        if name == "b" {
            // Undisturbed.
            assert_eq!(client.backend("on"), "b");
            continue;
        }
        // This one is lost; by the time that is known the next goes elsewhere.
        let before = refusals(&pointsman.metrics(), &a, "refused");
        client.send("lost");
        pointsman.expect_count(before + 1.0, |metrics| refusals(metrics, &a, "refused"));
        assert_eq!(client.backend("moved"), "b");
        assert_eq!(client.backend("and stays"), "b");
    }
    let metrics = pointsman.metrics();
    assert_eq!(refusals(&metrics, &a, "refused"), 3.0);
    let active = |backend: &UdpBackend| {
        let labels = [("pool", "pool"), ("backend", &*backend.address())];
        metrics.value("pointsman_backend_connections_active", &labels)
    };
    assert_eq!((active(&a), active(&b)), (0.0, 6.0));
    assert_eq!(metrics.sum("pointsman_udp_flows_total", ("listener", "edge")), 6.0);
    pointsman.reload(&config("300ms")).unwrap();
    pointsman.wait_idle();
    for record in pointsman.stop() {
        assert_eq!(record.text("backend"), b.address());
        let client = clients.iter().position(|client| client.local() == record.text("client"));
        let attempts = record.attempts();
        if names[client.unwrap()] == "a" {
            let expected = [(&a, "connected"), (&a, "refused"), (&b, "connected")];
            let expected = expected.map(|(backend, what)| (backend.address(), what.to_owned()));
            assert_eq!(attempts, expected);
        } else {
            assert_eq!(attempts.len(), 1);
        }
        assert_eq!(record.text("termination"), "idle_timeout");
    }
}

#[test]
fn a_refused_backend_is_ejected_and_tried_again() {
    let (a, b) = (UdpBackend::echo("a"), UdpBackend::echo("b"));
    let pool = "balance: round_robin, outlier: { base_ejection: 500ms }";
    let pointsman = Pointsman::start(&one_udp_listener("", &[&a, &b], pool));
    let edge = pointsman.address("edge");
    assert_eq!(UdpClient::to(&edge).insist("x").len(), 1);
    a.close();
    wait_until("the ejection", || {
        UdpClient::to(&edge).send("x");
        pointsman.state(&a.address()) == "ejected"
    });
    assert!(refusals(&pointsman.metrics(), &a, "refused") >= 3.0);
    a.open();
    wait_until("it to be back", || {
        let client = UdpClient::to(&edge);
        client.insist("x") == "a" && pointsman.state(&a.address()) != "ejected"
    });
    let names: Vec<_> = (0..10).map(|_| UdpClient::to(&edge).backend("x")).collect();
    assert_eq!(names.iter().filter(|name| *name == "a").count(), 5, "{names:?}");
}

/// There is nowhere else to go: what is sent is tried, and works again when the backend does.
#[test]
fn a_single_backend_comes_back() {
    for outlier in ["off", "{ base_ejection: 300ms }"] {
        let backend = UdpBackend::echo("a");
        let yaml = one_udp_listener("", &[&backend], &format!("outlier: {outlier}"));
        let pointsman = Pointsman::start(&yaml);
        let edge = pointsman.address("edge");
        let clients: Vec<_> = (0..3).map(|_| UdpClient::to(&edge)).collect();
        clients.iter().for_each(|client| drop(client.backend("x")));
        backend.close();
        for _ in 0..10 {
            clients.iter().for_each(|client| client.send("lost"));
            pointsman.wait_received();
        }
        wait_until("refusals", || refusals(&pointsman.metrics(), &backend, "refused") >= 3.0);
        let late = UdpClient::to(&edge);
        late.send("lost");
        assert_eq!(late.try_receive(Duration::from_millis(20)), None);
        backend.open();
        clients.iter().chain([&late]).for_each(|client| assert_eq!(client.insist("back"), "a"));
    }
}

/// The socket that all senders share is refused for all of them.
#[test]
fn senders_without_answers_move_too() {
    let (a, b) = (UdpBackend::sink(), UdpBackend::sink());
    let pool = "balance: round_robin, outlier: off";
    let yaml = one_udp_listener("udp: { responses: 0 }", &[&a, &b], pool);
    let pointsman = Pointsman::start(&format!("workers: 1\n{yaml}"));
    let edge = pointsman.address("edge");
    let clients: Vec<_> = (0..10).map(|_| UdpClient::to(&edge)).collect();
    clients.iter().for_each(|client| client.send("x"));
    wait_until("all of it", || a.count() == 5 && b.count() == 5);
    a.close();
    // What the first of them loses, the others do not lose any more.
    for client in &clients {
        client.send("y");
        pointsman.wait_received();
    }
    wait_until("the rest", || b.count() == 14);
    clients.iter().for_each(|client| client.send("z"));
    wait_until("all of it", || b.count() == 24);
    assert_eq!((a.count(), refusals(&pointsman.metrics(), &a, "refused")), (5, 1.0));
}

/// The machine itself says that no way leads there.
#[test]
fn a_backend_without_a_way_is_passed_over() {
    const NOWHERE: &str = "255.255.255.255:9";
    let backend = UdpBackend::echo("a");
    let pool = "balance: round_robin, outlier: off";
    let yaml = one_udp_listener("", &[&backend], pool);
    let both = yaml.replace("backends: [", &format!("backends: [\"{NOWHERE}\", "));
    let pointsman = Pointsman::start(&both);
    let edge = pointsman.address("edge");
    for _ in 0..4 {
        assert_eq!(UdpClient::to(&edge).backend("x"), "a");
    }
    let labels = [("pool", "pool"), ("backend", NOWHERE), ("reason", "unreachable")];
    let failures = "pointsman_backend_connect_failures_total";
    let count = |pointsman: &Pointsman| pointsman.metrics().value(failures, &labels);
    assert!((2.0..=4.0).contains(&count(&pointsman)), "{}", count(&pointsman));

    let only = both.replace(&format!(", \"{}\"", backend.address()), "");
    let pointsman = Pointsman::start(&only);
    let client = UdpClient::to(&pointsman.address("edge"));
    client.send("x");
    let record = pointsman.access_log(1).remove(0);
    assert_eq!(record.text("termination"), "connect_failed");
    assert_eq!((record.text("pool"), record.text("backend")), ("pool", "-"));
    assert_eq!(record.attempts(), [(NOWHERE.to_owned(), "unreachable".to_owned())]);
    assert_eq!(count(&pointsman), 1.0);
    let dropped = [("listener", "edge"), ("reason", "flow")];
    pointsman.expect_count(1.0, |metrics| metrics.value("pointsman_udp_dropped_total", &dropped));
    pointsman.stop();
}

/// A client that goes away, so that answers to it are refused, harms no other.
#[test]
fn a_client_that_is_gone_silences_nothing() {
    let backend = UdpBackend::serving("127.0.0.1:0", false, |socket, bytes, from| {
        (0..20).for_each(|_| drop(socket.send_to(bytes, from)));
    });
    let pointsman = Pointsman::start(&one_udp_listener("", &[&backend], ""));
    let edge = pointsman.address("edge");
    let client = UdpClient::to(&edge);
    for round in 0..50 {
        UdpClient::to(&edge).send("gone");
        let text = round.to_string();
        client.send(&text);
        (0..20).for_each(|_| assert_eq!(client.receive(), text.as_bytes()));
    }
    wait_until("all answers", || {
        let labels = [("listener", "edge"), ("direction", "out")];
        pointsman.metrics().value("pointsman_udp_datagrams_total", &labels) == 2000.0
    });
}

/// Nobody answers, so that nothing but time can speak for a backend that has been ejected.
#[test]
fn backends_that_never_answer_come_back_too() {
    for udp in [
        "udp: { responses: 0 }",
        "udp: { responses: 0, requests: 1 }",
        "udp: { responses: 0, per_packet: true }",
        "udp: { responses: off }, timeouts: { idle: 1h }",
    ] {
        let (a, b) = (UdpBackend::sink(), UdpBackend::sink());
        let pool = "balance: round_robin, connect: { timeout: 100ms }, \
                    outlier: { base_ejection: 500ms }";
        let pointsman = Pointsman::start(&one_udp_listener(udp, &[&a, &b], pool));
        let edge = pointsman.address("edge");
        a.close();
        wait_until("the ejection", || {
            UdpClient::to(&edge).send("x");
            pointsman.state(&a.address()) == "ejected"
        });
        a.open();
        let before = a.count();
        wait_until("it to be back", || {
            UdpClient::to(&edge).send("x");
            pointsman.state(&a.address()) == "up" && a.count() > before + 5
        });
    }
}
