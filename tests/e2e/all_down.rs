//! Down and back: how soon a pool serves again, and what the log says of a backend that cannot
//! make up its mind.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::harness::{Backend, Hideable, Pointsman, one_listener, pass, wait_until};

const MS: Duration = Duration::from_millis(1);

/// From the first check that passes to the first connection that is served: `rise` checks, and
/// hardly more. Until then nobody is served, since here states are never ignored.
#[test]
fn the_first_is_served_as_soon_as_checks_allow() {
    static FIRST: Mutex<Option<Instant>> = Mutex::new(None);
    let backends = [(); 3].map(|()| {
        let backend = Hideable::serving(|mut stream| {
            FIRST.lock().unwrap().get_or_insert_with(Instant::now);
            let bytes = stream.read_to_end();
            stream.write(&bytes);
        });
        backend.hide();
        backend
    });
    let addresses = backends.each_ref().map(Hideable::address);
    let list = addresses.each_ref().map(String::as_str);
    let yaml = one_listener("", &list, "panic_threshold: off");
    let yaml = yaml.replace("health: off", "health: { interval: 200ms, rise: 3, fall: 2 }");
    let pointsman = Pointsman::start(&yaml);
    assert!(addresses.iter().all(|address| pointsman.state(address) == "down"));
    assert!(!pointsman.echoes());
    assert_eq!(*FIRST.lock().unwrap(), None);
    backends.iter().for_each(Hideable::show);
    let mut in_vain = Instant::now();
    wait_until("a connection to be served", || {
        let begun = Instant::now();
        pointsman.echoes() || {
            in_vain = begun;
            false
        }
    });
    let first = FIRST.lock().unwrap().expect("a check came first");
    let (took, in_vain) = (first.elapsed(), in_vain.saturating_duration_since(first));
    eprintln!("served {took:?} after the first check that passed, {in_vain:?} after it not yet");
    // The first check passed a little after it was accepted; two more are 200 ms apart, ±10 %.
    assert!(took >= 360 * MS - 20 * MS, "{took:?}");
    assert!(in_vain <= 3 * 200 * MS + 100 * MS, "{in_vain:?}");
    pointsman.stop();
}

/// In panic the first is served as soon as anybody listens, before a check has looked.
#[test]
fn in_panic_nobody_waits_for_checks() {
    let backend = Hideable::hidden();
    let address = backend.address();
    let yaml = one_listener("", &[&address], "connect: { attempts: 1 }");
    let yaml = yaml.replace("health: off", "health: { interval: 1h, fast_interval: 1h }");
    let pointsman = Pointsman::start(&yaml);
    assert!(pointsman.panics() && !pointsman.echoes());
    backend.show();
    assert!(pointsman.echoes());
    assert_eq!(pointsman.state(&address), "down");
    pointsman.stop();
}

/// A backend flaps every 500 ms. Checks that are quick enough report each change, once; those
/// that are not see a failure now and then, and say nothing.
#[test]
fn flapping_is_one_line_a_real_change() {
    const FLIPS: usize = 60;
    let (backend, other) = (Hideable::shown(), Backend::echo());
    let (address, other) = (backend.address(), other.address());
    let pool = |health: &str| {
        format!("{{ backends: [\"{address}\", \"{other}\"], health: {{ {health} }} }}")
    };
    let pointsman = Pointsman::start(&format!(
        "listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool }} }}\n\
         pools:\n\
         \x20 pool: {}\n\
         \x20 calm: {}\n",
        pool("interval: 50ms, rise: 2, fall: 3"),
        pool("interval: 400ms, rise: 2, fall: 6")
    ));
    for flip in 0..FLIPS {
        let begun = Instant::now();
        let expected = if flip % 2 == 0 { "down" } else { "up" };
        if expected == "down" {
            backend.hide()
        } else {
            backend.show()
        }
        wait_until("the change to be seen", || pointsman.state(&address) == expected);
        pass((500 * MS).saturating_sub(begun.elapsed()));
    }
    // Nothing that anybody's connection would have noticed.
    assert!(pointsman.echoes());
    let failures = [("pool", "calm"), ("backend", &*address), ("result", "fail")];
    let seen = pointsman.metrics().value("pointsman_backend_checks_total", &failures);
    assert!(seen >= 3.0, "the calm pool has seen {seen} failures");
    let log = pointsman.log();
    let lines = |pool: &str| -> Vec<&str> {
        let of_pool = format!("pool={pool} ");
        let change = |line: &&str| {
            line.contains("backend changed") && line.contains(&of_pool) && line.contains(&address)
        };
        log.lines().filter(change).collect()
    };
    let quick = lines("pool");
    // The first is of the start.
    assert_eq!(quick.len(), 1 + FLIPS, "{log}");
    for (line, expected) in quick.iter().zip(["state=up", "state=down"].iter().cycle()) {
        assert!(line.contains(expected), "{log}");
    }
    assert_eq!(lines("calm").len(), 1, "{log}");
    pointsman.stop();
}
