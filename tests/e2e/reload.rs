//! A new configuration, while connections come and go.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::process::Signal;

use crate::harness::{Backend, Pointsman, Stream, one_listener, wait_until};

fn round_trip(stream: &mut Stream) {
    stream.send(100);
    stream.receive(100);
}

/// Pools, timeouts and a second listener change thirty times; nobody is refused or reset.
#[test]
fn under_load_nobody_notices() {
    let backends = [Backend::echo(), Backend::echo()];
    let yaml = |number: u64| {
        let address = backends[(number % 2) as usize].address();
        let settings = format!("timeouts: {{ idle: {}s }}", 100 + number);
        let other = "other: { bind: \"127.0.0.1:0\", pool: pool }";
        let yaml = one_listener(&settings, &[&address], "");
        if number.is_multiple_of(3) {
            yaml.replace("edge: {", &format!("{other}, edge: {{"))
        } else {
            yaml
        }
    };
    let pointsman = Pointsman::start(&yaml(0));
    let edge = pointsman.address("edge");
    let mut long = Stream::connect(&edge);
    round_trip(&mut long);
    let over = AtomicBool::new(false);
    let sessions: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while !over.load(Relaxed) {
                        let mut stream = Stream::connect(&edge);
                        round_trip(&mut stream);
                        stream.finish();
                        stream.expect_end();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for number in 1..=30 {
            assert_eq!(pointsman.reload(&yaml(number)), Ok(number + 1));
            assert_eq!(pointsman.address("edge"), edge);
            round_trip(&mut long);
        }
        over.store(true, Relaxed);
        clients.into_iter().map(|client| client.join().expect("its panic is above")).sum()
    });
    drop(long);
    let metrics = pointsman.wait_idle();
    eprintln!("{sessions} sessions in 30 reloads");
    assert_eq!(metrics.closed("edge", "client_closed"), (sessions + 1) as f64);
    assert_eq!(
        metrics.value("pointsman_connections_total", &[("listener", "edge")]),
        (sessions + 1) as f64
    );
}

/// The pool's next connection goes to the new backend; the session on the old one stays there.
#[test]
fn sessions_stay_and_connections_follow() {
    let (old, new) = (Backend::manual(), Backend::manual());
    let pointsman = Pointsman::start(&one_listener("", &[&old.address()], ""));
    let mut first = pointsman.connect("edge");
    let mut first_server = old.accept();
    pointsman.reload(&one_listener("", &[&new.address()], "")).unwrap();
    let mut second = pointsman.connect("edge");
    let mut second_server = new.accept();
    for (client, server) in [(&mut first, &mut first_server), (&mut second, &mut second_server)] {
        client.send(1000);
        server.receive(1000);
        server.send(1000);
        client.receive(1000);
    }
    assert!(!old.has_waiting());
}

#[test]
fn a_removed_listener_refuses_and_its_sessions_go_on() {
    let backend = Backend::echo();
    let other = "other: { bind: \"127.0.0.1:0\", pool: pool }, edge: {";
    let edge_only = one_listener("", &[&backend.address()], "");
    let pointsman = Pointsman::start(&edge_only.replace("edge: {", other));
    let address = pointsman.address("other");
    let mut session = Stream::connect(&address);
    round_trip(&mut session);
    pointsman.reload(&edge_only).unwrap();
    let error = Stream::try_connect(&address).expect_err("the listener is gone");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    round_trip(&mut session);
    session.finish();
    session.expect_end();
    let record = pointsman.access_log(1).remove(0);
    assert_eq!((record.text("listener"), record.text("termination")), ("other", "client_closed"));
}

#[test]
fn a_failed_reload_changes_nothing() {
    let backend = Backend::echo();
    let good = one_listener("", &[&backend.address()], "");
    let pointsman = Pointsman::start(&good);
    let edge = pointsman.address("edge");
    let taken = Backend::manual();
    for (bad, told) in [
        ("listeners: [", "pointsman.yaml"),
        ("listeners: {}\npools: {}\nsurprise: 1\n", "surprise"),
        // Everything is right but for an address that somebody else has.
        (&good.replace("127.0.0.1:0", &taken.address()), "cannot listen"),
    ] {
        let errors = pointsman.reload(bad).unwrap_err();
        assert!(errors.contains(told), "{errors}");
        assert_eq!(pointsman.status()["generation"], 1);
        assert_eq!(pointsman.address("edge"), edge);
        round_trip(&mut Stream::connect(&edge));
    }
    let metrics = pointsman.metrics();
    let failures = metrics.value("pointsman_config_reloads_total", &[("result", "failure")]);
    assert_eq!(failures, 3.0);
    assert_eq!(metrics.value("pointsman_config_last_reload_success", &[]), 0.0);
    assert_eq!(pointsman.reload(&good), Ok(2));
}

/// A reload that comes while the process is stopping opens nothing again.
#[test]
fn while_draining_nothing_opens() {
    let backend = Backend::echo();
    let yaml = one_listener("", &[&backend.address()], "");
    let mut pointsman = Pointsman::start(&yaml);
    let edge = pointsman.address("edge");
    let mut session = Stream::connect(&edge);
    round_trip(&mut session);
    pointsman.signal(Signal::TERM);
    wait_until("the listener to close", || Stream::try_connect(&edge).is_err());
    let other = "other: { bind: \"127.0.0.1:0\", pool: pool }, edge: {";
    if pointsman.reload(&yaml.replace("edge: {", other)).is_ok() {
        let other = pointsman.address("other");
        assert!(Stream::try_connect(&other).is_err(), "{other} is open, and nobody accepts");
    }
    assert!(Stream::try_connect(&edge).is_err(), "{edge} is open again");
    round_trip(&mut session);
    drop(session);
    assert_eq!(pointsman.wait().code(), Some(0));
}
