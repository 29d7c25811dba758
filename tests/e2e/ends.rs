//! FIN: it follows the data, in each direction by itself.

use std::time::Duration;

use crate::harness::{Session, Side, expect_record, pass};

const MUCH: u64 = 200_000_000;

#[test]
fn the_answer_may_start_long_after_fin() {
    for side in Side::BOTH {
        let (mut asking, mut answering, pointsman) = Session::open("").ends(side);
        asking.send(100);
        asking.finish();
        answering.receive(100);
        answering.expect_end();
        pass(Duration::from_millis(300)); // the matter of the test: it starts later
        std::thread::scope(|scope| {
            scope.spawn(|| {
                answering.send(MUCH);
                answering.finish();
            });
            asking.receive(MUCH);
            asking.expect_end();
        });
        let record = expect_record(&pointsman, &side.causes("closed"));
        let (asked, answered) = match side {
            Side::Client => ("bytes_in", "bytes_out"),
            Side::Backend => ("bytes_out", "bytes_in"),
        };
        assert_eq!(record.number(asked), 100.0);
        assert_eq!(record.number(answered), MUCH as f64);
    }
}

/// The source closes for good while all it sent is still under way to a reader that sleeps.
#[test]
fn what_is_queued_towards_a_slow_reader_survives_the_close() {
    for side in Side::BOTH {
        for bytes in [Some(1), Some(10_000), Some(300_000), None] {
            let (mut source, mut reader, pointsman) = Session::open("").ends(side);
            let sent = match bytes {
                Some(bytes) => {
                    source.send(bytes);
                    bytes
                }
                None => source.send_until_stalled(Duration::from_millis(200)),
            };
            drop(source);
            pass(Duration::from_millis(50)); // the matter of the test: the reader is slow
            for _ in 0..sent.min(100) {
                reader.receive(1);
            }
            reader.receive(sent - sent.min(100));
            reader.expect_end();
            drop(reader);
            let record = expect_record(&pointsman, &side.causes("closed"));
            assert_eq!(record.number("bytes_in") + record.number("bytes_out"), sent as f64);
        }
    }
}

/// Both close at once, each with data towards the other under way.
#[test]
fn both_may_finish_before_either_reads() {
    for bytes in [1000, 1_000_000] {
        let mut session = Session::open("");
        session.client.send(bytes);
        session.server.send(bytes);
        session.client.finish();
        session.server.finish();
        session.server.receive(bytes);
        session.server.expect_end();
        session.client.receive(bytes);
        session.client.expect_end();
        let records = session.pointsman.access_log(1);
        let termination = records[0].text("termination");
        assert!(matches!(termination, "client_closed" | "backend_closed"), "{termination}");
        assert_eq!(records[0].number("bytes_in"), bytes as f64);
        assert_eq!(records[0].number("bytes_out"), bytes as f64);
    }
}

#[test]
fn a_client_that_says_nothing_and_leaves_is_passed_on() {
    for side in Side::BOTH {
        let (leaving, mut other, pointsman) = Session::open("").ends(side);
        drop(leaving);
        other.expect_end();
        drop(other);
        let record = expect_record(&pointsman, &side.causes("closed"));
        assert_eq!(record.number("bytes_in") + record.number("bytes_out"), 0.0);
    }
}
