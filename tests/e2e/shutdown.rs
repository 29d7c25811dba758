//! Stopping, and reopening the access log.

use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{
    Backend, Pointsman, Record, Session, Stream, fresh_directory, one_listener, wait_until,
};

fn with(shutdown: &str, backend: &Backend) -> Pointsman {
    let rest = one_listener("", &[&backend.address()], "");
    Pointsman::start(&format!("shutdown: {{ {shutdown} }}\n{rest}"))
}

fn is_refused(address: &str) -> bool {
    Stream::try_connect(address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Probes may have come in before the listener closed, and end in any order.
fn record_of(client: &str, pointsman: &Pointsman) -> Record {
    let mut records = pointsman.access_log(1).into_iter();
    records.find(|record| record.text("client") == client).expect("a record of the client")
}

#[test]
fn without_sessions_it_ends_at_once() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut pointsman = with("grace: 1h", &Backend::echo());
        let since = Instant::now();
        pointsman.signal(signal);
        assert_eq!(pointsman.wait().code(), Some(0));
        assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
        assert!(!pointsman.directory().join("admin.sock").exists());
    }
}

#[test]
fn running_sessions_finish_and_new_ones_are_refused() {
    let backend = Backend::manual();
    let pointsman = with("grace: 1h", &backend);
    let edge = pointsman.address("edge");
    let Session { mut client, mut server, mut pointsman, .. } =
        Session::through(pointsman, backend);
    assert!(pointsman.ready());
    let local = client.local();
    pointsman.signal(Signal::TERM);
    wait_until("the listener to close", || is_refused(&edge));
    assert!(!pointsman.ready());
    assert_eq!(pointsman.admin("GET", "/readyz").0, 503);
    assert_eq!(pointsman.admin("GET", "/livez").0, 200);
    // Both directions go on, for as much as they like.
    std::thread::scope(|scope| {
        scope.spawn(|| server.exchange(50_000_000, 50_000_000));
        client.exchange(50_000_000, 50_000_000);
    });
    assert!(pointsman.running());
    client.finish();
    server.expect_end();
    server.send(1000);
    drop(server);
    client.receive(1000);
    client.expect_end();
    assert_eq!(pointsman.wait().code(), Some(0));
    assert_eq!(record_of(&local, &pointsman).text("termination"), "client_closed");
}

/// Forty sessions outstay a grace of 4 s: they are closed one after the other over its last
/// 800 ms, by FIN, and not before.
#[test]
fn the_end_of_grace_is_spread() {
    const SESSIONS: usize = 40;
    let backend = Backend::echo();
    let mut pointsman = with("grace: 4s", &backend);
    let edge = pointsman.address("edge");
    let mut clients: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let mut client = Stream::connect(&edge);
            client.send(1);
            client.receive(1);
            client
        })
        .collect();
    let begun = Instant::now();
    pointsman.signal(Signal::TERM);
    let mut ends = Vec::new();
    while !clients.is_empty() {
        wait_until("the next close", || clients.iter().any(Stream::is_hung_up));
        let at = begun.elapsed();
        clients.retain_mut(|client| {
            let over = client.is_hung_up();
            if over {
                client.expect_end();
                ends.push(at);
            }
            !over
        });
    }
    assert_eq!(pointsman.wait().code(), Some(0));
    let (first, last) = (ends[0], ends[SESSIONS - 1]);
    eprintln!("closed from {first:?} to {last:?}");
    assert!(first >= Duration::from_millis(3100), "{first:?}");
    assert!(last < Duration::from_secs(7), "{last:?}");
    let records = pointsman.access_log(SESSIONS);
    assert_eq!(records.len(), SESSIONS);
    // By its own clock: whoever looks may see many at once.
    let ends = || records.iter().map(Record::ended);
    let spread = ends().fold(0.0, f64::max) - ends().fold(f64::MAX, f64::min);
    assert!(spread >= 0.2, "a stampede within {spread} s: {first:?} to {last:?}");
    assert!(records.iter().all(|record| record.text("termination") == "shutdown"));
}

#[test]
fn during_delay_it_is_not_ready_and_accepts() {
    let backend = Backend::echo();
    let mut pointsman = with("delay: 1500ms, grace: 1h", &backend);
    let edge = pointsman.address("edge");
    let since = Instant::now();
    pointsman.signal(Signal::TERM);
    wait_until("/readyz to say no", || !pointsman.ready());
    assert_eq!(pointsman.admin("GET", "/readyz").0, 503);
    assert!(since.elapsed() < Duration::from_millis(1400), "too slow a machine for this test");
    let mut client = Stream::connect(&edge);
    let local = client.local();
    client.send(100);
    client.receive(100);
    wait_until("the listener to close", || is_refused(&edge));
    assert!(since.elapsed() >= Duration::from_millis(1500), "{:?}", since.elapsed());
    // Who came during the delay has grace like everybody.
    client.send(100);
    client.receive(100);
    drop(client);
    assert_eq!(pointsman.wait().code(), Some(0));
    assert_eq!(record_of(&local, &pointsman).text("termination"), "client_closed");
}

/// In delay and in grace, whatever signal came first.
#[test]
fn a_second_signal_stops_at_once() {
    for (settings, first, second) in [
        ("delay: 1h, grace: 1h", Signal::TERM, Signal::TERM),
        ("grace: 1h", Signal::TERM, Signal::INT),
        ("grace: 1h", Signal::INT, Signal::TERM),
    ] {
        let backend = Backend::manual();
        let session = Session::through(with(settings, &backend), backend);
        let Session { mut client, mut server, mut pointsman, .. } = session;
        pointsman.signal(first);
        wait_until("/readyz to say no", || !pointsman.ready());
        client.send(10);
        server.receive(10);
        let since = Instant::now();
        pointsman.signal(second);
        client.expect_end();
        server.expect_end();
        assert_eq!(pointsman.wait().code(), Some(0));
        assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
        assert_eq!(pointsman.access_log(1)[0].text("termination"), "shutdown");
    }
}

#[test]
fn grace_of_zero_stops_at_once() {
    let backend = Backend::manual();
    let Session { mut client, mut server, mut pointsman, .. } =
        Session::through(with("grace: 0s", &backend), backend);
    let since = Instant::now();
    pointsman.signal(Signal::TERM);
    client.expect_end();
    server.expect_end();
    assert_eq!(pointsman.wait().code(), Some(0));
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
}

/// A session that is still being connected ends as well, and its client sees FIN.
#[test]
fn connecting_is_no_reason_to_stay() {
    let backend = Backend::black_hole();
    let rest = one_listener("", &[&backend.address()], "connect: { timeout: 1h }");
    let mut pointsman = Pointsman::start(&format!("shutdown: {{ grace: 500ms }}\n{rest}"));
    let mut client = pointsman.connect("edge");
    wait_until("the session", || pointsman.metrics().active("edge") == 1.0);
    let since = Instant::now();
    pointsman.signal(Signal::TERM);
    client.expect_end();
    assert_eq!(pointsman.wait().code(), Some(0));
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    assert_eq!(pointsman.access_log(1)[0].text("termination"), "shutdown");
}

/// Both peers go on sending to the end and beyond: it ends in time all the same.
#[test]
fn busy_peers_do_not_delay_the_end() {
    let backend = Backend::manual();
    let Session { mut client, mut server, mut pointsman, .. } =
        Session::through(with("grace: 700ms", &backend), backend);
    std::thread::scope(|scope| {
        for mut stream in [client.other_half(), server.other_half()] {
            scope.spawn(move || while stream.try_send(u64::MAX).is_ok() {});
        }
        for stream in [&mut client, &mut server] {
            scope.spawn(|| drop(stream.receive_all()));
        }
        let since = Instant::now();
        pointsman.signal(Signal::TERM);
        assert_eq!(pointsman.wait().code(), Some(0));
        assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    });
    assert_eq!(pointsman.access_log(1)[0].text("termination"), "shutdown");
}

#[test]
fn a_unix_listener_refuses_too() {
    let directory = fresh_directory();
    let front = format!("unix:{}/front.sock", directory.display());
    let backend = Backend::echo();
    let yaml = one_listener("", &[&backend.address()], "").replace("127.0.0.1:0", &front);
    let mut pointsman = Pointsman::start(&yaml);
    let mut client = Stream::connect(&front);
    client.send(10);
    client.receive(10);
    pointsman.signal(Signal::TERM);
    wait_until("the listener to close", || is_refused(&front));
    client.send(10);
    client.receive(10);
    drop(client);
    assert_eq!(pointsman.wait().code(), Some(0));
    assert!(!directory.join("front.sock").exists());
    fs::remove_dir_all(directory).unwrap();
}

/// Log rotation under load: what is not in the old file is in the new one, each record once.
#[test]
fn reopening_the_access_log_loses_nothing() {
    const SESSIONS: usize = 300;
    const FILES: usize = 10;
    let backend = Backend::echo();
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], ""));
    let (edge, log) = (pointsman.address("edge"), pointsman.directory().join("access.log"));
    std::thread::scope(|scope| {
        let sessions = scope.spawn(|| {
            for _ in 0..SESSIONS * FILES {
                let mut client = Stream::connect(&edge);
                client.send(1);
                client.receive(1);
            }
        });
        for number in 1..FILES {
            pointsman.access_log(SESSIONS / 4);
            fs::rename(&log, pointsman.directory().join(format!("access.{number}"))).unwrap();
            pointsman.signal(Signal::USR1);
            wait_until("a new access log", || log.exists());
        }
        sessions.join().unwrap();
    });
    pointsman.wait_idle();
    let count = |name: &str| pointsman.records_in(name, 0);
    let mut ids: Vec<String> = Vec::new();
    wait_until("all records", || {
        let old = (1..FILES).flat_map(|number| count(&format!("access.{number}")));
        let all = old.chain(count("access.log"));
        ids = all.map(|record| record.text("id").to_owned()).collect();
        ids.len() >= SESSIONS * FILES
    });
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), SESSIONS * FILES);
    assert_eq!(pointsman.metrics().value("pointsman_access_log_dropped_total", &[]), 0.0);
    pointsman.stop();
}

/// A reload that comes while the process is stopping is refused, and opens nothing again.
#[test]
fn while_draining_nothing_opens() {
    let backend = Backend::echo();
    let yaml = one_listener("", &[&backend.address()], "");
    let mut pointsman = Pointsman::start(&yaml);
    let edge = pointsman.address("edge");
    let mut session = Stream::connect(&edge);
    session.send(100);
    session.receive(100);
    pointsman.signal(Signal::TERM);
    wait_until("the listener to close", || Stream::try_connect(&edge).is_err());
    let other = "other: { bind: \"127.0.0.1:0\", pool: pool }, edge: {";
    let error = pointsman.reload(&yaml.replace("edge: {", other)).unwrap_err();
    assert!(error.contains("stopping"), "{error}");
    assert!(is_refused(&edge), "{edge} is open again");
    session.send(100);
    session.receive(100);
    drop(session);
    assert_eq!(pointsman.wait().code(), Some(0));
}
