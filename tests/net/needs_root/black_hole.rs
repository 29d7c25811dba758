//! A backend that drops packets is what costs most: nothing says that it is gone. With hedged
//! connects it costs a few milliseconds instead of a connect timeout. The README has the figures.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use crate::harness::{Backend, PATIENCE, Record, Stream, one_listener, pass, wait_until};
use crate::namespace::Network;

/// Connections a second, whatever becomes of those before them.
const RATE: u32 = 200;
/// The time of arrivals that is judged, from the beginning of the black hole.
const JUDGED: Duration = Duration::from_secs(2);
const HOLE: &str = "10.2.0.4";

/// The three backends' host is one; of the third address packets are dropped on the way.
fn network() -> (Network, Vec<Backend>) {
    let network = Network::new();
    let addresses = ["10.2.0.2", "10.2.0.3", HOLE];
    for address in &addresses[1..] {
        network.backend.ip(&format!("address add {address}/24 dev eth0"));
    }
    let backends = network.backend.within(|| {
        addresses.map(|address| {
            let mut backend = Backend::listening(&format!("{address}:0"));
            backend.serve(|mut stream| {
                let bytes = stream.read_to_end();
                stream.write(&bytes);
            });
            backend
        })
    });
    (network, backends.into())
}

fn request(edge: &str) -> io::Result<()> {
    let stream = Stream::try_connect(edge)?;
    let mut socket = &**stream.socket();
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(b"hello")?;
    socket.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)?;
    if answer == b"hello" { Ok(()) } else { Err(io::Error::other(format!("{answer:?}"))) }
}

/// What arrivals met during the black hole.
struct Seen {
    /// Connect times of the records in milliseconds, sorted.
    connect_ms: Vec<f64>,
    failed: Vec<String>,
    ejected_after: Duration,
    log: String,
    records: Vec<Record>,
}

impl Seen {
    fn percentile(&self, percent: usize) -> f64 {
        self.connect_ms[(self.connect_ms.len() * percent).div_ceil(100) - 1]
    }

    fn tell(&self, name: &str) {
        let (p50, p99, most) = (self.percentile(50), self.percentile(99), self.percentile(100));
        eprintln!(
            "{name}: {} connections, {} failed, connect p50 {p50:.1} p99 {p99:.1} max {most:.1} ms, \
             ejected after {:.0?}",
            self.connect_ms.len(),
            self.failed.len(),
            self.ejected_after,
        );
    }
}

/// Arrivals at a constant rate; after a second, when no request is under way, packets to one of
/// three backends are dropped.
fn black_hole(connect: &str) -> Seen {
    let (network, backends) = network();
    let addresses: Vec<_> = backends.iter().map(Backend::address).collect();
    let list: Vec<_> = addresses.iter().map(String::as_str).collect();
    let settings = format!("balance: round_robin, connect: {{ {connect} }}");
    let yaml = one_listener("", &list, &settings).replace("127.0.0.1:0", "10.1.0.1:0");
    let pointsman = network.middle.start(&yaml);
    let edge = pointsman.address("edge");
    let (gate, stop, failed) = (RwLock::new(()), AtomicBool::new(false), Mutex::new(Vec::new()));
    let (mut judged, mut ejected_after) = (0, Duration::ZERO);
    std::thread::scope(|scope| {
        let arrivals = || {
            let begun = Instant::now();
            for number in 0.. {
                pass((Duration::from_secs(1) * number / RATE).saturating_sub(begun.elapsed()));
                if stop.load(SeqCst) {
                    return;
                }
                scope.spawn(|| {
                    let _under_way = gate.read().unwrap();
                    if let Err(error) = request(&edge) {
                        failed.lock().unwrap().push(error.to_string());
                    }
                });
            }
        };
        // Whoever opens sockets there has to be there.
        let client = &network.client;
        scope.spawn(move || client.within(arrivals));
        pass(Duration::from_secs(1));
        let still = gate.write().unwrap();
        judged = pointsman.access_log(RATE as usize / 2).len();
        let hole = format!("neigh replace {HOLE} lladdr 02:00:00:00:00:66 dev right nud permanent");
        network.middle.ip(&hole);
        let since = Instant::now();
        drop(still);
        wait_until("the black hole to be ejected", || pointsman.state(&addresses[2]) == "ejected");
        ejected_after = since.elapsed();
        pass(JUDGED.saturating_sub(since.elapsed()));
        stop.store(true, SeqCst);
    });
    pointsman.wait_idle();
    let log = pointsman.log();
    let records = pointsman.stop().split_off(judged);
    let mut connect_ms: Vec<_> = records.iter().map(|record| record.number("connect_ms")).collect();
    connect_ms.sort_by(f64::total_cmp);
    Seen { connect_ms, failed: failed.into_inner().unwrap(), ejected_after, log, records }
}

#[test]
fn hedging_turns_a_timeout_into_milliseconds() {
    let without = black_hole("hedge_after: off");
    without.tell("without hedging");
    let with = black_hole("hedge_after: auto");
    with.tell("with hedging");
    for seen in [&without, &with] {
        assert!(seen.failed.is_empty(), "{:?}", seen.failed);
        assert!(seen.connect_ms.len() >= RATE as usize, "{}", seen.connect_ms.len());
        let ended = |record: &Record| record.text("termination") == "client_closed";
        assert!(seen.records.iter().all(ended));
    }
    assert!((1000.0..1500.0).contains(&without.percentile(99)), "{}", without.percentile(99));
    assert!(without.log.contains("failures=connect in_a_row=1"), "{}", without.log);
    assert!(with.percentile(99) <= 50.0, "{}", with.percentile(99));
    assert!(with.log.contains("failures=late in_a_row=1"), "{}", with.log);
    assert!(with.ejected_after < Duration::from_millis(900), "{:?}", with.ejected_after);
}
