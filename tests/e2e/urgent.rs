//! Urgent data: nobody is promised the urgent byte itself, everybody all the others.

use rustix::process::Signal;

use crate::harness::{Session, Side, expect_record};

/// Enough for a direction to be spliced, where reads stop at the urgent byte.
const BULK: u64 = 40_000_000;
const TAIL: u64 = 4000;

/// What follows an urgent byte: more or nothing, and then the end.
fn after_bulk(side: Side, stopped: bool, finish: bool) {
    let session = Session::open("");
    let pipes = session.pointsman.usage().pipes;
    let (mut sender, mut receiver, pointsman) = session.ends(side);
    std::thread::scope(|scope| {
        scope.spawn(|| receiver.receive(BULK));
        sender.send(BULK);
    });
    assert!(pointsman.usage().pipes > pipes, "it was not spliced");
    if stopped {
        // All of it is there when it looks.
        pointsman.signal(Signal::STOP);
    }
    assert_eq!(sender.socket().send_out_of_band(b"!").unwrap(), 1);
    sender.send(TAIL);
    if finish {
        sender.finish();
    }
    pointsman.signal(Signal::CONT);
    receiver.receive(TAIL);
    if !finish {
        // The urgent byte is no obstacle to what comes later either.
        sender.send(BULK / 100);
        receiver.receive(BULK / 100);
        sender.finish();
    }
    receiver.expect_end();
    receiver.send(TAIL);
    sender.receive(TAIL);
    drop(receiver);
    sender.expect_end();
    drop(sender);
    let record = expect_record(&pointsman, &side.causes("closed"));
    let (there, back) = match side {
        Side::Client => ("bytes_in", "bytes_out"),
        Side::Backend => ("bytes_out", "bytes_in"),
    };
    let ordinary = BULK + TAIL + if finish { 0 } else { BULK / 100 };
    assert_eq!(record.number(there), ordinary as f64);
    assert_eq!(record.number(back), TAIL as f64);
    pointsman.stop();
}

#[test]
fn bytes_and_fin_behind_an_urgent_byte_arrive() {
    for side in Side::BOTH {
        after_bulk(side, false, true);
        after_bulk(side, true, true);
    }
}

#[test]
fn bytes_behind_an_urgent_byte_arrive_without_fin() {
    for side in Side::BOTH {
        after_bulk(side, false, false);
        after_bulk(side, true, false);
    }
}

/// In the middle of bulk, again and again. Each is passed before the next is sent: where one
/// overtakes another, the kernel makes the older an ordinary byte.
#[test]
fn urgent_bytes_within_bulk_cost_nothing() {
    for side in Side::BOTH {
        let (mut sender, mut receiver, pointsman) = Session::open("").ends(side);
        for _ in 0..10 {
            std::thread::scope(|scope| {
                scope.spawn(|| receiver.receive(2_000_000));
                sender.send(1_000_000);
                assert_eq!(sender.socket().send_out_of_band(b"!").unwrap(), 1);
                sender.send(1_000_000);
            });
        }
        sender.finish();
        receiver.expect_end();
        drop((sender, receiver));
        pointsman.stop();
    }
}
