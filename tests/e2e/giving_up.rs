//! The end of trying: all backends tried, no time left, a client that has left, a process that
//! stops.

use std::time::{Duration, Instant};

use crate::harness::{
    Backend, Metrics, Pointsman, Record, Session, Stream, one_listener, wait_until,
};

const MS: Duration = Duration::from_millis(1);

fn outcomes(record: &Record) -> Vec<String> {
    record.attempts().into_iter().map(|(_, outcome)| outcome).collect()
}

fn waiting(metrics: &Metrics) -> f64 {
    metrics.value("pointsman_pool_waiting", &[("pool", "pool")])
}

fn active(metrics: &Metrics, backend: &Backend) -> f64 {
    let address = backend.address();
    let labels = [("pool", "pool"), ("backend", &*address)];
    metrics.value("pointsman_backend_connections_active", &labels)
}

/// When all have been tried they are tried again, after waits of up to 25, 50, 100 and 200 ms:
/// none of them is for certain, so ten connections are looked at together.
#[test]
fn all_tried_waits_and_tries_again() {
    const CLIENTS: usize = 10;
    let backend = Backend::refusing();
    let settings = "connect: { attempts: 5 }, outlier: off";
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], settings));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| pointsman.connect("edge")).collect();
    clients.iter_mut().for_each(Stream::expect_end);
    let mut sum = 0.0;
    for record in pointsman.access_log(CLIENTS) {
        assert_eq!(record.text("termination"), "connect_failed");
        assert_eq!(outcomes(&record), ["refused"; 5]);
        sum += record.number("duration_ms");
    }
    // A mean of 1,875, give or take 210.
    assert!((900.0..6000.0).contains(&sum), "{sum}");
    pointsman.stop();
}

/// Two backends are tried twice each, and never the same one twice in a row without a wait.
#[test]
fn a_second_round_is_of_different_backends_again() {
    let backends = [Backend::refusing(), Backend::refusing()];
    let addresses = backends.each_ref().map(Backend::address);
    let settings = "connect: { attempts: 4 }, outlier: off";
    let list = addresses.each_ref().map(String::as_str);
    let pointsman = Pointsman::start(&one_listener("", &list, settings));
    pointsman.connect("edge").expect_end();
    let attempts = pointsman.access_log(1)[0].attempts();
    assert_eq!(attempts.len(), 4);
    for round in attempts.chunks(2) {
        assert_ne!(round[0].0, round[1].0, "{attempts:?}");
    }
    pointsman.stop();
}

/// However many attempts are left: after `total_timeout` it is over, for those that wait and for
/// the one that is under way.
#[test]
fn total_timeout_ends_it() {
    let (hole, refusing) = (Backend::black_hole(), Backend::refusing());
    for (backend, settings, last) in [
        (&hole, "timeout: 300ms, attempts: 16, total_timeout: 700ms", 2),
        (&refusing, "attempts: 16, total_timeout: 700ms", 0),
    ] {
        let settings = format!("connect: {{ {settings} }}, outlier: off");
        let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], &settings));
        let begun = Instant::now();
        pointsman.connect("edge").expect_end();
        let took = begun.elapsed();
        assert!((700 * MS..2000 * MS).contains(&took), "{took:?}");
        let record = &pointsman.access_log(1)[0];
        assert_eq!(record.text("termination"), "connect_failed");
        let outcomes = outcomes(record);
        assert!(outcomes.len() > last && outcomes.len() < 16, "{outcomes:?}");
        let expected = if last == 0 { "refused" } else { "timeout" };
        assert!(outcomes.iter().all(|outcome| outcome == expected), "{outcomes:?}");
        pointsman.wait_idle();
        pointsman.stop();
    }
}

/// A client that resets while its backend is being connected to is gone at once, and so is its
/// place. Neither a FIN nor bytes are a reason to stop.
#[test]
fn a_client_that_leaves_while_connecting_is_noticed() {
    let hole = Backend::black_hole();
    let settings = "connect: { timeout: 1h, total_timeout: 1h }";
    let pointsman = Pointsman::start(&one_listener("", &[&hole.address()], settings));
    let mut client = pointsman.connect("edge");
    client.send(10_000);
    client.finish();
    wait_until("an attempt", || active(&pointsman.metrics(), &hole) == 1.0);
    pointsman.wait_received();
    assert_eq!(active(&pointsman.metrics(), &hole), 1.0);
    let since = Instant::now();
    client.reset();
    let record = pointsman.access_log(1).remove(0);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert_eq!(record.text("termination"), "client_reset");
    assert_eq!(record.attempts(), [(hole.address(), "abandoned".to_owned())]);
    let metrics = pointsman.wait_idle();
    let address = hole.address();
    let labels = [("pool", "pool"), ("backend", &*address)];
    let ejections = metrics.value("pointsman_backend_ejections_total", &labels);
    assert_eq!(ejections, 0.0, "it was not the backend's fault");
    pointsman.stop();
}

/// One that waits for a wait to be over, between two rounds, is noticed too.
#[test]
fn a_client_that_leaves_between_attempts_is_noticed() {
    let backend = Backend::refusing();
    let settings = "connect: { attempts: 16, total_timeout: 1h, retry_budget: off }, outlier: off";
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], settings));
    let client = pointsman.connect("edge");
    wait_until("the sixth attempt, before a wait of up to 800 ms", || {
        pointsman.metrics().sum("pointsman_pool_retries_total", ("pool", "pool")) >= 5.0
    });
    client.reset();
    let record = pointsman.access_log(1).remove(0);
    assert_eq!(record.text("termination"), "client_reset");
    assert!((6..16).contains(&record.attempts().len()), "{record:?}");
    pointsman.stop();
}

/// Who leaves the line makes room in it, and whoever is behind moves up.
#[test]
fn a_client_that_leaves_the_line_is_noticed() {
    let backend = Backend::manual();
    let yaml = one_listener("", &[], "queue: { max: 2, timeout: 1h }");
    let capped =
        format!("backends: [{{ address: \"{}\", max_connections: 1 }}]", backend.address());
    let pointsman = Pointsman::start(&yaml.replace("backends: []", &capped));
    let Session { client: held, server, backend, pointsman } = Session::through(pointsman, backend);
    let mut line = Vec::new();
    for count in 1..=2 {
        line.push(pointsman.connect("edge"));
        wait_until("the client to wait", || waiting(&pointsman.metrics()) == f64::from(count));
    }
    let since = Instant::now();
    line.remove(0).reset();
    wait_until("the line to be shorter", || waiting(&pointsman.metrics()) == 1.0);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    let record = pointsman.access_log(1).remove(0);
    assert_eq!((record.text("termination"), record.attempts().len()), ("client_reset", 0));

    let mut behind = pointsman.connect("edge");
    wait_until("the client to wait", || waiting(&pointsman.metrics()) == 2.0);
    let mut before = (held, server);
    for mut next in [line.remove(0), behind.other_half()] {
        drop(before);
        let mut server = backend.accept();
        next.send(100);
        server.receive(100);
        before = (next, server);
    }
    drop(before);
    behind.expect_end();
    drop(behind);
    pointsman.wait_idle();
    pointsman.stop();
}

/// An attempt that the end of the process cuts off is in the record.
#[test]
fn a_process_that_stops_abandons_attempts() {
    let hole = Backend::black_hole();
    let settings = "connect: { timeout: 1h, total_timeout: 1h }";
    let yaml = one_listener("", &[&hole.address()], settings);
    let pointsman = Pointsman::start(&format!("shutdown: {{ grace: 100ms }}\n{yaml}"));
    let mut client = pointsman.connect("edge");
    wait_until("an attempt", || active(&pointsman.metrics(), &hole) == 1.0);
    let records = pointsman.stop();
    client.expect_end();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].text("termination"), "shutdown");
    assert_eq!(records[0].attempts(), [(hole.address(), "abandoned".to_owned())]);
}
