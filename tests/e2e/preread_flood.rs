//! Thousands of clients that never finish a hello: what they cost is bounded, the oldest go first,
//! and everybody else is served.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::harness::hello::Hello;
use crate::harness::{Edge, Stream, pass, raise_descriptors, wait_until};

const SILENT: usize = 5000;
const STALLED: usize = 2000;
/// Of which so many come together: a part of [`STALLED`].
const TOGETHER: usize = 50;
/// What each of the stalled sends of its hello.
const SENT: usize = 60 << 10;

/// The default of `preread.total_bytes`.
const TOTAL: u64 = 64 << 20;
/// What a session may cost beside it, all of them together.
const BESIDE: u64 = 32 << 20;

/// What an honest client waits for its answer, half of the time.
const SOON: Duration = Duration::from_millis(50);

/// Runs `work` while honest clients come one after the other; how long each was served.
fn meanwhile<T: Send>(edge: &Edge, work: impl FnOnce() -> T + Send) -> (T, Vec<Duration>) {
    let over = AtomicBool::new(false);
    let honest = Hello::to("www.example.com").post_quantum().bytes();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut took = Vec::new();
            while !over.load(Relaxed) || took.len() < 20 {
                let begun = Instant::now();
                assert_eq!(edge.ask(&honest).as_deref(), Some("www"));
                took.push(begun.elapsed());
                pass(Duration::from_millis(2));
            }
            took
        });
        let worked = scope.spawn(work).join();
        over.store(true, Relaxed);
        let took = asking.join().expect("an honest client is served");
        (worked.expect("its panic is above"), took)
    })
}

/// The most that is resident while `work` runs.
fn most_resident<T>(edge: &Edge, work: impl FnOnce() -> T) -> (T, u64) {
    let (over, most) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                most.fetch_max(edge.pointsman.resident(), Relaxed);
                pass(Duration::from_millis(5));
            }
        });
        // Ends the thread above when `work` panics.
        let stop = Stop(&over);
        let worked = work();
        drop(stop);
        (worked, most.load(Relaxed).max(edge.pointsman.resident()))
    })
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Clients that send most of a hello, and no more; those that were reset meanwhile too.
fn stall(edge: &Edge) -> Vec<Stream> {
    let hello = Hello::to("www.example.com").padded_to(SENT + 2000).bytes();
    let connect = |_| {
        let mut stream = edge.connect();
        stream.write(&hello[..SENT]);
        stream
    };
    let mut streams = Vec::new();
    while streams.len() < STALLED {
        streams.extend((0..TOGETHER).map(connect));
        // A worker that is behind takes for young what is old here.
        edge.pointsman.wait_received();
    }
    streams
}

/// Holds the older of the stalled to be reset, the newer to be waited for; how many were reset.
fn expect_oldest_closed(edge: &Edge, mut stalled: Vec<Stream>, before: f64) -> usize {
    // A buffer counts an eighth more than it has.
    let fit = TOTAL as usize / (SENT + SENT / 8);
    let closed = || (edge.pointsman.metrics().closed("edge", "overload") - before) as usize;
    wait_until("no more than the bound", || STALLED - closed() <= fit);
    // Another worker may be about to close one more, and what is counted is reset a moment later.
    let broken = || stalled.iter().map(Stream::is_broken).collect::<Vec<_>>();
    let agree = || broken().iter().filter(|broken| **broken).count() == closed();
    wait_until("as many to be reset as are counted", agree);
    let broken = broken();
    assert!(STALLED - closed() >= fit * 9 / 10, "{} of {fit} are left", STALLED - closed());
    // Workers read side by side, so near the border ages mix.
    let surely = closed() * 9 / 10;
    assert!(broken[..surely].iter().all(|broken| *broken), "the oldest");
    assert!(broken[STALLED - fit * 8 / 10..].iter().all(|broken| !broken), "the newest");
    stalled[..surely].iter_mut().for_each(expect_only_reset);
    closed()
}

/// RST, and nothing before it.
fn expect_only_reset(stream: &mut Stream) {
    let error = stream.try_receive(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn unfinished_hellos_are_bounded() {
    raise_descriptors();
    let routes = ["{ sni: www.example.com, pool: www }", "{ pool: other }"];
    let edge = Edge::start(&["preread: { timeout: 5m }"], &routes, &["www", "other"]);
    meanwhile(&edge, || ());
    edge.pointsman.wait_idle();
    let before = (edge.pointsman.usage_at_rest(), edge.pointsman.resident());

    let ((silent, first, served), most) = most_resident(&edge, || {
        let ((silent, stalled), served) = meanwhile(&edge, || {
            let silent: Vec<_> = (0..SILENT).map(|_| edge.connect()).collect();
            (silent, stall(&edge))
        });
        (silent, expect_oldest_closed(&edge, stalled, 0.0), served)
    });
    assert!(silent.iter().all(|stream| !stream.is_hung_up()), "the silent cost too little to go");
    let grown = most - before.1;
    eprintln!("{} KiB more resident, {first} closed", grown / 1024);
    assert!(grown < TOTAL + BESIDE, "{grown}");
    expect_soon(served);
    drop(silent);
    edge.pointsman.wait_idle();

    // Nothing of it is left: the same again.
    let stalled = stall(&edge);
    let second = expect_oldest_closed(&edge, stalled, first as f64);
    assert!(first.abs_diff(second) <= first / 10, "{first}, then {second}");
    edge.pointsman.wait_idle();
    wait_until("descriptors to return", || edge.pointsman.usage().sockets <= before.0.sockets);
    assert_eq!(edge.ask(&Hello::to("www.example.com").bytes()).as_deref(), Some("www"));
    edge.expect_unhurt();
}

/// The oldest hello goes, whichever worker has it: a newcomer whose hello takes two segments is
/// served, and the clients that hold the rest of the memory make room for it.
#[test]
fn a_newcomer_is_served_whoever_has_the_oldest() {
    let limits = "preread: { timeout: 5m, max_bytes: 8KiB, total_bytes: 64KiB }";
    let routes = ["{ sni: www.example.com, pool: www }"];
    let edge = Edge::start(&[limits], &routes, &["www"]);
    let long = Hello::to("www.example.com").padded_to(8000).bytes();
    let honest = Hello::to("www.example.com").post_quantum().bytes();
    let (first, rest) = honest.split_at(1000);
    for round in 0..12 {
        // Eight of these just fit.
        let mut stalled: Vec<_> = (0..8).map(|_| edge.connect()).collect();
        stalled.iter_mut().for_each(|stream| stream.write(&long[..7200]));
        edge.pointsman.wait_received();
        let answers = edge.ask_all(&[vec![first.to_vec(), rest.to_vec()]]);
        assert_eq!(answers, [Some("www".to_owned())], "round {round}");
        wait_until("the oldest to go", || stalled.iter().any(Stream::is_broken));
        drop(stalled);
        edge.pointsman.wait_idle();
    }
}

/// A client that is turned away lingers without its hello.
#[test]
fn the_rejected_hold_no_hello() {
    const CLIENTS: usize = 1000;
    raise_descriptors();
    let routes = ["{ sni: www.example.com, action: reject }", "{ pool: other }"];
    let edge = Edge::start(&["preread: { total_bytes: 1MiB }"], &routes, &["other"]);
    let long = Hello::to("www.example.com").padded_to(SENT).bytes();
    let before = edge.pointsman.resident();
    let (clients, most) = most_resident(&edge, || {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut stream = edge.connect();
                stream.write(&long);
                stream
            })
            .collect();
        edge.pointsman.wait_received();
        clients
    });
    // All their hellos together have more than 58 MiB.
    assert!(most - before < BESIDE, "{}", most - before);
    drop(clients);
    edge.expect_closed("rejected", CLIENTS);
}

fn expect_soon(mut served: Vec<Duration>) {
    served.sort_unstable();
    let median = served[served.len() / 2];
    assert!(median < SOON, "{median:?}");
}
