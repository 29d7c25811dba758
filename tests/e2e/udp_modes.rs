//! When a flow ends: `udp.responses`, `requests` and `per_packet`. And how few sockets it takes.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::Duration;

use crate::harness::{
    Metrics, Pointsman, UdpBackend, UdpClient, one_udp_listener, pass, wait_for, wait_until,
};

fn flows(metrics: &Metrics) -> f64 {
    metrics.value("pointsman_udp_flows_total", &[("listener", "edge")])
}

fn dropped(pointsman: &Pointsman, reason: &str) -> f64 {
    let labels = [("listener", "edge"), ("reason", reason)];
    pointsman.metrics().value("pointsman_udp_dropped_total", &labels)
}

/// One-way traffic: no flow a datagram, and no socket a client.
#[test]
fn without_answers_all_clients_share_a_socket() {
    const WORKERS: usize = 2;
    let sinks = [0; 2].map(|_| UdpBackend::sink());
    let config = |idle: &str| {
        let listener =
            format!("udp: {{ responses: 0, receive_buffer: 4MiB }}, timeouts: {{ idle: {idle} }}");
        let backends = [&sinks[0], &sinks[1]];
        let yaml = one_udp_listener(&listener, &backends, "balance: round_robin");
        format!("workers: {WORKERS}\n{yaml}")
    };
    let pointsman = Pointsman::start(&config("1h"));
    let edge = pointsman.address("edge");
    let before = pointsman.usage_at_rest();
    let one = UdpClient::to(&edge);
    (0..1000).for_each(|index| one.send(format!("line {index}")));
    wait_until("all lines", || sinks.iter().map(UdpBackend::count).sum::<usize>() == 1000);
    assert_eq!(flows(&pointsman.metrics()), 1.0);
    let sink = sinks.iter().find(|sink| sink.count() > 0).unwrap();
    for (index, received) in sink.received().iter().enumerate() {
        assert_eq!(received.bytes, format!("line {index}").as_bytes());
    }

    let clients: Vec<_> = (0..200).map(|_| UdpClient::to(&edge)).collect();
    clients.iter().for_each(|client| client.send("a line"));
    wait_until("all of them", || sinks.iter().map(UdpBackend::count).sum::<usize>() == 1200);
    assert!(pointsman.usage().sockets <= before.sockets + 2 * WORKERS + 1);
    let sources: BTreeSet<_> =
        sinks.iter().flat_map(|sink| sink.received()).map(|received| received.from).collect();
    assert!(sources.len() <= 2 * WORKERS, "{sources:?}");
    // What is sent back nevertheless goes nowhere.
    sinks[0].send(b"what?", sinks[0].received()[0].from);
    wait_until("the drop", || dropped(&pointsman, "unexpected") == 1.0);
    pointsman.reload(&config("300ms")).unwrap();
    let metrics = pointsman.wait_idle();
    assert_eq!((flows(&metrics), metrics.closed("edge", "idle_timeout")), (201.0, 201.0));
    wait_until("the sockets to be closed", || pointsman.usage_at_rest() == before);
    pointsman.stop();
}

/// As DNS: each question is a flow of its own that its answer ends.
#[test]
fn an_answer_ends_a_flow() {
    const QUESTIONS: usize = 300;
    let backends = ["a", "b", "c"].map(UdpBackend::echo);
    let all: Vec<_> = backends.iter().collect();
    let listener = "udp: { responses: 1 }, timeouts: { idle: 10m }";
    let yaml = one_udp_listener(listener, &all, "balance: round_robin");
    let pointsman = Pointsman::start(&format!("workers: 2\n{yaml}"));
    let before = pointsman.usage_at_rest();
    let client = UdpClient::to(&pointsman.address("edge"));
    (0..QUESTIONS).for_each(|index| drop(client.backend(&index.to_string())));
    let metrics = pointsman.wait_idle();
    assert_eq!(flows(&metrics), QUESTIONS as f64);
    assert_eq!(metrics.closed("edge", "responses"), QUESTIONS as f64);
    for backend in &backends {
        assert_eq!(backend.count(), QUESTIONS / 3);
    }
    // Sockets are kept for the next one, one to each backend.
    assert!(pointsman.usage_at_rest().sockets <= before.sockets + 3);
    let records = pointsman.stop();
    assert_eq!(records.len(), QUESTIONS);
    assert!(records.iter().all(|record| record.text("termination") == "responses"));
}

/// Several questions at a time from one socket: as many answers as questions.
#[test]
fn answers_are_counted_against_questions() {
    let backend = UdpBackend::sink();
    let yaml = one_udp_listener("udp: { responses: 2 }", &[&backend], "");
    let pointsman = Pointsman::start(&yaml);
    let client = UdpClient::to(&pointsman.address("edge"));
    for _ in 0..3 {
        client.send("question");
    }
    wait_until("the questions", || backend.count() == 3);
    let to = backend.received()[0].from;
    for count in 0..6_u8 {
        assert_eq!(pointsman.metrics().active("edge"), 1.0, "{count}");
        backend.send(&[count], to);
        assert_eq!(client.receive(), [count]);
    }
    let metrics = pointsman.wait_idle();
    assert_eq!((flows(&metrics), metrics.closed("edge", "responses")), (1.0, 1.0));
    // One too many is nobody's.
    backend.send(b"late", to);
    wait_until("the drop", || dropped(&pointsman, "unexpected") == 1.0);
    assert_eq!(client.try_receive(Duration::from_millis(20)), None);
}

/// Whoever has asked gets the answers that come later, while the next question goes elsewhere.
#[test]
fn so_many_requests_are_a_flow() {
    let backends = ["a", "b"].map(UdpBackend::echo);
    let config = |idle: &str| {
        let listener = format!("udp: {{ requests: 3 }}, timeouts: {{ idle: {idle} }}");
        one_udp_listener(&listener, &[&backends[0], &backends[1]], "balance: round_robin")
    };
    let pointsman = Pointsman::start(&config("1h"));
    let client = UdpClient::to(&pointsman.address("edge"));
    let names: Vec<_> = (0..7).map(|index| client.backend(&index.to_string())).collect();
    assert_ne!(names[0], names[3]);
    let expected = [0, 0, 0, 3, 3, 3, 0].map(|index: usize| names[index].clone());
    assert_eq!(names, expected);
    // A burst is cut where it has to be.
    let other = UdpClient::to(&pointsman.address("edge"));
    (0..9).for_each(|_| other.send("x"));
    (0..9).for_each(|_| drop(other.receive()));
    pointsman.reload(&config("300ms")).unwrap();
    let metrics = pointsman.wait_idle();
    assert_eq!(flows(&metrics), 6.0);
    assert_eq!(metrics.closed("edge", "requests"), 5.0);
    assert_eq!(metrics.closed("edge", "idle_timeout"), 1.0);
    pointsman.stop();
}

/// The flow lasts for all its requests, and ends with the last answer to them.
#[test]
fn answers_end_a_flow_that_has_had_its_requests() {
    let backends = ["a", "b"].map(UdpBackend::echo);
    let listener = "udp: { requests: 3, responses: 1 }";
    let yaml = one_udp_listener(listener, &[&backends[0], &backends[1]], "balance: round_robin");
    let pointsman = Pointsman::start(&yaml);
    let client = UdpClient::to(&pointsman.address("edge"));
    let names: Vec<_> = (0..12).map(|index| client.backend(&index.to_string())).collect();
    for (three, next) in names.chunks(3).zip(names.chunks(3).skip(1)) {
        assert!(three.iter().all(|name| *name == three[0]), "{names:?}");
        assert_ne!(three[0], next[0], "{names:?}");
    }
    let metrics = pointsman.wait_idle();
    assert_eq!((flows(&metrics), metrics.closed("edge", "responses")), (4.0, 4.0));
}

/// Where no answer is waited for, the last request is the end.
#[test]
fn the_last_request_ends_what_has_no_answers() {
    let sinks = [0; 2].map(|_| UdpBackend::sink());
    let listener = "udp: { requests: 10, responses: 0, receive_buffer: 4MiB }";
    let yaml = one_udp_listener(listener, &[&sinks[0], &sinks[1]], "balance: round_robin");
    let pointsman = Pointsman::start(&yaml);
    let before = pointsman.usage_at_rest();
    let client = UdpClient::to(&pointsman.address("edge"));
    (0..1000_u16).for_each(|index| client.send(index.to_be_bytes()));
    wait_until("all of it", || sinks.iter().map(UdpBackend::count).sum::<usize>() == 1000);
    assert!(sinks.iter().all(|sink| sink.count() == 500));
    let metrics = pointsman.wait_idle();
    assert_eq!((flows(&metrics), metrics.closed("edge", "requests")), (100.0, 100.0));
    // One socket to each is kept for what comes next.
    assert_eq!(pointsman.usage_at_rest().sockets, before.sockets + 2);
    pointsman.reload_file().unwrap();
    assert_eq!(pointsman.usage_at_rest(), before);
}

#[test]
fn each_packet_is_picked_for() {
    const PACKETS: usize = 300;
    let backends = ["a", "b", "c"].map(UdpBackend::echo);
    let all: Vec<_> = backends.iter().collect();
    let listener = "udp: { per_packet: true, receive_buffer: 4MiB }";
    let yaml = one_udp_listener(listener, &all, "balance: round_robin");
    let pointsman = Pointsman::start(&format!("workers: 2\n{yaml}"));
    let before = pointsman.usage_at_rest();
    let client = UdpClient::to(&pointsman.address("edge"));
    // One at a time, and in a burst.
    for index in 0..PACKETS {
        client.backend(&index.to_string());
    }
    assert!(pointsman.usage().sockets <= before.sockets + 3 + 1);
    for _ in 0..PACKETS / 30 {
        (0..30).for_each(|index| client.send([index]));
        let mut got: Vec<_> = (0..30).map(|_| *client.receive().last().unwrap()).collect();
        got.sort_unstable();
        assert!(got.into_iter().eq(0..30));
    }
    for backend in &backends {
        assert_eq!(backend.count(), 2 * PACKETS / 3);
    }
    let metrics = pointsman.wait_idle();
    assert_eq!(flows(&metrics), 2.0 * PACKETS as f64);
    assert_eq!(metrics.closed("edge", "responses"), 2.0 * PACKETS as f64);
    assert!(pointsman.usage_at_rest().sockets <= before.sockets + 30);
    pointsman.stop();
}

#[test]
fn packets_without_an_answer_are_given_up() {
    let sink = UdpBackend::sink();
    let listener = "udp: { per_packet: true }, timeouts: { idle: 300ms }";
    let pointsman = Pointsman::start(&one_udp_listener(listener, &[&sink], ""));
    let before = pointsman.usage_at_rest();
    let client = UdpClient::to(&pointsman.address("edge"));
    for _ in 0..5 {
        (0..40).for_each(|_| client.send("question"));
        pass(Duration::from_millis(20));
    }
    wait_until("the questions", || sink.count() == 200);
    let metrics = pointsman.wait_idle();
    assert_eq!((flows(&metrics), metrics.closed("edge", "idle_timeout")), (200.0, 200.0));
    assert_eq!(pointsman.usage_at_rest(), before);
    let labels = [("pool", "pool"), ("backend", &*sink.address())];
    assert_eq!(metrics.value("pointsman_backend_connections_active", &labels), 0.0);
}

/// A second answer to one question is no answer to the next client's: its socket is not used again.
#[test]
fn a_second_answer_reaches_nobody_else() {
    const ROUNDS: usize = 20;
    let backend = UdpBackend::serving("127.0.0.1:0", true, |socket, bytes, from| {
        socket.send_to(bytes, from).unwrap();
        pass(Duration::from_millis(5));
        socket.send_to(bytes, from).unwrap();
    });
    let yaml = one_udp_listener("udp: { responses: 1 }", &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 1\n{yaml}"));
    let before = pointsman.usage_at_rest();
    let edge = pointsman.address("edge");
    let mut closed = Vec::new();
    for round in 1..=ROUNDS {
        let client = UdpClient::to(&edge);
        let question = format!("question {round}");
        assert_eq!(client.ask(&question), question);
        wait_until("the second", || dropped(&pointsman, "unexpected") == round as f64);
        // Its port is free, and taken here so that no other socket gets it by chance.
        let from = backend.received()[round - 1].from;
        closed.push(wait_for("the socket to be closed", || UdpSocket::bind(from).ok()));
    }
    assert_eq!(pointsman.usage_at_rest(), before);
}
