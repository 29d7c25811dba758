//! What connections show of a backend that accepts them: `early_close` and `failure_percent`.

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::harness::{Backend, Pointsman, Stream, one_listener, wait_until};

const CLIENTS: usize = 12;

/// Answers HTTP, and closes at once what is anything else.
fn particular() -> Backend {
    Backend::serving(|mut stream: Stream| {
        let mut head = [0; 4];
        // Without one it is a check that only connects, or a client that has nothing to say.
        let read = (&**stream.socket()).read_exact(&mut head);
        if read.is_ok() && head == *b"GET " {
            stream.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        }
    })
}

fn config(backend: &Backend, other: &Backend, health: &str, outlier: &str) -> String {
    let outlier = format!("balance: round_robin, outlier: {{ {outlier} }}");
    let yaml = one_listener("", &[&backend.address(), &other.address()], &outlier);
    yaml.replace("health: off", &format!("health: {health}"))
}

fn ejections(pointsman: &Pointsman, backend: &Backend) -> f64 {
    let address = backend.address();
    let labels = [("pool", "pool"), ("backend", &*address)];
    pointsman.metrics().value("pointsman_backend_ejections_total", &labels)
}

fn passes(pointsman: &Pointsman, backend: &Backend) -> f64 {
    let address = backend.address();
    let labels = [("pool", "pool"), ("backend", &*address), ("result", "pass")];
    pointsman.metrics().value("pointsman_backend_checks_total", &labels)
}

/// So many clients that send rubbish; half of them come to the particular backend.
fn rubbish(pointsman: &Pointsman, clients: usize) {
    let edge = pointsman.address("edge");
    for _ in 0..clients {
        let mut client = Stream::connect(&edge);
        client.write(b"rubbish");
        let _end = (&**client.socket()).read(&mut [0]);
    }
    pointsman.access_log(clients);
}

const FOR_EVER: &str = "base_ejection: 1h";

/// By default no client can get a backend ejected; and none can that says nothing.
#[test]
fn rubbish_ejects_nobody_by_default() {
    let (backend, other) = (particular(), particular());
    let pointsman = Pointsman::start(&config(&backend, &other, "off", FOR_EVER));
    rubbish(&pointsman, 2 * CLIENTS);
    assert_eq!((pointsman.state(&backend.address()), ejections(&pointsman, &backend)), up());
    pointsman.stop();

    let (hasty, other) = (Backend::serving(drop), Backend::serving(drop));
    let outlier = format!("early_close: true, {FOR_EVER}");
    let pointsman = Pointsman::start(&config(&hasty, &other, "off", &outlier));
    let edge = pointsman.address("edge");
    (0..2 * CLIENTS).for_each(|_| Stream::connect(&edge).expect_end());
    pointsman.access_log(2 * CLIENTS);
    assert_eq!((pointsman.state(&hasty.address()), ejections(&pointsman, &hasty)), up());
    pointsman.stop();
}

fn up() -> (String, f64) {
    ("up".to_owned(), 0.0)
}

/// With `early_close` they do. A check that only connects does not see what they died of, and its
/// passing ends nothing; one that waits for an answer does.
#[test]
fn only_a_check_that_covers_it_ends_an_ejection() {
    for (health, ends) in [
        ("{ type: tcp, interval: 50ms }", false),
        ("{ type: http, interval: 50ms, expect: 204 }", true),
    ] {
        let (backend, other) = (particular(), particular());
        let outlier = format!("early_close: true, max_ejected_percent: 50, {FOR_EVER}");
        let pointsman = Pointsman::start(&config(&backend, &other, health, &outlier));
        // Whichever of the two is the first; there is no room for the second.
        let addresses = [backend.address(), other.address()];
        let count = || ejections(&pointsman, &backend) + ejections(&pointsman, &other);
        rubbish(&pointsman, CLIENTS);
        wait_until("an ejection", || count() >= 1.0);
        let passed = passes(&pointsman, &backend) + passes(&pointsman, &other);
        wait_until("more checks", || {
            passes(&pointsman, &backend) + passes(&pointsman, &other) >= passed + 10.0
        });
        let states = addresses.each_ref().map(|address| pointsman.state(address));
        let ejected = states.iter().filter(|state| *state == "ejected").count();
        let log = pointsman.log();
        assert_eq!(ejected, usize::from(!ends), "{health}: {states:?}\n{log}");
        assert_eq!(log.contains("a check passed that covers"), ends, "{log}");
        assert!(log.contains("failures=early close"), "{log}");
        pointsman.stop();
    }
}

/// Half of the connections fail, never two in a row: `failure_percent` finds it, once there is
/// enough to go by. A third is not enough.
#[test]
fn a_share_of_failures_ejects() {
    for (every, ejected) in [(2, true), (3, false)] {
        let count = AtomicUsize::new(1);
        let flaky = Backend::serving(move |mut stream| {
            if !count.fetch_add(1, SeqCst).is_multiple_of(every) && stream.try_receive(1).is_ok() {
                stream.send(1);
            }
        });
        let good = Backend::echo();
        let outlier = "early_close: true, consecutive_failures: off, failure_percent: 50, \
                       window: 20, minimum_volume: 10, base_ejection: 1h";
        let pointsman = Pointsman::start(&config(&flaky, &good, "off", outlier));
        let edge = pointsman.address("edge");
        let mut connections = 0;
        let mut more = || {
            let mut client = Stream::connect(&edge);
            client.send(1);
            let _served = client.try_receive(1);
            connections += 1;
            drop(client);
            // One after the other: what each has shown is known before the next.
            pointsman.access_log(connections);
            pointsman.wait_noticed();
        };
        if ejected {
            wait_until("an ejection", || {
                more();
                ejections(&pointsman, &flaky) == 1.0
            });
            // Control may have learned of it a connection later.
            assert!((10..=12).contains(&flaky.accepted()), "{}", flaky.accepted());
        } else {
            (0..100).for_each(|_| more());
            assert!(flaky.accepted() >= 45, "{}", flaky.accepted());
            assert_eq!((pointsman.state(&flaky.address()), ejections(&pointsman, &flaky)), up());
        }
        pointsman.stop();
    }
}
