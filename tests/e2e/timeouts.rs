//! The ends that the balancer itself decides on: what they are called, when they come, and that
//! both sides see FIN.

use std::time::{Duration, Instant};

use crate::harness::{Session, Side, expect_record, pass, wait_until};

/// Both sides see FIN, not before `after` and not much later.
fn expect_close(session: Session, since: Instant, after: Duration, termination: &str) {
    let Session { mut client, mut server, pointsman, .. } = session;
    client.expect_end();
    let took = since.elapsed();
    assert!(took >= after && took < after + Duration::from_secs(3), "{took:?}");
    server.expect_end();
    drop((client, server));
    let record = expect_record(&pointsman, termination);
    assert!(record.number("duration_ms") >= after.as_secs_f64() * 1e3);
}

#[test]
fn idle() {
    let begun = Instant::now();
    let session = Session::open("timeouts: { idle: 300ms }");
    expect_close(session, begun, Duration::from_millis(300), "idle_timeout");
}

#[test]
fn a_byte_in_either_direction_is_not_idle() {
    let mut session = Session::open("timeouts: { idle: 1500ms }");
    for round in 0..12 {
        pass(Duration::from_millis(200));
        if round % 2 == 0 {
            session.client.send(1);
            session.server.receive(1);
        } else {
            session.server.send(1);
            session.client.receive(1);
        }
    }
    let since = Instant::now();
    expect_close(session, since, Duration::from_millis(1300), "idle_timeout");
}

#[test]
fn half_closed_takes_the_place_of_idle_when_shorter() {
    for side in Side::BOTH {
        let session = Session::open("timeouts: { idle: 10m, half_closed: 300ms }");
        let (mut finishing, mut other, pointsman) = session.ends(side);
        let since = Instant::now();
        finishing.finish();
        other.expect_end();
        finishing.expect_end();
        let took = since.elapsed();
        assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(3), "{took:?}");
        drop((finishing, other));
        expect_record(&pointsman, "half_closed_timeout");
    }
}

#[test]
fn half_closed_takes_the_place_of_idle_when_longer() {
    for side in Side::BOTH {
        let session = Session::open("timeouts: { idle: 400ms, half_closed: 10m }");
        let (finishing, mut other, pointsman) = session.ends(side);
        finishing.finish();
        other.expect_end();
        pass(Duration::from_millis(1000)); // the matter of the test: longer than idle
        other.send(10);
        other.finish();
        let mut finishing = finishing;
        finishing.receive(10);
        finishing.expect_end();
        expect_record(&pointsman, &side.causes("closed"));
    }
}

#[test]
fn half_closed_counts_from_the_last_byte() {
    let mut session = Session::open("timeouts: { idle: 10m, half_closed: 1500ms }");
    session.client.finish();
    for _ in 0..10 {
        pass(Duration::from_millis(250));
        session.server.send(1);
        session.client.receive(1);
    }
    let since = Instant::now();
    expect_close(session, since, Duration::from_millis(1200), "half_closed_timeout");
}

#[test]
fn lifetime_of_a_silent_session() {
    let begun = Instant::now();
    let session = Session::open("timeouts: { lifetime: 400ms }");
    expect_close(session, begun, Duration::from_millis(400), "lifetime");
}

#[test]
fn lifetime_counts_from_the_accept_whatever_passes() {
    let mut session = Session::open("timeouts: { lifetime: 2s, idle: 1s }");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) {
        pass(Duration::from_millis(100));
        session.client.send(10);
        session.server.receive(10);
    }
    expect_close(session, begun, Duration::from_millis(1500), "lifetime");
}

/// A side that is sending at the moment sees FIN as well. RST could destroy what it has not read.
#[test]
fn lifetime_ends_by_fin_for_one_who_sends() {
    for side in Side::BOTH {
        let session = Session::open("timeouts: { lifetime: 700ms }");
        let (mut sending, mut other, pointsman) = session.ends(side);
        other.send(5000);
        sending.receive(1);
        sending.send_until_stalled(Duration::from_millis(100));
        // The rest waits in the kernel, where an RST would destroy it.
        wait_until("the end of the lifetime", || sending.is_hung_up());
        sending.receive(4999);
        sending.expect_end();
        drop((sending, other));
        expect_record(&pointsman, "lifetime");
    }
}

#[test]
fn off_is_off() {
    let mut session = Session::open(
        "timeouts: { idle: off, half_closed: off, lifetime: off, keepalive: off, user_timeout: off }",
    );
    session.client.finish();
    session.server.expect_end();
    session.server.send(1);
    session.client.receive(1);
    drop(session.server);
    session.client.expect_end();
    expect_record(&session.pointsman, "client_closed");
}
