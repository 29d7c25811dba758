//! Much data: every byte, in order, in both directions at once, through pipes and without.

use std::time::{Duration, Instant};

use crate::harness::{
    Backend, Metrics, Pointsman, Session, Side, Stream, expect_record, fresh_directory,
    one_listener, pass, wait_until,
};

const BULK: u64 = 2_000_000_000;

#[test]
fn both_directions_at_once_and_much_after_the_first_fin() {
    let Session { mut client, mut server, pointsman, backend: _backend } = Session::open("");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.exchange(BULK, BULK);
            server.expect_end();
            server.send(200_000_000);
            server.finish();
        });
        client.exchange(BULK, BULK);
        client.finish();
        client.receive(200_000_000);
        client.expect_end();
    });
    eprintln!("2 GB each way and 200 MB after: {:?}", begun.elapsed());
    let record = expect_record(&pointsman, "client_closed");
    assert_eq!(record.number("bytes_in"), BULK as f64);
    assert_eq!(record.number("bytes_out"), (BULK + 200_000_000) as f64);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Segments of all sizes run a pipe out of its slots long before it is full of bytes.
#[test]
fn small_writes_of_all_sizes() {
    for side in Side::BOTH {
        for late in [Duration::ZERO, Duration::from_millis(200)] {
            let (mut source, mut reader, pointsman) = Session::open("").ends(side);
            let mut rng = fastrand::Rng::with_seed(12);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut left = 20_000_000;
                    while left > 0 {
                        let most = rng.u64(1..=3000).min(left);
                        left -= source.try_send(most).expect("send") as u64;
                    }
                    source.finish();
                });
                pass(late); // the matter of the test: what waits is taken by splicing
                reader.receive(20_000_000);
                reader.expect_end();
            });
            drop(reader);
            let record = expect_record(&pointsman, &side.causes("closed"));
            assert_eq!(record.number("bytes_in") + record.number("bytes_out"), 2e7);
        }
    }
}

/// Bulk and small traffic in turns, so that a direction changes between splicing and copying.
#[test]
fn bursts_and_whispers_in_turns() {
    for side in Side::BOTH {
        let (mut source, mut reader, pointsman) = Session::open("").ends(side);
        let mut rng = fastrand::Rng::with_seed(1212);
        let mut total = 0;
        for _ in 0..60 {
            let burst = rng.u64(1..3_000_000);
            std::thread::scope(|scope| {
                scope.spawn(|| source.send(burst));
                reader.receive(burst);
            });
            let whispers = rng.u64(0..50);
            for _ in 0..whispers {
                source.send(1);
                reader.receive(1);
            }
            total += burst + whispers;
        }
        drop((source, reader));
        let record = pointsman.access_log(1).remove(0);
        assert_eq!(record.number("bytes_in") + record.number("bytes_out"), total as f64);
    }
}

/// Each stalled splice holds a pipe, and a worker has 256: beyond them it copies. Over unix sockets,
/// whose buffers are small: with TCP the kernel's memory would run short before the pipes do.
#[test]
fn more_stalled_transfers_than_pipes() {
    const SESSIONS: usize = 290;
    const EACH: u64 = 3_000_000;
    let directory = fresh_directory();
    let mut backend = Backend::listening(&format!("unix:{}/backend.sock", directory.display()));
    backend.serve(
        |mut stream| {
            while stream.sent() < EACH && stream.try_send(EACH - stream.sent()).is_ok() {}
        },
    );
    let edge = format!("unix:{}/front.sock", directory.display());
    let yaml = one_listener("", &[&backend.address()], "").replace("127.0.0.1:0", &edge);
    let pointsman = Pointsman::start(&format!("workers: 1\n{yaml}"));
    let others = pointsman.usage().pipes;
    let mut clients: Vec<_> = (0..SESSIONS).map(|_| Stream::connect(&edge)).collect();
    wait_until("all transfers to stall", || {
        let before = pointsman.metrics();
        pass(Duration::from_millis(100));
        let after = pointsman.metrics();
        let bytes = |metrics: &Metrics| metrics.sum("pointsman_bytes_total", ("listener", "edge"));
        after.active("edge") == SESSIONS as f64 && bytes(&before) == bytes(&after)
    });
    assert_eq!(pointsman.usage().pipes, 2 * 256 + others);
    let resident = pointsman.resident();
    assert!(resident < 20 * 1024 * 1024 + SESSIONS as u64 * 64 * 1024, "{resident}");
    std::thread::scope(|scope| {
        for part in clients.chunks_mut(SESSIONS / 8) {
            scope.spawn(move || {
                for client in part {
                    client.receive(EACH);
                    client.expect_end();
                }
            });
        }
    });
    drop(clients);
    let metrics = pointsman.wait_idle();
    assert_eq!(metrics.closed("edge", "backend_closed"), SESSIONS as f64);
    assert_eq!(pointsman.usage().pipes, 2 * 32 + others, "of those that are kept");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_server_may_speak_first() {
    let backend = Backend::manual();
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], ""));
    let mut client = pointsman.connect("edge");
    let mut server = backend.accept();
    server.write(b"220 hello\r\n");
    assert_eq!(client.read(11), b"220 hello\r\n");
    client.write(b"QUIT\r\n");
    assert_eq!(server.read(6), b"QUIT\r\n");
    drop((server, client));
    let record = pointsman.access_log(1).remove(0);
    assert!(record.number("first_byte_ms") <= record.number("duration_ms"));
}

/// Counters move with the bytes, not at the end of the session.
#[test]
fn counters_move_while_a_session_runs() {
    let mut session = Session::open("");
    let (edge, address) = ("edge", session.backend.address());
    for round in 1..=5 {
        session.client.send(1_000_000);
        session.server.receive(1_000_000);
        session.server.send(3000);
        session.client.receive(3000);
        // A client may have its bytes a moment before the worker has counted them.
        wait_until("the counters to be where the bytes are", || {
            let metrics = session.pointsman.metrics();
            assert_eq!(metrics.active(edge), 1.0);
            [("in", 1_000_000.0), ("out", 3000.0)].into_iter().all(|(direction, bytes)| {
                let listener = [("listener", edge), ("direction", direction)];
                let backend = [("pool", "pool"), ("backend", &*address), ("direction", direction)];
                let bytes = bytes * f64::from(round);
                metrics.value("pointsman_bytes_total", &listener) == bytes
                    && metrics.value("pointsman_backend_bytes_total", &backend) == bytes
            })
        });
    }
}
