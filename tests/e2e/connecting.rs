//! Attempts to connect: a different backend at once, and what is told of it.

use std::time::{Duration, Instant};

use crate::harness::{Backend, Metrics, Pointsman, Record, one_listener};

const SESSIONS: usize = 20;

fn failures(metrics: &Metrics, backend: &Backend, reason: &str) -> f64 {
    let address = backend.address();
    let labels = [("pool", "pool"), ("backend", address.as_str()), ("reason", reason)];
    metrics.value("pointsman_backend_connect_failures_total", &labels)
}

fn retries(metrics: &Metrics) -> f64 {
    metrics.value("pointsman_pool_retries_total", &[("pool", "pool")])
}

/// Sessions through a pool of `bad` and a good one; bytes sent before connecting must arrive.
fn past_a_bad_backend(bad: &Backend, outcome: &str, settings: &str) -> Vec<Record> {
    let good = Backend::manual();
    let backends = [bad.address(), good.address()];
    let settings = format!("balance: round_robin, {settings}");
    let pointsman = Pointsman::start(&one_listener("", &[&backends[0], &backends[1]], &settings));
    for _ in 0..SESSIONS {
        let mut client = pointsman.connect("edge");
        client.send(1000);
        client.finish();
        let mut server = good.accept();
        server.receive(1000);
        server.expect_end();
        drop(server);
        client.expect_end();
    }
    let records = pointsman.access_log(SESSIONS);
    assert_eq!(records.len(), SESSIONS);
    let second = (good.address(), "connected".to_owned());
    let mut retried = 0;
    for record in &records {
        assert_eq!(record.text("termination"), "client_closed");
        assert_eq!(record.text("backend"), good.address());
        let attempts = record.attempts();
        if attempts.len() == 2 {
            assert_eq!(attempts[0], (bad.address(), outcome.to_owned()));
            retried += 1;
        }
        assert_eq!(attempts.last(), Some(&second));
        assert!(attempts.len() <= 2, "{attempts:?}");
    }
    let metrics = pointsman.metrics();
    assert!(retried > 0, "round robin never came to the bad backend");
    assert_eq!(retries(&metrics), f64::from(retried));
    assert_eq!(failures(&metrics, bad, outcome), f64::from(retried));
    pointsman.stop();
    records
}

#[test]
fn refused_goes_elsewhere_at_once() {
    for record in past_a_bad_backend(&Backend::refusing(), "refused", "connect: {}") {
        assert!(record.number("connect_ms") < 500.0, "{record:?}");
    }
}

#[test]
fn timed_out_goes_elsewhere() {
    let settings = "connect: { timeout: 200ms }";
    for record in past_a_bad_backend(&Backend::black_hole(), "timeout", settings) {
        let waited = record.number("connect_ms");
        let expected = if record.attempts().len() == 2 { 200.0..1200.0 } else { 0.0..1000.0 };
        assert!(expected.contains(&waited), "{record:?}");
    }
}

/// The client of a connection that came to nothing: FIN, soon, and one record.
fn comes_to_nothing(backends: &[&Backend], settings: &str, attempts: usize) -> Record {
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address()).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let pointsman = Pointsman::start(&one_listener("", &addresses, settings));
    let begun = Instant::now();
    let mut client = pointsman.connect("edge");
    client.send(100);
    client.expect_end();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    client.finish();
    let records = pointsman.access_log(1);
    let record = records[0].clone();
    assert_eq!(record.text("termination"), "connect_failed");
    assert_eq!(record.text("backend"), "-");
    let mut tried: Vec<_> = record.attempts().into_iter().map(|(backend, _)| backend).collect();
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), attempts, "attempts of different backends: {record:?}");
    assert_eq!(record.attempts().len(), attempts);
    let metrics = pointsman.wait_idle();
    assert_eq!(metrics.closed("edge", "connect_failed"), 1.0);
    assert_eq!(retries(&metrics), (attempts - 1) as f64);
    record
}

#[test]
fn all_refused_is_connect_failed() {
    let bad: Vec<_> = (0..3).map(|_| Backend::refusing()).collect();
    let record = comes_to_nothing(&bad.iter().collect::<Vec<_>>(), "", 3);
    assert!(record.attempts().iter().all(|(_, outcome)| outcome == "refused"), "{record:?}");
}

#[test]
fn attempts_are_bounded_and_different_while_there_are_others() {
    let bad: Vec<_> = (0..8).map(|_| Backend::refusing()).collect();
    let bad: Vec<_> = bad.iter().collect();
    comes_to_nothing(&bad, "", 3);
    comes_to_nothing(&bad, "connect: { attempts: 1 }", 1);
    comes_to_nothing(&bad, "connect: { attempts: 5 }, balance: random", 5);
    comes_to_nothing(&bad, "connect: { attempts: 8 }, balance: maglev", 8);
}

#[test]
fn one_backend_is_tried_as_often_as_allowed() {
    let record = comes_to_nothing(&[&Backend::refusing()], "connect: { attempts: 1 }", 1);
    assert_eq!(record.attempts()[0].1, "refused");
    let keys = "connect: { attempts: 1, timeout: 100ms }";
    let record = comes_to_nothing(&[&Backend::black_hole()], keys, 1);
    assert_eq!(record.attempts()[0].1, "timeout");
    assert!(record.number("duration_ms") >= 100.0);
    let refusing = Backend::refusing();
    let pointsman = Pointsman::start(&one_listener("", &[&refusing.address()], ""));
    pointsman.connect("edge").expect_end();
    let attempts = pointsman.access_log(1)[0].attempts();
    assert_eq!(attempts.len(), 3, "{attempts:?}");
    assert!(attempts.iter().all(|(_, outcome)| outcome == "refused"));
}

#[test]
fn a_unix_socket_that_is_not_there_is_refused() {
    let pointsman =
        Pointsman::start(&one_listener("", &["unix:DIR/nobody.sock"], "connect: { attempts: 2 }"));
    let mut client = pointsman.connect("edge");
    client.expect_end();
    let record = pointsman.access_log(1).remove(0);
    assert_eq!(record.attempts().len(), 2);
    assert!(record.attempts().iter().all(|(_, outcome)| outcome == "refused"));
}

#[test]
fn weight_zero_everywhere_is_no_backend() {
    let backend = Backend::manual();
    let pointsman = Pointsman::start(&format!(
        "listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool }} }}\n\
         pools: {{ pool: {{ backends: [{{ address: \"{}\", weight: 0 }}], health: off }} }}\n",
        backend.address()
    ));
    let mut client = pointsman.connect("edge");
    client.send(10);
    client.expect_end();
    drop(client);
    let record = pointsman.access_log(1).remove(0);
    assert_eq!(record.text("termination"), "no_backend");
    assert_eq!(record.attempts(), []);
    let metrics = pointsman.wait_idle();
    assert_eq!(metrics.value("pointsman_pool_no_backend_total", &[("pool", "pool")]), 1.0);
    assert!(!backend.has_waiting());
}
