//! What holds for sessions holds for flows: states of backends, policies and their keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::harness::{Pointsman, UdpBackend, UdpClient, command, one_udp_listener, wait_until};

fn clients(pointsman: &Pointsman, count: usize) -> Vec<UdpClient> {
    let edge = pointsman.address("edge");
    (0..count).map(|_| UdpClient::to(&edge)).collect()
}

fn names(clients: &[UdpClient]) -> Vec<String> {
    clients.iter().map(|client| client.backend("x")).collect()
}

fn count(names: &[String], name: &str) -> usize {
    names.iter().filter(|own| *own == name).count()
}

/// An echo whose answers to checks can be made wrong, while it answers everybody else.
fn checked(name: &'static str, sick: &Arc<AtomicBool>) -> UdpBackend {
    let sick = sick.clone();
    UdpBackend::serving("127.0.0.1:0", false, move |socket, bytes, from| {
        let answer = match bytes {
            b"check" if sick.load(Relaxed) => b"sick".to_vec(),
            b"check" => b"healthy".to_vec(),
            _ => [name.as_bytes(), b":", bytes].concat(),
        };
        let _closed_by_now = socket.send_to(&answer, from);
    })
}

#[test]
fn flows_leave_a_backend_that_checks_find_down() {
    let sick = Arc::new(AtomicBool::new(false));
    let (a, b) = (checked("a", &sick), checked("b", &Arc::default()));
    let yaml = one_udp_listener("", &[&a, &b], "balance: round_robin").replace(
        "health: off",
        "health: { type: udp, send: check, expect: healthy, interval: 50ms, rise: 1, fall: 2 }",
    );
    let pointsman = Pointsman::start(&yaml);
    assert!([&a, &b].iter().all(|backend| pointsman.state(&backend.address()) == "up"));
    let all = clients(&pointsman, 6);
    assert_eq!(count(&names(&all), "a"), 3);
    sick.store(true, Relaxed);
    wait_until("it to be down", || pointsman.state(&a.address()) == "down");
    assert_eq!(count(&names(&all), "b"), 6);
    assert_eq!(count(&names(&clients(&pointsman, 4)), "b"), 4);
    sick.store(false, Relaxed);
    wait_until("it to be up", || pointsman.state(&a.address()) == "up");
    // They stay where they are now; new ones are spread.
    assert_eq!(count(&names(&all), "b"), 6);
    assert_eq!(count(&names(&clients(&pointsman, 4)), "a"), 2);
}

/// When all are down, none is better than the one a flow has.
#[test]
fn in_panic_flows_stay() {
    let sick = Arc::new(AtomicBool::new(false));
    let (a, b) = (checked("a", &sick), checked("b", &sick));
    let yaml = one_udp_listener("", &[&a, &b], "balance: round_robin").replace(
        "health: off",
        "health: { type: udp, send: check, expect: healthy, interval: 50ms, rise: 1, fall: 2 }",
    );
    let pointsman = Pointsman::start(&yaml);
    let all = clients(&pointsman, 6);
    let before = names(&all);
    sick.store(true, Relaxed);
    let is_down = |backend: &UdpBackend| pointsman.state(&backend.address()) == "down";
    wait_until("both to be down", || pointsman.panics() && is_down(&a) && is_down(&b));
    for _ in 0..3 {
        assert_eq!(names(&all), before);
    }
    assert_eq!(count(&names(&clients(&pointsman, 4)), "a"), 2);
}

#[test]
fn flows_of_a_backend_that_is_down_can_be_closed() {
    let sick = Arc::new(AtomicBool::new(false));
    let (a, b) = (checked("a", &sick), checked("b", &Arc::default()));
    let pool = "balance: round_robin, on_down: close, close_spread: 100ms";
    let yaml = one_udp_listener("", &[&a, &b], pool).replace(
        "health: off",
        "health: { type: udp, send: check, expect: healthy, interval: 50ms, rise: 1, fall: 2 }",
    );
    let pointsman = Pointsman::start(&yaml);
    let all = clients(&pointsman, 6);
    names(&all);
    sick.store(true, Relaxed);
    let records = pointsman.access_log(3);
    for record in &records {
        assert_eq!(record.text("termination"), "backend_down");
        assert_eq!(record.text("backend"), a.address());
    }
    assert_eq!(pointsman.metrics().active("edge"), 3.0);
    assert_eq!(count(&names(&all), "b"), 6);
}

#[test]
fn drained_backends_keep_their_flows_and_get_no_more() {
    for admin in ["drain", "maintenance"] {
        let (a, b) = (UdpBackend::echo("a"), UdpBackend::echo("b"));
        let config = |idle: &str| {
            let listener = format!("timeouts: {{ idle: {idle} }}");
            one_udp_listener(&listener, &[&a, &b], "balance: round_robin")
        };
        let pointsman = Pointsman::start(&config("1h"));
        let all = clients(&pointsman, 6);
        let before = names(&all);
        pointsman.change(&a.address(), &format!("{{\"admin\":\"{admin}\"}}"));
        assert_eq!(names(&all), before, "{admin}");
        assert_eq!(count(&names(&clients(&pointsman, 4)), "b"), 4);
        pointsman.reload(&config("300ms")).unwrap();
        pointsman.wait_idle();
        assert_eq!(count(&names(&all), "b"), 6);
        pointsman.change(&a.address(), "{\"admin\":\"ready\"}");
        assert_eq!(count(&names(&clients(&pointsman, 4)), "a"), 2);
    }
}

#[test]
fn weights_backups_and_limits_count_flows() {
    let all = ["a", "b", "c"].map(UdpBackend::echo);
    let [a, b, c] = all.each_ref().map(UdpBackend::address);
    let yaml = one_udp_listener("timeouts: { idle: 1h }", &[], "balance: round_robin").replace(
        "backends: []",
        &format!(
            "backends: [{{ address: \"{a}\", weight: 3, max_connections: 9 }}, \
             {{ address: \"{b}\", max_connections: 3 }}, \
             {{ address: \"{c}\", backup: true, max_connections: 2 }}]"
        ),
    );
    let pointsman = Pointsman::start(&format!("workers: 2\n{yaml}"));
    let first = clients(&pointsman, 12);
    let got = names(&first);
    assert_eq!((count(&got, "a"), count(&got, "b")), (9, 3));
    // Both are full.
    let backups = clients(&pointsman, 2);
    assert_eq!(count(&names(&backups), "c"), 2);
    let beyond = clients(&pointsman, 1).remove(0);
    beyond.send("x");
    let record = pointsman.access_log(1).remove(0);
    assert_eq!((record.text("termination"), record.text("pool")), ("no_backend", "pool"));
    assert_eq!(record.text("client"), beyond.local());
    assert_eq!(names(&first), got);
    pointsman.reload(&format!("workers: 2\n{}", yaml.replace("1h", "300ms"))).unwrap();
    pointsman.wait_idle();
    assert_eq!(beyond.insist("x").len(), 1);
    assert_eq!(
        pointsman.metrics().value("pointsman_pool_no_backend_total", &[("pool", "pool")]),
        1.0
    );
}

#[test]
fn a_pool_that_is_full_is_overload() {
    let backend = UdpBackend::echo("a");
    let yaml = one_udp_listener("", &[&backend], "max_connections: 2");
    let pointsman = Pointsman::start(&yaml);
    let first = clients(&pointsman, 2);
    names(&first);
    clients(&pointsman, 1)[0].send("x");
    assert_eq!(pointsman.access_log(1)[0].text("termination"), "overload");
    names(&first);
}

/// All ports of one address are at one backend, and another address may be at another.
#[test]
fn one_source_has_one_backend() {
    for policy in ["hash", "ring", "rendezvous", "maglev"] {
        let all = ["a", "b", "c"].map(UdpBackend::echo);
        let pool = format!("balance: {{ policy: {policy}, key: source }}");
        let pointsman = Pointsman::start(&one_udp_listener("", &all.each_ref(), &pool));
        let edge = pointsman.address("edge");
        let mut used = std::collections::BTreeSet::new();
        for host in 1..=20 {
            let own = format!("127.0.0.{host}:0");
            let ports: Vec<_> = (0..4).map(|_| UdpClient::from(&own, &edge)).collect();
            let names = names(&ports);
            assert!(names.iter().all(|name| *name == names[0]), "{policy}: {names:?}");
            used.insert(names[0].clone());
        }
        assert_eq!(used.len(), 3, "{policy}");
    }
}

#[test]
fn explain_agrees_with_what_happens() {
    let all = ["a", "b", "c"].map(UdpBackend::echo);
    for policy in ["maglev", "ring", "rendezvous"] {
        let pool = format!("balance: {{ policy: {policy}, key: five_tuple }}");
        let yaml = one_udp_listener("", &all.each_ref(), &pool);
        let pointsman = Pointsman::start(&yaml);
        let edge = pointsman.address("edge");
        pointsman.configure(&yaml.replace("127.0.0.1:0", &edge));
        let file = pointsman.config();
        for client in clients(&pointsman, 10) {
            let name = client.backend("x");
            let local = client.local();
            let file = file.to_str().unwrap();
            let arguments = ["explain", "-c", file, "--listener", "edge", "--source", &local];
            let answer = command(&arguments).success();
            let backend = &all[usize::from(name.as_bytes()[0] - b'a')];
            let line = answer.lines().find(|line| line.starts_with("backend ")).unwrap();
            assert!(line.contains(&backend.address()), "{name} for {local}: {answer}");
            assert!(answer.contains(&format!("udp {local} to {edge}")), "{answer}");
        }
    }
}

/// Flows that have been answered weigh less than those that wait.
#[test]
fn the_least_loaded_gets_the_next_flow() {
    let all = ["a", "b"].map(UdpBackend::echo);
    let yaml = one_udp_listener("", &all.each_ref(), "balance: least_conn");
    let pointsman = Pointsman::start(&format!("workers: 2\n{yaml}"));
    let clients = clients(&pointsman, 20);
    assert_eq!(count(&names(&clients), "a"), 10);
}
