//! Active checks: how many, how they end, and what they make of a backend.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::{
    Backend, Hideable, Metrics, Pointsman, Stream, one_listener, pass, wait_for, wait_until,
};

const MS: Duration = Duration::from_millis(1);

/// A checked pool `pool` with these backends behind the listener `edge`.
fn checked(backends: &[&str], health: &str, pool: &str) -> String {
    let unchecked = one_listener("", backends, pool);
    unchecked.replace("health: off", &format!("health: {{ {health} }}"))
}

fn checks(metrics: &Metrics, backend: &str, result: &str) -> f64 {
    let labels = [("pool", "pool"), ("backend", backend), ("result", result)];
    metrics.value("pointsman_backend_checks_total", &labels)
}

fn state(pointsman: &Pointsman, backend: &str) -> String {
    let status = pointsman.status();
    let state = &status["pools"]["pool"]["backends"][backend]["state"];
    state.as_str().unwrap_or_else(|| panic!("no {backend} in {status}")).to_owned()
}

fn panics(pointsman: &Pointsman) -> bool {
    // It may begin or end between the two.
    wait_for("status and metrics to agree", || {
        let panics = pointsman.panics();
        (pointsman.status()["pools"]["pool"]["panic"] == panics).then_some(panics)
    })
}

/// One connection; whether it was answered.
fn served(pointsman: &Pointsman) -> bool {
    let mut client = pointsman.connect("edge");
    client.write(b"hello");
    client.finish();
    let answer = client.read_to_end();
    assert!(answer.is_empty() || answer == b"hello", "{answer:?}");
    !answer.is_empty()
}

/// Four workers and two pools that check alike are one probe, an interval give or take a tenth
/// after the other, and each ends by FIN.
#[test]
fn one_probe_an_interval_for_the_process() {
    const PROBES: usize = 16;
    let interval = 200 * MS;
    let backend = Backend::serving(|mut stream: Stream| stream.expect_end());
    let (address, check) = (backend.address(), "interval: 200ms, timeout: 200ms");
    let pointsman = Pointsman::start(&format!(
        "workers: 4\n\
         listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool }} }}\n\
         pools:\n\
         \x20 pool: {{ backends: [\"{address}\"], health: {{ {check} }} }}\n\
         \x20 again: {{ backends: [\"{address}\"], health: {{ {check}, fall: 1 }} }}\n"
    ));
    let (begun, before) = (Instant::now(), backend.accepted());
    wait_until("probes", || backend.accepted() >= before + PROBES);
    let took = begun.elapsed();
    // The first of them may have been due at once.
    let least = interval * 9 / 10 * (PROBES as u32 - 1);
    let most = interval * 11 / 10 * PROBES as u32;
    assert!(took >= least, "{PROBES} probes in {took:?}");
    assert!(took <= most + Duration::from_secs(2), "{PROBES} probes in {took:?}");

    // All of them were checks of both pools.
    let unchecked = one_listener("", &[&address], "");
    pointsman.reload(&format!("workers: 4\n{unchecked}")).unwrap();
    backend.wait_idle();
    assert_eq!(state(&pointsman, &address), "up");
    let counted = checks(&pointsman.metrics(), &address, "pass");
    assert!(counted <= backend.accepted() as f64, "{counted} of {}", backend.accepted());
    // A probe that the reload interrupted was a connection, but no result.
    assert!(counted + 1.0 >= backend.accepted() as f64, "{counted} of {}", backend.accepted());
    pointsman.stop();
}

/// A server that speaks first is not reset for it, however the two meet.
#[test]
fn a_probe_of_a_server_that_speaks_first_ends_by_fin() {
    let over = Arc::new(AtomicBool::new(false));
    let backend = Backend::serving({
        let over = over.clone();
        move |mut stream| {
            stream.write(b"220 ready\r\n");
            let end = (&**stream.socket()).read(&mut [0]);
            // The end of the process ends its last probe as it may.
            assert!(over.load(Relaxed) || matches!(end, Ok(0)), "instead of FIN: {end:?}");
        }
    });
    let address = backend.address();
    let pointsman = Pointsman::start(&checked(&[&address], "interval: 5ms", ""));
    wait_until("probes", || backend.accepted() >= 300);
    over.store(true, Relaxed);
    let descriptors = pointsman.usage().descriptors();
    assert!(descriptors < 100, "{descriptors}");
    pointsman.stop();
}

#[test]
fn pools_that_check_differently_probe_apart() {
    let backend = Backend::serving(|mut stream: Stream| stream.expect_end());
    let address = backend.address();
    let pool = |interval: u32| {
        format!("{{ backends: [\"{address}\"], health: {{ interval: {interval}ms }} }}")
    };
    let pointsman = Pointsman::start(&format!(
        "listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool }} }}\n\
         pools: {{ pool: {}, slow: {} }}\n",
        pool(100),
        pool(60_000)
    ));
    wait_until("ten probes", || backend.accepted() >= 10);
    let metrics = pointsman.metrics();
    let labels = [("pool", "slow"), ("backend", &*address), ("result", "pass")];
    assert_eq!(metrics.value("pointsman_backend_checks_total", &labels), 1.0);
    pointsman.stop();
}

/// Each letter is the result of a check, which waits for it.
#[test]
fn rise_and_fall_are_obeyed_and_logged_once() {
    let (letters, next_letter) = channel();
    let next_letter = Mutex::new(next_letter);
    let backend = Backend::serving(move |mut stream: Stream| {
        let letter = next_letter.lock().unwrap().recv();
        // None comes any more at the end of the test.
        let Ok(letter) = letter else { return };
        let status = if letter == '+' { "200 OK" } else { "503 No" };
        stream.write(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes());
        stream.finish();
        let _request = stream.read_to_end();
    });
    let address = backend.address();
    let check = "type: http, interval: 20ms, timeout: 1m, rise: 2, fall: 3";
    let yaml = checked(&[&address], check, "panic_threshold: off");
    letters.send('+').unwrap();
    let pointsman = Pointsman::start(&yaml);
    let counts = || {
        let metrics = pointsman.metrics();
        (checks(&metrics, &address, "pass"), checks(&metrics, &address, "fail"))
    };
    let mut before = counts();
    assert_eq!((before, state(&pointsman, &address).as_str()), ((1.0, 0.0), "up"));
    let results = "-+--+---+-++-+"
        .chars()
        .zip("up up up up up up up down down down down up up up".split(' '));
    for (number, (letter, expected)) in (2..).zip(results) {
        wait_until("the check to come", || backend.accepted() == number);
        letters.send(letter).unwrap();
        wait_until("the check after it", || backend.accepted() == number + 1);
        let passes = letter == '+';
        let one = if passes { (before.0 + 1.0, before.1) } else { (before.0, before.1 + 1.0) };
        before = counts();
        assert_eq!(before, one, "exactly one check, with the result that was arranged");
        assert_eq!(state(&pointsman, &address), expected, "after {before:?}");
    }
    let log = pointsman.log();
    let changes: Vec<_> = log.lines().filter(|line| line.contains("backend changed")).collect();
    let expected = ["state=up", "state=down", "state=up"];
    assert_eq!(changes.len(), expected.len(), "{log}");
    for (line, expected) in changes.iter().zip(expected) {
        assert!(line.contains(expected) && line.contains(&address), "{line}");
    }
    assert!(changes[1].contains("WARN") && changes[1].contains("status"), "{}", changes[1]);
    drop(letters);
    pointsman.stop();
}

#[test]
fn the_timeout_holds_while_nobody_answers() {
    let hole = Backend::black_hole();
    let address = hole.address();
    let pointsman = Pointsman::start(&checked(&[&address], "interval: 100ms, timeout: 300ms", ""));
    let begun = Instant::now();
    let before = checks(&pointsman.metrics(), &address, "fail");
    wait_until("three checks", || checks(&pointsman.metrics(), &address, "fail") >= before + 3.0);
    // One waits for the one before it, whatever the interval.
    assert!(begun.elapsed() >= 600 * MS, "{:?}", begun.elapsed());
    let check = &pointsman.status()["pools"]["pool"]["backends"][&*address]["last_check"];
    assert_eq!((&check["ok"], &check["reason"]), (&false.into(), &"timeout".into()));
    let ms = check["ms"].as_f64().unwrap();
    assert!((300.0..600.0).contains(&ms), "{check}");
    pointsman.stop();
}

/// The kernel accepts for a process that hangs: a TCP check cannot tell, and the README says so.
#[test]
fn a_process_that_hangs_looks_healthy_to_a_tcp_check() {
    let backend = Backend::manual();
    let pointsman = Pointsman::start(&checked(&[&backend.address()], "interval: 20ms", ""));
    wait_until("ten checks", || checks(&pointsman.metrics(), &backend.address(), "pass") >= 10.0);
    assert_eq!(checks(&pointsman.metrics(), &backend.address(), "fail"), 0.0);
    assert_eq!(state(&pointsman, &backend.address()), "up");
}

/// The first round is waited for: connections that come meanwhile are served after it, and none
/// goes to a backend that has not passed.
#[test]
fn no_backend_gets_traffic_before_it_has_passed() {
    let (good, hole) = (Backend::echo(), Backend::black_hole());
    let refusing = [Backend::refusing(), Backend::refusing(), Backend::refusing()];
    let mut backends = vec![good.address(), hole.address()];
    backends.extend(refusing.iter().map(Backend::address));
    let backends: Vec<&str> = backends.iter().map(String::as_str).collect();
    let yaml = checked(&backends, "interval: 1s, timeout: 500ms", "balance: round_robin");
    let begun = Instant::now();
    let mut pointsman = Pointsman::spawn(&yaml);
    wait_until("the admin server", || pointsman.directory().join("admin.sock").exists());
    assert_eq!(pointsman.admin("GET", "/readyz"), (503, "starting\n".to_owned()));
    let mut early = pointsman.connect("edge");
    pointsman.wait_ready();
    let took = begun.elapsed();
    assert!(took >= 500 * MS, "the hole was not waited for: {took:?}");
    assert!(took <= 1500 * MS + Duration::from_secs(2), "{took:?}");
    early.send(100);
    early.receive(100);
    for _ in 0..30 {
        assert!(served(&pointsman));
    }
    drop(early);
    for record in pointsman.access_log(31) {
        assert_eq!(record.attempts(), [(good.address(), "connected".to_owned())]);
    }
    let log = pointsman.log();
    assert!(!log.contains("panic"), "one backend was up all the time:\n{log}");
    pointsman.stop();
}

#[test]
fn a_backend_that_came_up_gets_traffic() {
    let (first, second) = (Hideable::shown(), Hideable::hidden());
    let backends = [&*first.address(), &*second.address()];
    let yaml = checked(&backends, "interval: 100ms, rise: 2", "balance: round_robin");
    let pointsman = Pointsman::start(&yaml);
    assert_eq!(state(&pointsman, backends[1]), "down");
    second.show();
    wait_until("it to come up", || state(&pointsman, backends[1]) == "up");
    let taken = second.backend().accepted();
    for _ in 0..10 {
        assert!(served(&pointsman));
    }
    assert!(second.backend().accepted() >= taken + 5);
    for record in pointsman.access_log(10) {
        assert_eq!(record.attempts().len(), 1);
    }
    pointsman.stop();
}

/// With everything down: `0` fails open, `off` closed, and both recover by themselves.
#[test]
fn all_down_fails_open_or_closed_as_configured() {
    for (threshold, open) in [("0", true), ("off", false)] {
        let backends = [Hideable::shown(), Hideable::shown()];
        let addresses = [&*backends[0].address(), &*backends[1].address()];
        let health = "interval: 100ms, rise: 1, fall: 1";
        let yaml = checked(&addresses, health, &format!("panic_threshold: {threshold}"));
        let pointsman = Pointsman::start(&yaml);
        assert!(!panics(&pointsman) && served(&pointsman));

        backends.iter().for_each(Hideable::hide);
        wait_until("both to be down", || addresses.iter().all(|a| state(&pointsman, a) == "down"));
        wait_until("panic as configured", || panics(&pointsman) == open);
        assert!(!served(&pointsman));
        let record = &pointsman.access_log(2)[1];
        let tried = record.attempts().len();
        let expected = if open { ("connect_failed", 3) } else { ("no_backend", 0) };
        assert_eq!((record.text("termination"), tried), expected, "{threshold}");
        let no_backend =
            pointsman.metrics().value("pointsman_pool_no_backend_total", &[("pool", "pool")]);
        assert_eq!(no_backend, f64::from(!open));

        backends[0].show();
        wait_until("it to recover", || state(&pointsman, addresses[0]) == "up");
        wait_until("panic to be over", || !panics(&pointsman));
        assert!(served(&pointsman));
        pointsman.expect_logged(usize::from(open), "panic: the state");
        pointsman.expect_logged(usize::from(open), "panic is over");
        pointsman.stop();
    }
}

/// Below the threshold even what is down is tried; at it nothing is.
#[test]
fn below_the_panic_threshold_states_are_ignored() {
    let backends = [Hideable::shown(), Hideable::shown(), Hideable::shown()];
    let addresses: Vec<_> = backends.iter().map(Hideable::address).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let health = "interval: 100ms, rise: 1, fall: 1";
    let pool = "balance: round_robin, panic_threshold: 50";
    let pointsman = Pointsman::start(&checked(&addresses, health, pool));
    let attempts_of = |connections: usize| {
        let before = pointsman.access_log(0).len();
        (0..connections).for_each(|_| assert!(served(&pointsman)));
        let records = pointsman.access_log(before + connections);
        records[before..].iter().map(|record| record.attempts().len()).max()
    };
    backends[0].hide();
    wait_until("one to be down", || state(&pointsman, addresses[0]) == "down");
    assert!(!panics(&pointsman));
    assert_eq!(attempts_of(9), Some(1));
    backends[1].hide();
    wait_until("two to be down", || state(&pointsman, addresses[1]) == "down");
    wait_until("panic", || panics(&pointsman));
    assert!(attempts_of(9) > Some(1), "what is down is tried as well");
    backends[0].show();
    wait_until("one to be back", || state(&pointsman, addresses[0]) == "up");
    wait_until("panic to be over", || !panics(&pointsman));
    assert_eq!(attempts_of(9), Some(1));
    pointsman.stop();
}

#[test]
fn weight_0_is_checked_and_gets_nothing() {
    let (used, idle) = (Backend::echo(), Hideable::shown());
    let idle_address = idle.address();
    let health = "interval: 100ms, rise: 1, fall: 1";
    let yaml = checked(&[&used.address()], health, "balance: round_robin").replace(
        &format!("[\"{}\"]", used.address()),
        &format!("[\"{}\", {{ address: \"{idle_address}\", weight: 0 }}]", used.address()),
    );
    let pointsman = Pointsman::start(&yaml);
    assert_eq!(state(&pointsman, &idle_address), "up");
    for _ in 0..10 {
        assert!(served(&pointsman));
    }
    let labels = [("pool", "pool"), ("backend", &*idle_address)];
    assert_eq!(pointsman.metrics().value("pointsman_backend_connections_total", &labels), 0.0);
    // Its state takes no part in panic, but is known.
    idle.hide();
    wait_until("it to be down", || state(&pointsman, &idle_address) == "down");
    assert!(!panics(&pointsman));
    pointsman.stop();
}

#[test]
fn health_off_checks_nothing() {
    let backend = Backend::echo();
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], ""));
    // Time enough for a default's first check.
    pass(300 * MS);
    let status = pointsman.status();
    let backend_status = &status["pools"]["pool"]["backends"][&*backend.address()];
    assert_eq!(
        (&backend_status["state"], &backend_status["last_check"]),
        (&"up".into(), &().into())
    );
    assert_eq!(backend.accepted(), 0);
    assert!(served(&pointsman));
    assert_eq!(backend.accepted(), 1);
    pointsman.stop();
}
