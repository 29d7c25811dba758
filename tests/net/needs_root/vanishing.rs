//! Peers that vanish without a word: the machine lost its power, the cable its plug.

use std::time::{Duration, Instant};

use crate::harness::{Backend, Pointsman, Record, Stream, one_listener, wait_until};
use crate::namespace::Network;

/// How late the kernel may be: its timers back off, and the machine may be busy.
const LATE: Duration = Duration::from_secs(6);

/// A session from one host over another to a third.
struct Session {
    network: Network,
    pointsman: Pointsman,
    client: Stream,
    server: Stream,
}

impl Session {
    fn open(timeouts: &str) -> Self {
        let network = Network::new();
        let backend = network.backend.within(|| Backend::listening("10.2.0.2:0"));
        let timeouts = format!("timeouts: {{ {timeouts} }}");
        let yaml = one_listener(&timeouts, &[&backend.address()], "");
        let yaml = yaml.replace("127.0.0.1:0", "10.1.0.1:0");
        let pointsman = network.middle.start(&yaml);
        let edge = pointsman.address("edge");
        let mut client = network.client.within(|| Stream::connect(&edge));
        let mut server = backend.accept();
        client.send(100);
        server.receive(100);
        server.send(100);
        client.receive(100);
        Session { network, pointsman, client, server }
    }

    /// Waits for the only record, which must come after `least` but not much later.
    fn ends(self, since: Instant, least: Duration, termination: &str) -> (Record, Stream, Stream) {
        let record = self.pointsman.access_log(1).remove(0);
        let took = since.elapsed();
        assert_eq!(record.text("termination"), termination);
        // The last byte may have been acknowledged a little before the host vanished.
        let early = Duration::from_millis(300);
        assert!(took + early >= least && took <= least + LATE, "{took:?} instead of {least:?}");
        let metrics = self.pointsman.wait_idle();
        assert_eq!(metrics.closed("edge", termination), 1.0);
        self.pointsman.stop();
        (record, self.client, self.server)
    }
}

const USER_TIMEOUT: &str = "user_timeout: 2s, keepalive: off";

#[test]
fn a_client_that_vanishes_while_it_receives_is_given_up() {
    let mut session = Session::open(USER_TIMEOUT);
    session.network.client.ip("link set eth0 down");
    let vanished = Instant::now();
    session.server.send(5000);
    let (record, _, mut server) = session.ends(vanished, Duration::from_secs(2), "client_reset");
    server.expect_reset();
    assert_eq!((record.number("bytes_in"), record.number("bytes_out")), (100.0, 5100.0));
}

#[test]
fn a_backend_that_vanishes_while_it_receives_is_given_up() {
    let mut session = Session::open(USER_TIMEOUT);
    session.network.backend.ip("link set eth0 down");
    let vanished = Instant::now();
    session.client.send(5000);
    let (record, mut client, _) = session.ends(vanished, Duration::from_secs(2), "backend_reset");
    client.expect_reset();
    assert_eq!((record.number("bytes_in"), record.number("bytes_out")), (5100.0, 100.0));
}

/// Both hosts stay, but the one in between forwards nothing: bytes already on the way arrive when
/// it comes back in time.
#[test]
fn a_short_interruption_is_survived() {
    let mut session = Session::open("user_timeout: 20s, keepalive: 1s");
    let middle = &session.network.middle;
    middle.ip("link set right down");
    session.client.send(5000);
    let passed = [("listener", "edge"), ("direction", "in")];
    wait_until("the bytes to be on their way", || {
        session.pointsman.metrics().value("pointsman_bytes_total", &passed) == 5100.0
    });
    middle.ip("link set right up");
    session.server.receive(5000);
    session.server.send(5000);
    session.client.receive(5000);
    session.client.finish();
    session.server.expect_end();
    session.server.finish();
    session.client.expect_end();
    assert_eq!(session.pointsman.stop()[0].text("termination"), "client_closed");
}

/// Nothing is sent, so only probes can tell: one after a second, then three a second apart. The
/// other side, as silent but there, is not taken for dead.
#[test]
fn keepalive_finds_who_vanished_from_an_idle_session() {
    for (keepalive, least) in
        [("keepalive: 1s, user_timeout: off", 4), ("keepalive: 1s, user_timeout: 3s", 3)]
    {
        let session = Session::open(keepalive);
        session.network.client.ip("link set eth0 down");
        let (_, _, mut server) =
            session.ends(Instant::now(), Duration::from_secs(least), "client_reset");
        server.expect_reset();

        let session = Session::open(keepalive);
        session.network.backend.ip("link set eth0 down");
        let (_, mut client, _) =
            session.ends(Instant::now(), Duration::from_secs(least), "backend_reset");
        client.expect_reset();
    }
}
