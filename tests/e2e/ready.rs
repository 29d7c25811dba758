//! Connections to backends that are established before anybody needs them (`connect.ready`).

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use crate::harness::{
    Backend, HeldPort, Instance, Load, Metrics, Pointsman, Stream, one_listener, pass,
    raise_descriptors, wait_for, wait_until,
};

const MS: Duration = Duration::from_millis(1);

/// One worker, so that numbers are exact.
fn keeping(connect: &str, backends: &[&Backend], pool: &str) -> String {
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address()).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let pool = if pool.is_empty() { String::new() } else { format!(", {pool}") };
    let pool = format!("connect: {{ {connect} }}{pool}");
    format!("workers: 1\n{}", one_listener("", &addresses, &pool))
}

fn kept(pointsman: &Pointsman) -> f64 {
    pointsman.metrics().value("pointsman_pool_ready_connections", &[("pool", "pool")])
}

fn wait_kept(pointsman: &Pointsman, count: usize) {
    let what = format!("{count} ready connections");
    wait_until(&what, || kept(pointsman) == count as f64);
}

fn counted(metrics: &Metrics, result: &str) -> f64 {
    metrics.value("pointsman_pool_ready_total", &[("pool", "pool"), ("result", result)])
}

fn failures(metrics: &Metrics) -> f64 {
    metrics.sum("pointsman_backend_connect_failures_total", ("pool", "pool"))
}

#[test]
fn a_session_gets_one_that_was_there_before() {
    let backend = Backend::manual();
    let pointsman = Pointsman::start(&keeping("ready: 2", &[&backend], ""));
    wait_kept(&pointsman, 2);
    let mut unused = [backend.accept(), backend.accept()];
    assert!(!backend.has_waiting());
    // It is nobody's connection yet.
    let before = pointsman.metrics();
    assert!(before.open_gauges().values().all(|open| *open == 0.0), "{:?}", before.open_gauges());
    assert_eq!(before.sum("pointsman_backend_connections_total", ("pool", "pool")), 0.0);

    for _ in 0..2 {
        let mut client = pointsman.connect("edge");
        client.send(1000);
        let used = first_readable(&unused);
        unused[used].receive(1000);
        unused[used].send(500);
        client.receive(500);
        // The next one takes its place.
        unused[used] = std::mem::replace(&mut unused[1 - used], backend.accept());
        wait_kept(&pointsman, 2);
    }
    let metrics = pointsman.wait_idle();
    assert_eq!((counted(&metrics, "used"), counted(&metrics, "missed")), (2.0, 0.0));
    assert_eq!(metrics.sum("pointsman_backend_connections_total", ("pool", "pool")), 2.0);
    assert_eq!(metrics.sum("pointsman_pool_connect_seconds_count", ("pool", "pool")), 2.0);
    for record in pointsman.stop() {
        assert_eq!(record.attempts(), [(backend.address(), "ready".to_owned())]);
        assert_eq!(record.text("backend"), backend.address());
        assert!(record.number("connect_ms") < 20.0, "{record:?}");
    }
}

fn is_readable(stream: &Stream, within: Duration) -> bool {
    let mut fds = [PollFd::new(&**stream.socket(), PollFlags::IN)];
    let within = Timespec { tv_sec: 0, tv_nsec: within.subsec_nanos().into() };
    poll(&mut fds, Some(&within)).unwrap() > 0
}

/// Which of them gets something.
fn first_readable(streams: &[Stream]) -> usize {
    wait_for("bytes to come", || streams.iter().position(|stream| is_readable(stream, MS)))
}

/// What it says waits for its session, and it is no reset that ends it.
#[test]
fn a_backend_may_speak_first() {
    let ended = Arc::new(AtomicUsize::new(0));
    let backend = Backend::serving({
        let ended = ended.clone();
        move |mut stream| {
            stream.write(b"220 at your service\r\n");
            let last = stream.read_to_end();
            stream.write(b"221 bye\r\n");
            ended.fetch_add(usize::from(last.is_empty()), SeqCst);
        }
    });
    let yaml = keeping("ready: 3", &[&backend], "");
    let pointsman = Pointsman::start(&yaml);
    for _ in 0..4 {
        wait_kept(&pointsman, 3);
        let mut client = pointsman.connect("edge");
        assert_eq!(client.read(21), b"220 at your service\r\n");
        client.write(b"QUIT\r\n");
        client.finish();
        assert_eq!(client.read_to_end(), b"221 bye\r\n");
    }
    let used = counted(&pointsman.metrics(), "used");
    assert_eq!(used, 4.0);
    wait_kept(&pointsman, 3);
    pointsman.reload(&yaml.replace("ready: 3", "ready: 1")).unwrap();
    wait_until("two to end", || ended.load(SeqCst) == 2);
    wait_kept(&pointsman, 1);
    pointsman.stop();
    wait_until("the last to end", || ended.load(SeqCst) == 3);
}

#[test]
fn what_the_backend_closes_is_replaced() {
    let backend = Backend::manual();
    let pointsman = Pointsman::start(&keeping("ready: 1", &[&backend], ""));
    for lost in 0..4 {
        let stream = backend.accept();
        wait_kept(&pointsman, 1);
        if lost % 2 == 0 {
            stream.reset()
        } else {
            drop(stream)
        }
        wait_until("the loss to be seen", || {
            counted(&pointsman.metrics(), "lost") == f64::from(lost + 1)
        });
    }
    let _next = backend.accept();
    assert_eq!(failures(&pointsman.metrics()), 0.0);
    pointsman.stop();
}

#[test]
fn what_is_old_is_replaced() {
    let backend = Backend::manual();
    let pointsman = Pointsman::start(&keeping("ready: 2, ready_max_age: 400ms", &[&backend], ""));
    let begun = Instant::now();
    let mut first = [backend.accept(), backend.accept()];
    first.iter_mut().for_each(Stream::expect_end);
    let age = begun.elapsed();
    assert!((250 * MS..1500 * MS).contains(&age), "{age:?}");
    let _next = [backend.accept(), backend.accept()];
    assert_eq!(counted(&pointsman.metrics(), "lost"), 0.0, "it was our own will");
    pointsman.stop();
}

/// While the process is frozen the backend closes everything unused, and clients come. When it goes
/// on it learns of both at once. No client notices.
#[test]
fn a_stale_one_is_never_handed_out() {
    const CLIENTS: usize = 24;
    let backend = Backend::manual();
    let pointsman = Pointsman::start(&keeping("ready: 8", &[&backend], ""));
    let edge = pointsman.address("edge");
    for _ in 0..20 {
        wait_kept(&pointsman, 8);
        pointsman.wait_received();
        pointsman.freeze();
        while backend.has_waiting() {
            drop(backend.accept());
        }
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| Stream::connect(&edge)).collect();
        clients.iter_mut().for_each(|client| client.send(10));
        pointsman.signal(Signal::CONT);
        // One by one, so that those for the shelf come in between.
        let (mut streams, mut served) = (Vec::new(), 0);
        while served < CLIENTS {
            streams.push(backend.accept());
            streams.retain_mut(|stream| {
                if !is_readable(stream, MS) {
                    return true;
                }
                stream.receive(10);
                stream.send(20);
                served += 1;
                false
            });
        }
        clients.iter_mut().for_each(|client| client.receive(20));
        // One that is used shows that the backend does want them.
        wait_kept(&pointsman, 8);
        streams.extend(std::iter::from_fn(|| backend.has_waiting().then(|| backend.accept())));
        let mut client = pointsman.connect("edge");
        client.send(10);
        let used = first_readable(&streams);
        streams[used].receive(10);
    }
    let metrics = pointsman.wait_idle();
    assert_eq!(failures(&metrics), 0.0);
    assert!(counted(&metrics, "lost") >= 160.0, "{}", counted(&metrics, "lost"));
    let records = pointsman.stop();
    assert_eq!(records.len(), 20 * (CLIENTS + 1));
    for record in records {
        assert_eq!(record.attempts().len(), 1, "{record:?}");
    }
}

/// The fresh connect that takes the place of a stale one is an ordinary one, and no retry.
#[test]
fn a_stale_one_leaves_no_trace() {
    let backend = Backend::manual();
    let pointsman = Pointsman::start(&keeping("ready: 1, attempts: 1", &[&backend], ""));
    let unused = backend.accept();
    wait_kept(&pointsman, 1);
    let edge = pointsman.address("edge");
    pointsman.freeze();
    drop(unused);
    let mut client = Stream::connect(&edge);
    client.send(100);
    pointsman.signal(Signal::CONT);
    // One is for the shelf.
    let mut made = vec![backend.accept(), backend.accept()];
    let mut served = made.swap_remove(first_readable(&made));
    served.receive(100);
    drop(served);
    client.expect_end();
    drop(client);
    let record = pointsman.access_log(1).remove(0);
    assert_eq!(record.attempts(), [(backend.address(), "connected".to_owned())]);
    let metrics = pointsman.wait_idle();
    assert_eq!((counted(&metrics, "missed"), counted(&metrics, "lost")), (1.0, 1.0));
    assert_eq!(metrics.value("pointsman_pool_retries_total", &[("pool", "pool")]), 0.0);
}

/// Attempts at a backend that refuses become rare, and once it is there all are made.
#[test]
fn no_storm_on_a_backend_that_refuses() {
    let port = HeldPort::new("127.0.0.1");
    let address = port.address().to_string();
    let pool = "connect: { ready: 32 }, outlier: off";
    let pointsman =
        Pointsman::start(&format!("workers: 1\n{}", one_listener("", &[&address], pool)));
    pass(Duration::from_secs(2)); // the matter of the test
    let failed = failures(&pointsman.metrics());
    // Waits of up to 100, 200, 400 ms, half of that on average.
    assert!((2.0..=20.0).contains(&failed), "{failed}");
    let _listener = port.listen();
    wait_kept(&pointsman, 32);
    pointsman.stop();
}

/// So does a backend that takes connections and closes them at once.
#[test]
fn no_storm_on_a_backend_that_wants_none() {
    let backend = Backend::serving(drop);
    let pointsman = Pointsman::start(&keeping("ready: 4", &[&backend], ""));
    pass(Duration::from_secs(2)); // the matter of the test
    let accepted = backend.accepted();
    assert!((4..=120).contains(&accepted), "{accepted}");
    pointsman.stop();
}

/// A failed attempt counts for passive detection: the backend is ejected before a client comes.
#[test]
fn a_failed_attempt_counts() {
    let (bad, good) = (Backend::refusing(), Backend::echo());
    let pointsman = Pointsman::start(&keeping("ready: 1", &[&bad, &good], ""));
    wait_until("an ejection", || pointsman.backend(&bad.address())["state"] == "ejected");
    assert!(failures(&pointsman.metrics()) >= 3.0);
    for _ in 0..5 {
        let mut client = pointsman.connect("edge");
        client.exchange(100, 100);
    }
    pointsman.wait_idle();
    for record in pointsman.stop() {
        assert_eq!(record.attempts().len(), 1, "{record:?}");
    }
}

/// When an attempt fails, those that are left may be dead as well: nobody gets them.
#[test]
fn a_failed_attempt_takes_the_others_along() {
    let mut instance = Instance::start();
    let pool = "connect: { ready: 4 }, outlier: off";
    let yaml = format!("workers: 1\n{}", one_listener("", &[&instance.address()], pool));
    let pointsman = Pointsman::start(&yaml);
    wait_kept(&pointsman, 4);
    // What is established stays so for now.
    instance.stop();
    let mut client = pointsman.connect("edge");
    client.write(b"q");
    assert_eq!(client.read(1), b"q");
    drop(client);
    wait_kept(&pointsman, 0);
    instance.restart();
    wait_kept(&pointsman, 4);
    pointsman.stop();
}

/// Whatever takes a backend out closes its unused connections by FIN; what brings it back makes
/// new ones.
#[test]
fn who_is_out_has_none() {
    let backend = Backend::manual();
    let pointsman = Pointsman::start(&keeping("ready: 2", &[&backend], ""));
    let name = backend.address();
    for (out, back) in [
        (r#"{"admin":"drain"}"#, r#"{"admin":"ready"}"#),
        (r#"{"admin":"maintenance"}"#, r#"{"admin":"ready"}"#),
        (r#"{"weight":0}"#, r#"{"weight":null}"#),
    ] {
        wait_kept(&pointsman, 2);
        let mut unused = [backend.accept(), backend.accept()];
        pointsman.change(&name, out);
        unused.iter_mut().for_each(Stream::expect_end);
        wait_kept(&pointsman, 0);
        assert!(!backend.has_waiting());
        pointsman.change(&name, back);
    }
    wait_kept(&pointsman, 2);
    pointsman.stop();
}

#[test]
fn who_is_down_has_none() {
    let mut instance = Instance::start();
    let pool = "outlier: off, panic_threshold: 0, connect: { ready: 3 }";
    let yaml = format!("workers: 1\n{}", one_listener("", &[&instance.address()], pool));
    let health = "health: { interval: 100ms, fast_interval: 50ms, fall: 2, rise: 1 }";
    let pointsman = Pointsman::start(&yaml.replace("health: off", health));
    wait_kept(&pointsman, 3);
    instance.stop();
    // Not even in the panic that follows.
    wait_kept(&pointsman, 0);
    assert_eq!(pointsman.metrics().value("pointsman_pool_panic", &[("pool", "pool")]), 1.0);
    assert_eq!(failures(&pointsman.metrics()), 0.0);
    instance.restart();
    wait_kept(&pointsman, 3);
    pointsman.stop();
}

/// A backup has some only while nobody else is usable.
#[test]
fn backups_have_some_when_they_are_needed() {
    let (backend, backup) = (Backend::manual(), Backend::manual());
    let yaml = keeping("ready: 2", &[&backend, &backup], "");
    let map = format!("{{ address: \"{}\", backup: true }}", backup.address());
    let yaml = yaml.replace(&format!("\"{}\"", backup.address()), &map);
    let pointsman = Pointsman::start(&yaml);
    wait_kept(&pointsman, 2);
    assert!(!backup.has_waiting());
    pointsman.change(&backend.address(), r#"{"admin":"drain"}"#);
    let mut unused = [backup.accept(), backup.accept()];
    pointsman.change(&backend.address(), r#"{"admin":"ready"}"#);
    unused.iter_mut().for_each(Stream::expect_end);
    wait_kept(&pointsman, 2);
    assert!(!backup.has_waiting());
    pointsman.stop();
}

/// They count neither for a backend's bound nor against it.
#[test]
fn bounds_are_for_sessions() {
    let backend = Backend::echo();
    let yaml = keeping("ready: 3", &[&backend], "max_connections: 1");
    let pointsman = Pointsman::start(&yaml);
    wait_kept(&pointsman, 3);
    let mut client = pointsman.connect("edge");
    client.exchange(100, 100);
    Stream::expect_turned_away(&pointsman.address("edge"));
    wait_kept(&pointsman, 3);
    drop(client);
    pointsman.stop();
}

#[test]
fn a_reload_makes_and_closes_what_it_says() {
    let backends = [Backend::echo(), Backend::echo()];
    let [first, both] = [&[&backends[0]][..], &[&backends[0], &backends[1]]];
    let off = keeping("ready: off", both, "");
    let pointsman = Pointsman::start(&off);
    let before = pointsman.usage_at_rest();
    for (connect, backends, count) in [
        ("ready: 2", both, 4),
        ("ready: 5", both, 10),
        ("ready: 5", first, 5),
        ("ready: 1", both, 2),
        ("ready: 128", both, 256),
        ("ready: 3", both, 6),
    ] {
        let yaml = keeping(connect, backends, "");
        pointsman.reload(&yaml).unwrap();
        wait_kept(&pointsman, count);
        // What goes on by another plan is what it was.
        pointsman.reload(&yaml).unwrap();
        wait_kept(&pointsman, count);
    }
    assert_eq!(pointsman.usage_at_rest().sockets, before.sockets + 6);
    pointsman.reload(&off).unwrap();
    wait_until("descriptors to return", || pointsman.usage_at_rest() == before);
    backends.iter().for_each(Backend::wait_idle);
    let names = pointsman.metrics().names();
    assert!(!names.iter().any(|name| name.contains("_ready_")), "{names:?}");

    // A pool that no listener leads to needs none.
    let unused = "  other: { health: off, backends: [\"ADDRESS\"], connect: { ready: 4 } }\n";
    let unused = unused.replace("ADDRESS", &backends[1].address());
    let yaml = keeping("ready: 2", first, "").replace("pools: {", "pools:\n ");
    let yaml = yaml.trim_end().strip_suffix('}').unwrap().to_owned();
    pointsman.reload(&format!("{yaml}\n{unused}")).unwrap();
    wait_kept(&pointsman, 2);
    assert_eq!(backends[1].open(), 0);
    pointsman.stop();
    backends.iter().for_each(Backend::wait_idle);
}

/// Under load the number goes up and down, and the backends out and in: nobody notices.
#[test]
fn changes_under_load_lose_nothing() {
    let instances = [Instance::start(), Instance::start()];
    let names = instances.each_ref().map(Instance::address);
    let yaml = |ready: &str| {
        one_listener("", &[&names[0], &names[1]], &format!("connect: {{ ready: {ready} }}"))
    };
    let pointsman = Pointsman::start(&yaml("4"));
    let load = Load::start(&pointsman.address("edge"), 6, 2);
    for round in 0..8 {
        load.wait_for(30);
        pointsman.reload(&yaml(["off", "1", "16", "4"][round % 4])).unwrap();
        load.wait_for(30);
        pointsman.change(&names[round % 2], r#"{"admin":"drain"}"#);
        load.wait_for(30);
        pointsman.change(&names[round % 2], r#"{"admin":"ready"}"#);
    }
    let (answered, failed) = load.stop();
    assert!(failed.is_empty(), "{} of {answered}: {failed:?}", failed.len());
    let metrics = pointsman.wait_idle();
    assert!(counted(&metrics, "used") >= 100.0, "{}", counted(&metrics, "used"));
    assert_eq!((counted(&metrics, "lost"), failures(&metrics)), (0.0, 0.0));
    pointsman.stop();
}

/// They go when draining begins, whatever sessions are left.
#[test]
fn shutdown_closes_them_first() {
    let backend = Backend::manual();
    let yaml = format!("shutdown: {{ grace: 10s }}\n{}", keeping("ready: 2", &[&backend], ""));
    let mut pointsman = Pointsman::start(&yaml);
    wait_kept(&pointsman, 2);
    let mut streams = vec![backend.accept(), backend.accept()];
    let mut client = pointsman.connect("edge");
    client.send(10);
    streams.push(backend.accept());
    let mut server = streams.swap_remove(first_readable(&streams));
    pointsman.signal(Signal::TERM);
    streams.iter_mut().for_each(Stream::expect_end);
    assert!(pointsman.running());
    server.receive(10);
    server.send(20);
    client.receive(20);
    drop((client, server));
    assert_eq!(pointsman.wait().code(), Some(0));
    assert!(!backend.has_waiting(), "none were made any more");
}

#[test]
fn a_unix_socket_can_be_ready_too() {
    let backend = Backend::listening(&format!("unix:/tmp/ready-{}.sock", std::process::id()));
    let pointsman = Pointsman::start(&keeping("ready: 1", &[&backend], ""));
    wait_kept(&pointsman, 1);
    let mut unused = backend.accept();
    let mut client = pointsman.connect("edge");
    client.send(100);
    unused.receive(100);
    drop((client, unused));
    drop(backend.accept());
    wait_until("the loss", || counted(&pointsman.metrics(), "lost") == 1.0);
    assert_eq!(pointsman.stop()[0].attempts()[0].1, "ready");
    let path = backend.address();
    std::fs::remove_file(path.strip_prefix("unix:").unwrap()).unwrap();
}

/// However many are asked for, they leave descriptors for sessions, and `max_connections: auto`
/// knows of them.
#[test]
fn descriptors_are_shared() {
    raise_descriptors();
    let limited = |yaml: &str| {
        let mut command = Command::new("sh");
        let program = env!("CARGO_BIN_EXE_pointsman");
        command.args(["-c", "ulimit -n 4000 && exec \"$0\" \"$@\"", program]);
        let mut pointsman = Pointsman::spawn_by(command, yaml);
        pointsman.wait_ready();
        pointsman.wait_for_log("max_connections=");
        let log = pointsman.log();
        let (_, after) = log.split_once("max_connections=").expect("the line that says so");
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        (pointsman, digits.parse::<usize>().unwrap())
    };
    let backends: Vec<_> = (0..16).map(|_| Backend::echo()).collect();
    let backends: Vec<_> = backends.iter().collect();
    let yaml = |ready: &str| keeping(&format!("ready: {ready}"), &backends, "");
    let (_, without) = limited(&yaml("off"));
    let (pointsman, with) = limited(&yaml("10"));
    assert_eq!(with, without - 160 / 2);
    wait_kept(&pointsman, 160);
    drop(pointsman);
    let (pointsman, with) = limited(&yaml("128"));
    pointsman.wait_for_log("asks for more descriptors than it may have");
    // Half of all are for sessions in any case.
    assert_eq!(with, 1000);
    wait_kept(&pointsman, 1000);
    pass(200 * MS); // no more come
    assert_eq!(kept(&pointsman), 1000.0);
    pointsman.connect("edge").exchange(100, 100);
    pointsman.stop();
}

/// What `early_close` watches for is watched on these as well.
#[test]
fn an_early_close_counts() {
    let bad = Backend::serving(|stream| {
        let _one = std::io::Read::read(&mut &**stream.socket(), &mut [0]);
    });
    let good = Backend::echo();
    let pool = "balance: round_robin, outlier: { early_close: true, consecutive_failures: 2 }";
    let pointsman = Pointsman::start(&keeping("ready: 4", &[&bad, &good], pool));
    wait_kept(&pointsman, 8);
    for _ in 0..4 {
        let mut client = pointsman.connect("edge");
        client.write(b"x");
        // An answer, or the end without one.
        let _either = std::io::Read::read(&mut &**client.socket(), &mut [0]);
    }
    wait_until("an ejection", || pointsman.backend(&bad.address())["state"] == "ejected");
    wait_kept(&pointsman, 4);
    pointsman.stop();
}
