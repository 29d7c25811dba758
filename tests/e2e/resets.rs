//! RST: it is passed on, after what was received before it.

use std::time::{Duration, Instant};

use crate::harness::{Pointsman, Session, Side, Stream, expect_record, wait_until};

/// Within a second by contract; a busy machine gets another two.
const SOON: Duration = Duration::from_secs(3);

/// Sends so much, and waits until the balancer's kernel has all of it.
fn send_acknowledged(stream: &mut Stream, bytes: u64) {
    stream.send(bytes);
    wait_until("everything to be acknowledged", || stream.unacknowledged() == 0);
}

fn expect_reset_soon(mut other: Stream, since: Instant, pointsman: &Pointsman, side: Side) {
    other.expect_reset();
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    // Who sees it finds it counted.
    assert_eq!(pointsman.metrics().closed("edge", &side.causes("reset")), 1.0);
    drop(other);
    expect_record(pointsman, &side.causes("reset"));
}

#[test]
fn in_the_middle_of_a_stream() {
    for side in Side::BOTH {
        for bytes in [1, 100_000, 1_000_000] {
            let (mut resetting, mut other, pointsman) = Session::open("").ends(side);
            send_acknowledged(&mut resetting, bytes);
            let since = Instant::now();
            resetting.reset();
            other.receive(bytes);
            expect_reset_soon(other, since, &pointsman, side);
        }
    }
}

#[test]
fn after_the_last_byte_was_read() {
    for side in Side::BOTH {
        let (mut resetting, mut other, pointsman) = Session::open("").ends(side);
        resetting.send(5000);
        other.receive(5000);
        other.send(3000);
        resetting.receive(3000);
        let since = Instant::now();
        resetting.reset();
        expect_reset_soon(other, since, &pointsman, side);
    }
}

#[test]
fn before_the_first_byte() {
    for side in Side::BOTH {
        let (resetting, other, pointsman) = Session::open("").ends(side);
        let since = Instant::now();
        resetting.reset();
        expect_reset_soon(other, since, &pointsman, side);
    }
}

/// Nothing is read from the side that resets, since the other does not read: only the kernel's
/// news of the reset tells. What had been taken before is delivered if the other wakes up.
#[test]
fn while_paused_by_a_reader_that_wakes_up() {
    for side in Side::BOTH {
        let (mut resetting, mut other, pointsman) = Session::open("").ends(side);
        let sent = resetting.send_until_stalled(Duration::from_millis(200));
        let taken = sent - resetting.unacknowledged();
        let since = Instant::now();
        resetting.reset();
        // Not a byte less than what was taken; what the kernel still pushed out may come as well.
        let mut received = 0;
        while received < taken {
            let step = (taken - received).min(100_000);
            other.receive(step);
            received += step;
        }
        let error = other.receive_all().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        drop(other);
        expect_record(&pointsman, &side.causes("reset"));
    }
}

/// The same with a reader that never reads: it learns of the reset all the same.
#[test]
fn while_paused_by_a_reader_that_sleeps_on() {
    for side in Side::BOTH {
        let (mut resetting, other, pointsman) = Session::open("").ends(side);
        resetting.send_until_stalled(Duration::from_millis(200));
        let since = Instant::now();
        resetting.reset();
        wait_until("the reset to arrive", || other.is_broken());
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        drop(other);
        expect_record(&pointsman, &side.causes("reset"));
    }
}

/// Both directions are stuck when one side resets.
#[test]
fn while_both_directions_are_paused() {
    for side in Side::BOTH {
        let (mut resetting, mut other, pointsman) = Session::open("").ends(side);
        resetting.send_until_stalled(Duration::from_millis(200));
        other.send_until_stalled(Duration::from_millis(200));
        let since = Instant::now();
        resetting.reset();
        wait_until("the reset to arrive", || other.is_broken());
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        drop(other);
        expect_record(&pointsman, &side.causes("reset"));
    }
}

#[test]
fn after_its_own_fin() {
    for side in Side::BOTH {
        let (mut resetting, mut other, pointsman) = Session::open("").ends(side);
        resetting.send(100);
        resetting.finish();
        other.receive(100);
        other.expect_end();
        let since = Instant::now();
        resetting.reset();
        wait_until("the reset to arrive", || other.is_broken());
        // Having read FIN, this end reads no error; writing fails.
        assert!(other.try_send(1).is_err());
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        drop(other);
        expect_record(&pointsman, &side.causes("reset"));
    }
}

#[test]
fn after_the_fin_of_the_other() {
    for side in Side::BOTH {
        let (mut resetting, mut other, pointsman) = Session::open("").ends(side);
        other.finish();
        resetting.expect_end();
        send_acknowledged(&mut resetting, 1000);
        let since = Instant::now();
        resetting.reset();
        other.receive(1000);
        expect_reset_soon(other, since, &pointsman, side);
    }
}

/// Its own FIN came, then the data towards it got stuck, then it reset.
#[test]
fn after_its_own_fin_while_it_does_not_read() {
    for side in Side::BOTH {
        let (resetting, mut other, pointsman) = Session::open("").ends(side);
        resetting.finish();
        other.expect_end();
        other.send_until_stalled(Duration::from_millis(200));
        let since = Instant::now();
        resetting.reset();
        wait_until("the reset to arrive", || other.is_broken());
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        drop(other);
        expect_record(&pointsman, &side.causes("reset"));
    }
}

/// The receiving side resets a bulk transfer: the sender must not go on into the void.
#[test]
fn by_the_receiver_of_a_bulk_transfer() {
    for side in Side::BOTH {
        let (mut resetting, mut source, pointsman) = Session::open("").ends(side);
        let error = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                loop {
                    if let Err(error) = source.try_send(u64::MAX) {
                        return (error.kind(), Instant::now());
                    }
                }
            });
            resetting.receive(20_000_000);
            let since = Instant::now();
            resetting.reset();
            let (error, failed) = sending.join().unwrap();
            assert!(failed - since < SOON, "{:?}", failed - since);
            error
        });
        assert_eq!(error, std::io::ErrorKind::ConnectionReset);
        drop(source);
        expect_record(&pointsman, &side.causes("reset"));
    }
}

/// A peer that closes with unread bytes resets by that; both sides may do it at once.
#[test]
fn both_at_once_is_one_ending() {
    for _ in 0..20 {
        let mut session = Session::open("");
        session.client.send(1000);
        session.server.send(1000);
        session.client.reset();
        session.server.reset();
        let records = session.pointsman.access_log(1);
        let termination = records[0].text("termination");
        assert!(matches!(termination, "client_reset" | "backend_reset"), "{termination}");
        session.pointsman.wait_idle();
        assert_eq!(session.pointsman.access_log(1).len(), 1);
    }
}
