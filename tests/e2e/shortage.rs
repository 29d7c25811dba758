//! Too many connections: for the process' descriptors, and for what the configuration allows.

use std::time::Duration;

use crate::harness::{
    Backend, Pointsman, Stream, UdpBackend, UdpClient, one_listener, pass, wait_until,
};

fn pauses(pointsman: &Pointsman) -> f64 {
    let labels = [("listener", "edge")];
    pointsman.metrics().value("pointsman_accept_pauses_total", &labels)
}

fn round_trip(stream: &mut Stream) {
    stream.send(100);
    stream.receive(100);
}

#[test]
fn without_descriptors_accepting_pauses_and_resumes() {
    let backend = Backend::echo();
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], ""));
    let edge = pointsman.address("edge");
    let mut open: Vec<_> = (0..20).map(|_| Stream::connect(&edge)).collect();
    open.iter_mut().for_each(round_trip);
    // Keeps the admin server's connection possible: it takes one descriptor at a time.
    let used = pointsman.usage().descriptors();
    pointsman.limit_descriptors(used as u64 + 10);
    let mut waiting: Vec<_> = (0..30).map(|_| Stream::connect(&edge)).collect();
    pointsman.wait_for_log("accepting pauses; existing sessions go on");
    let before = pointsman.cpu_time();
    pass(Duration::from_millis(500)); // the matter of the test: it must not spin meanwhile
    let spent = pointsman.cpu_time() - before;
    assert!(spent < Duration::from_millis(60), "{spent:?} of 500ms");
    open.iter_mut().for_each(round_trip);
    // The log says it once, not at each attempt.
    assert!(pointsman.log().matches("accepting pauses").count() <= 2 + 2, "{}", pointsman.log());

    pointsman.limit_descriptors(10_000);
    // Whoever was taken but could not be connected has been told so; all others are served.
    let mut served = 0;
    for stream in &mut waiting {
        if stream.try_send(100).is_ok() && stream.try_receive(100).is_ok() {
            served += 1;
        }
    }
    assert!(served >= 10, "{served}");
    open.iter_mut().for_each(round_trip);
    assert!(pauses(&pointsman) >= 1.0);
    round_trip(&mut pointsman.connect("edge"));
    drop((open, waiting));
    let metrics = pointsman.wait_idle();
    let failed = metrics.closed("edge", "connect_failed") + metrics.closed("edge", "error");
    assert_eq!(f64::from(served) + failed, 30.0);
    pointsman.stop();
}

/// What is said of one listener does not keep back what is to be said of another.
#[test]
fn each_listener_that_is_short_is_warned_of() {
    let backend = UdpBackend::choosy("127.0.0.1:0");
    let listener = "bind: \"127.0.0.1:0\", protocol: udp, pool: pool";
    let pointsman = Pointsman::start(&format!(
        "workers: 1\n\
         listeners: {{ one: {{ {listener} }}, two: {{ {listener} }} }}\n\
         pools: {{ pool: {{ backends: [\"{}\"] }} }}\n",
        backend.address()
    ));
    let addresses = ["one", "two"].map(|name| pointsman.address(name));
    pointsman.limit_descriptors(pointsman.usage_at_rest().descriptors() as u64 + 5);
    let mut clients = Vec::new();
    for (name, address) in ["one", "two"].iter().zip(&addresses) {
        for _ in 0..10 {
            let client = UdpClient::to(address);
            client.send("flow");
            clients.push(client);
        }
        let told = format!("listener=\"{name}\"");
        wait_until(&format!("a warning of {name}"), || {
            let log = pointsman.log();
            log.lines().any(|line| line.contains("no socket for a flow") && line.contains(&told))
        });
    }
}

#[test]
fn beyond_max_connections_is_overload() {
    let backend = Backend::echo();
    let pointsman = Pointsman::start(&format!(
        "max_connections: 10\n{}",
        one_listener("", &[&backend.address()], "")
    ));
    let edge = pointsman.address("edge");
    let mut open: Vec<_> = (0..10).map(|_| Stream::connect(&edge)).collect();
    open.iter_mut().for_each(round_trip);
    for turned_away in 1..=5 {
        Stream::expect_turned_away(&edge);
        let metrics = pointsman.metrics();
        assert_eq!(metrics.closed("edge", "overload"), f64::from(turned_away));
        assert_eq!(metrics.active("edge"), 10.0);
    }
    open.iter_mut().for_each(round_trip);
    // One leaves, one may come.
    drop(open.pop());
    wait_until("a place", || pointsman.metrics().active("edge") == 9.0);
    let mut next = Stream::connect(&edge);
    round_trip(&mut next);
    Stream::expect_turned_away(&edge);
    drop((open, next));
    pointsman.wait_idle();
    let records = pointsman.stop();
    let overload: Vec<_> =
        records.iter().filter(|record| record.text("termination") == "overload").collect();
    assert_eq!((records.len(), overload.len()), (17, 6));
    for record in overload {
        assert_eq!((record.text("backend"), record.attempts().len()), ("-", 0));
    }
}

/// A flood is sampled in the log, with a count of the rest; the counter has all.
#[test]
fn a_flood_of_overload_is_sampled() {
    const FLOOD: usize = 2000;
    let backend = Backend::echo();
    let pointsman = Pointsman::start(&format!(
        "max_connections: 1\n{}",
        one_listener("", &[&backend.address()], "")
    ));
    let edge = pointsman.address("edge");
    let mut only = Stream::connect(&edge);
    round_trip(&mut only);
    for _ in 0..FLOOD {
        Stream::expect_turned_away(&edge);
    }
    assert_eq!(pointsman.metrics().closed("edge", "overload"), FLOOD as f64);
    pointsman.wait_for_log("left_out");
    round_trip(&mut only);
    drop(only);
    let records = pointsman.stop();
    assert!(records.len() < FLOOD, "{}", records.len());
    assert!(records.len() >= 100, "{}", records.len());
}
