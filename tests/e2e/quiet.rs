//! Waiting costs nothing: no spin in any state of a session, no delay for one byte, and no memory
//! for readers who do not read.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::harness::{Backend, Pointsman, Session, Side, Stream, one_listener, pass};

const WATCHED: Duration = Duration::from_millis(300);

/// A spin would use all of [`WATCHED`]; the process has a second's timer and no more to do.
fn assert_no_spin(pointsman: &Pointsman, state: &str) {
    let before = pointsman.cpu_time();
    pass(WATCHED); // the matter of the test
    let used = pointsman.cpu_time() - before;
    assert!(used <= Duration::from_millis(10), "{state}: {used:?} of {WATCHED:?}");
}

/// Round trips of one byte, sorted.
fn round_trips(client: &mut Stream, count: usize) -> Vec<Duration> {
    let mut times: Vec<_> = (0..count)
        .map(|_| {
            let begun = Instant::now();
            client.send(1);
            client.receive(1);
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    times
}

/// The bounds hold on a machine with other work: a delayed acknowledgement would be 40 ms, a
/// timer of the runtime 1 ms at best and each time.
fn assert_swift(times: &[Duration]) {
    let (best_tenth, median) = (times[times.len() / 10], times[times.len() / 2]);
    eprintln!("round trips: a tenth within {best_tenth:?}, half within {median:?}");
    assert!(best_tenth < Duration::from_micros(500), "{best_tenth:?}");
    assert!(median < Duration::from_millis(5), "{median:?}");
}

#[test]
fn one_byte_at_a_time() {
    let backend = Backend::echo();
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], ""));
    let mut client = pointsman.connect("edge");
    assert_swift(&round_trips(&mut client, 2000));
    assert_no_spin(&pointsman, "idle");
    // After bulk the direction splices; it must not wait for more.
    client.exchange(20_000_000, 20_000_000);
    assert_swift(&round_trips(&mut client, 2000));
    assert_no_spin(&pointsman, "idle after bulk");
}

#[test]
fn no_state_of_a_session_spins() {
    for side in Side::BOTH {
        let (mut source, mut reader, pointsman) = Session::open("").ends(side);
        assert_no_spin(&pointsman, "fresh");
        source.send_until_stalled(Duration::from_millis(200));
        assert_no_spin(&pointsman, "stalled");
        source.finish();
        assert_no_spin(&pointsman, "stalled with FIN behind");
        let sent = source.sent();
        reader.receive(sent / 2);
        assert_no_spin(&pointsman, "stalled less");
        reader.receive(sent - sent / 2);
        reader.expect_end();
        assert_no_spin(&pointsman, "half closed");
        reader.send_until_stalled(Duration::from_millis(200));
        assert_no_spin(&pointsman, "half closed, stalled the other way");
        reader.finish();
        assert_no_spin(&pointsman, "both ends sent, one not delivered");
        let answered = reader.sent();
        source.receive(answered);
        source.expect_end();
        pointsman.wait_idle();
    }
}

#[test]
fn both_directions_stalled_do_not_spin() {
    let mut session = Session::open("");
    session.client.send_until_stalled(Duration::from_millis(200));
    session.server.send_until_stalled(Duration::from_millis(200));
    assert_no_spin(&session.pointsman, "both stalled");
    session.client.finish();
    session.server.finish();
    assert_no_spin(&session.pointsman, "both stalled, both FIN");
}

/// Stalled sessions hold a spill of 64 KiB at the most; the rest is the kernel's.
#[test]
fn slow_readers_pin_little_and_disturb_nobody() {
    const READERS: usize = 200;
    let fast = Backend::serving(|mut stream| {
        // 200 buffers of the size they would grow to are more than the kernel allows TCP.
        stream.socket().set_send_buffer_size(128 * 1024).unwrap();
        while stream.try_send(u64::MAX).is_ok() {}
    });
    let echo = Backend::echo();
    let pointsman = Pointsman::start(&format!(
        "listeners:\n  edge: {{ bind: \"127.0.0.1:0\", pool: fast }}\n  \
         calm: {{ bind: \"127.0.0.1:0\", pool: echo }}\n\
         pools:\n  fast: {{ backends: [\"{}\"], health: off }}\n  \
         echo: {{ backends: [\"{}\"], health: off }}\n",
        fast.address(),
        echo.address()
    ));
    let mut calm = pointsman.connect("calm");
    round_trips(&mut calm, 200);
    let before = pointsman.resident();
    let edge = pointsman.address("edge");
    let mut readers: Vec<_> =
        (0..READERS).map(|_| Stream::connect_narrow(&edge, 16 * 1024)).collect();
    let over = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                readers.iter_mut().for_each(|reader| reader.receive(2000));
            }
        });
        let times = round_trips(&mut calm, 3000);
        over.store(true, Relaxed);
        times
    });
    let grown = pointsman.resident().saturating_sub(before);
    eprintln!("{READERS} slow readers: {} KiB more", grown / 1024);
    assert!(grown < READERS as u64 * 64 * 1024 + 8 * 1024 * 1024, "{grown}");
    assert!(times[times.len() / 2] < Duration::from_millis(10), "{:?}", times[times.len() / 2]);
    assert_eq!(pointsman.metrics().active("edge"), READERS as f64);
    drop(readers);
    drop(calm);
    pointsman.wait_idle();
}
