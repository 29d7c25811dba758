//! One of three backends stalls: what the simulator says of it, with real sockets. All times are ten
//! times the simulator's, 2 ms and 300 ms for 0.2 ms and 30 ms: else it would be the cost of a
//! connection on this machine that is measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::harness::{Backend, Pointsman, Stream, one_listener, pass};

const SERVICE: Duration = Duration::from_millis(2);
const STALL: Duration = Duration::from_millis(300);
/// Closed-loop clients.
const CLIENTS: usize = 4;
/// How long each policy is watched.
const WATCH: Duration = Duration::from_secs(3);

/// Answers each connection, after a while.
fn answering(after: Duration) -> Backend {
    Backend::serving(move |mut stream| {
        stream.receive(1);
        pass(after);
        stream.send(1);
        stream.expect_end();
    })
}

/// What clients saw, sorted.
struct Seen(Vec<Duration>);

impl Seen {
    fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() * percent).div_ceil(100) - 1]
    }
}

/// Each client connects, asks, has its answer, closes, and connects again.
fn watch(policy: &str, backends: &[&str]) -> Seen {
    let yaml = one_listener("", backends, &format!("balance: {policy}"));
    let pointsman = Pointsman::start(&yaml);
    let edge: Arc<str> = pointsman.address("edge").into();
    let end = Instant::now() + WATCH;
    let client = || {
        let edge = edge.clone();
        std::thread::spawn(move || {
            let mut latencies = Vec::new();
            while Instant::now() < end {
                let begun = Instant::now();
                let mut stream = Stream::connect(&edge);
                stream.send(1);
                stream.receive(1);
                latencies.push(begun.elapsed());
            }
            latencies
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(|_| client()).collect();
    let mut seen: Vec<_> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    seen.sort_unstable();
    pointsman.wait_idle();
    Seen(seen)
}

/// In the simulator they complete ten times as much, at a p95 fifty times lower. The bounds here
/// leave room for a busy machine.
#[test]
fn who_looks_at_load_leaves_it_alone() {
    let backends = [SERVICE, SERVICE + STALL, SERVICE].map(answering);
    let addresses = backends.each_ref().map(Backend::address);
    let list = addresses.each_ref().map(String::as_str);
    let turns = watch("round_robin", &list);
    // A third of the requests, at least one in twenty.
    assert!(turns.percentile(95) >= STALL);
    for policy in ["least_conn", "p2c", "peak_ewma"] {
        let seen = watch(policy, &list);
        let (count, base) = (seen.0.len(), turns.0.len());
        let latencies =
            [50, 95].map(|percent| (seen.percentile(percent), turns.percentile(percent)));
        assert!(count >= 5 * base, "{policy}: {count} for {base}");
        let [(p50, base_p50), (p95, base_p95)] = latencies;
        assert!(base_p95 >= 10 * p95, "{policy}: p95 {p95:?} for {base_p95:?}");
        assert!(p50 <= 2 * base_p50, "{policy}: p50 {p50:?} for {base_p50:?}");
    }
}
