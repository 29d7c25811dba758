//! After any mixture of endings everything is as it was before.

use std::io::Read;
use std::time::Duration;

use crate::harness::{Backend, Pointsman, Stream, Usage, pass, wait_until};

/// Ways to end a session, drawn by seed. Numbers come first from the client, as one byte, so
/// that its backend does its part.
const WAYS: u8 = 10;

/// `timeouts.half_closed` of the listener.
const HALF_CLOSED: Duration = Duration::from_millis(200);

fn serve(mut stream: Stream) {
    // A client that resets while it is being connected leaves without a word.
    let mut way = [0];
    if (&**stream.socket()).read_exact(&mut way).is_err() {
        return;
    }
    match way[0] {
        // The client ends it: FIN or RST, with an answer or without.
        0 | 1 => drop(stream.receive_all()),
        2 => {
            let _all = stream.receive_all();
            stream.send(300_000);
        }
        // The backend does.
        3 => stream.send(1000),
        4 => stream.reset(),
        5 => {
            stream.finish();
            let _all = stream.receive_all();
        }
        // It stalls the client, and either of them gives up.
        6 => {
            stream.send_until_stalled(Duration::from_millis(30));
            stream.reset();
        }
        7 => while stream.try_send(u64::MAX).is_ok() {},
        // It is silent until the balancer ends it.
        8 => {
            let _end = stream.receive_all();
        }
        // Its client finishes and it does not, until the balancer has had enough.
        _ => {
            stream.expect_end();
            pass(HALF_CLOSED * 4);
        }
    }
}

fn connect_and_end(address: &str, way: u8) {
    let mut stream = Stream::connect(address);
    stream.write(&[way]);
    match way {
        0 => {
            stream.send(200_000);
            stream.finish();
            stream.expect_end();
        }
        1 => {
            stream.send(200_000);
            stream.reset();
        }
        2 => {
            stream.finish();
            stream.receive(300_000);
            stream.expect_end();
        }
        3 => {
            stream.receive(1000);
            stream.expect_end();
        }
        4 => drop(stream.receive_all()),
        5 => {
            stream.expect_end();
            stream.send(100_000);
        }
        6 => {
            wait_until("the reset", || stream.is_broken());
        }
        7 => {
            stream.receive(500_000);
            stream.reset();
        }
        9 => {
            stream.finish();
            stream.expect_end();
        }
        _ => stream.expect_end(),
    }
}

/// Runs so many sessions of each way, from a few threads, in an order drawn by `seed`.
fn mixture(pointsman: &Pointsman, each: usize, seed: u64) {
    // Only what must time out goes where it does so soon.
    let (edge, strict) = (pointsman.address("edge"), pointsman.address("strict"));
    let mut ways: Vec<u8> = (0..WAYS).flat_map(|way| std::iter::repeat_n(way, each)).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut ways);
    std::thread::scope(|scope| {
        for part in ways.chunks(ways.len() / 32 + 1) {
            let address = |way| if way < 8 { &edge } else { &strict };
            scope.spawn(move || part.iter().for_each(|way| connect_and_end(address(*way), *way)));
        }
    });
}

#[test]
fn everything_returns() {
    let backend = Backend::serving(serve);
    let refusing = Backend::refusing();
    let pointsman = Pointsman::start(&format!(
        "listeners:\n  edge: {{ bind: \"127.0.0.1:0\", pool: pool }}\n  \
         strict: {{ bind: \"127.0.0.1:0\", pool: pool, \
         timeouts: {{ idle: 300ms, half_closed: 200ms }} }}\n  \
         dead: {{ bind: \"127.0.0.1:0\", pool: dead }}\n\
         pools:\n  pool: {{ backends: [\"{}\"], health: off }}\n  \
         dead: {{ backends: [\"{}\"], health: off }}\n",
        backend.address(),
        refusing.address()
    ));
    // What is made at first use and kept is made by a first session of each kind.
    mixture(&pointsman, 2, 1);
    backend.wait_idle();
    pointsman.wait_idle();
    let before = pointsman.usage_at_rest();
    let mut resident = 0;
    for seed in 2..5 {
        eprintln!("seed {seed}");
        mixture(&pointsman, 20, seed);
        for _ in 0..20 {
            pointsman.connect("dead").expect_end();
        }
        let metrics = pointsman.wait_idle();
        wait_until("descriptors and threads to return", || {
            let Usage { sockets, others, threads, .. } = pointsman.usage();
            (sockets, others, threads) == (before.sockets, before.others, before.threads)
        });
        // Empty pipes are kept, 32 a worker.
        assert!(pointsman.usage().pipes <= before.pipes.max(2 * 2 * 32), "{:?}", pointsman.usage());
        for (listener, terminations) in [
            (
                "edge",
                ["client_closed", "backend_closed", "client_reset", "backend_reset"].as_slice(),
            ),
            ("strict", &["idle_timeout", "half_closed_timeout"]),
        ] {
            for termination in terminations {
                assert!(metrics.closed(listener, termination) >= 20.0, "{termination}");
            }
        }
        assert_eq!(metrics.closed("edge", "error"), 0.0);
        // The first round may still grow the heap.
        if seed == 2 {
            resident = pointsman.resident();
        }
    }
    let grown = pointsman.resident().saturating_sub(resident);
    assert!(grown < 4 * 1024 * 1024, "{grown} bytes more");
    let workers = pointsman.metrics().sum("pointsman_worker_connections_active", ("worker", "0"));
    assert_eq!(workers, 0.0);
    let records = pointsman.stop();
    assert_eq!(records.len(), 20 + 3 * (200 + 20));
}
