//! Much of everything at once, scraped all the time; afterwards nothing is left of it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::harness::{Backend, Pointsman, Stream, Usage, pass, wait_until};

const SHORT: usize = 50_000;
const SHORT_CLIENTS: usize = 4;
const LONG: usize = 200;
const BULK: u64 = 20_000_000_000;
const BULK_SESSIONS: u64 = 20;
const SHORT_BYTES: u64 = 300;

/// One of the short sessions; how it ends depends on its number.
fn short(address: &str, number: usize) {
    let mut stream = Stream::connect(address);
    stream.send(SHORT_BYTES);
    match number % 4 {
        // It does not wait for its answer: RST, or FIN if it was quick enough.
        0 => {}
        1 => {
            stream.receive(SHORT_BYTES);
            stream.reset();
        }
        2 => {
            stream.finish();
            stream.receive(SHORT_BYTES);
            stream.expect_end();
        }
        _ => stream.receive(SHORT_BYTES),
    }
}

fn all_short(address: &str) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..SHORT_CLIENTS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= SHORT {
                        return;
                    }
                    short(address, number);
                }
            });
        }
    });
}

/// Long sessions, each with a byte to and fro now and then, until `over`.
fn all_long(address: &str, over: &AtomicBool) {
    let mut streams: Vec<_> = (0..LONG).map(|_| Stream::connect(address)).collect();
    while !over.load(Relaxed) {
        for stream in &mut streams {
            stream.send(1);
            stream.receive(1);
        }
        pass(Duration::from_millis(20));
    }
    for (number, stream) in streams.into_iter().enumerate() {
        if number % 2 == 0 {
            stream.reset();
        }
    }
}

fn all_bulk(up: &str, down: &str) {
    for number in 0..BULK_SESSIONS {
        if number % 2 == 0 {
            let mut stream = Stream::connect(up);
            stream.send(BULK / BULK_SESSIONS);
            stream.finish();
            let expected = format!("{}\n", BULK / BULK_SESSIONS);
            assert_eq!(stream.read_to_end(), expected.as_bytes());
        } else {
            let mut stream = Stream::connect(down);
            stream.receive(BULK / BULK_SESSIONS);
            stream.expect_end();
        }
    }
}

/// The work; the number of scrapes meanwhile, each of which has to add up.
fn work(pointsman: &Pointsman) -> usize {
    let address = |name| pointsman.address(name);
    let (echo, sink, source) = (address("echo"), address("sink"), address("source"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scraping = scope.spawn(|| {
            let mut scrapes = 0;
            while !over.load(Relaxed) {
                pointsman.metrics();
                scrapes += 1;
                pass(Duration::from_millis(5));
            }
            scrapes
        });
        scope.spawn(|| all_long(&echo, &over));
        let bulk = scope.spawn(|| all_bulk(&sink, &source));
        let shorts = scope.spawn(|| all_short(&echo));
        let done = [bulk.join(), shorts.join()];
        over.store(true, Relaxed);
        assert!(done.iter().all(Result::is_ok), "its panic is above");
        scraping.join().expect("a scrape that does not add up is above")
    })
}

#[test]
fn nothing_is_left_of_much() {
    let (echo, sink) = (Backend::echo(), Backend::sink());
    let source = Backend::source(BULK / BULK_SESSIONS);
    let entry = |name: &str| format!("  {name}: {{ bind: \"127.0.0.1:0\", pool: {name} }}\n");
    let pool = |name: &str, backend: &Backend| {
        format!("  {name}: {{ backends: [\"{}\"] }}\n", backend.address())
    };
    let pointsman = Pointsman::start(&format!(
        "listeners:\n{}{}{}pools:\n{}{}{}",
        entry("echo"),
        entry("sink"),
        entry("source"),
        pool("echo", &echo),
        pool("sink", &sink),
        pool("source", &source)
    ));
    for number in 0..100 {
        short(&pointsman.address("echo"), number);
    }
    pointsman.wait_idle();
    let before = pointsman.usage_at_rest();
    let begun = Instant::now();
    let scrapes = work(&pointsman);
    let took = begun.elapsed();
    let metrics = pointsman.wait_idle();
    let resident = pointsman.resident();
    eprintln!("{took:?}, {scrapes} scrapes, {} KiB resident at the end", resident / 1024);

    let total = |listener| metrics.value("pointsman_connections_total", &[("listener", listener)]);
    assert_eq!(total("echo"), (100 + SHORT + LONG) as f64);
    assert_eq!(total("sink") + total("source"), BULK_SESSIONS as f64);
    let bytes = |listener, direction| {
        let labels = [("listener", listener), ("direction", direction)];
        metrics.value("pointsman_bytes_total", &labels)
    };
    assert_eq!(bytes("sink", "in") + bytes("source", "out"), BULK as f64);
    for termination in ["error", "connect_failed", "no_backend", "overload", "shutdown"] {
        assert_eq!(
            metrics.sum("pointsman_connections_closed_total", ("termination", termination)),
            0.0
        );
    }
    assert!(scrapes > 20, "{scrapes}");
    wait_until("descriptors and threads to return", || {
        let Usage { sockets, others, threads, .. } = pointsman.usage();
        // A health check may be under way, in this look or in the first one.
        sockets <= before.sockets + 3 && (others, threads) == (before.others, before.threads)
    });
    assert!(pointsman.usage().pipes <= before.pipes.max(2 * 2 * 32), "{:?}", pointsman.usage());
    assert!(resident < 64 * 1024 * 1024, "{resident}");
    let dropped = metrics.value("pointsman_access_log_dropped_total", &[]);
    let records = pointsman.stop();
    assert_eq!(records.len() as f64 + dropped, (100 + SHORT + LONG) as f64 + BULK_SESSIONS as f64);
}
