//! A listener that is flooded with connections goes when it is to go.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Backend, Flood, Pointsman, Stream, wait_until};

const FLOODERS: usize = 4;

/// `edge` echoes, and what connects to `flooded` gets nobody.
struct Peers {
    echo: Backend,
    nobody: Backend,
}

impl Peers {
    fn new() -> Self {
        Peers { echo: Backend::echo(), nobody: Backend::refusing() }
    }

    fn yaml(&self, grace: &str, flooded: bool) -> String {
        let second =
            if flooded { ", flooded: { bind: \"127.0.0.1:0\", pool: nobody }" } else { "" };
        format!(
            "workers: 2\n\
             shutdown: {{ grace: {grace} }}\n\
             listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool }}{second} }}\n\
             pools:\n\
             \x20 pool: {{ backends: [\"{}\"], health: off }}\n\
             \x20 nobody: {{ backends: [\"{}\"], health: off }}\n",
            self.echo.address(),
            self.nobody.address()
        )
    }
}

fn exchange(stream: &mut Stream) {
    stream.send(100);
    stream.receive(100);
}

/// A flood of `flooded` that has begun.
fn flood(pointsman: &Pointsman) -> Flood {
    let flood = Flood::start(&pointsman.address("flooded"), FLOODERS);
    wait_until("the flood", || {
        let flooded = ("listener", "flooded");
        pointsman.metrics().sum("pointsman_connections_total", flooded) > 1000.0
    });
    flood
}

fn is_refused(address: &str) -> bool {
    Stream::try_connect(address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn a_flood_does_not_outlast_grace() {
    let peers = Peers::new();
    let mut pointsman = Pointsman::start(&peers.yaml("1s", true));
    // It would stay for as long as it may.
    let mut session = pointsman.connect("edge");
    exchange(&mut session);
    let _flood = flood(&pointsman);
    let since = Instant::now();
    pointsman.signal(Signal::TERM);
    session.expect_end();
    assert_eq!(pointsman.wait().code(), Some(0));
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
}

#[test]
fn a_second_signal_ends_it_within_a_flood() {
    let peers = Peers::new();
    let mut pointsman = Pointsman::start(&peers.yaml("1h", true));
    let mut session = pointsman.connect("edge");
    exchange(&mut session);
    let _flood = flood(&pointsman);
    pointsman.signal(Signal::TERM);
    wait_until("/readyz to say no", || !pointsman.ready());
    exchange(&mut session);
    let since = Instant::now();
    pointsman.signal(Signal::TERM);
    session.expect_end();
    assert_eq!(pointsman.wait().code(), Some(0));
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
}

#[test]
fn a_reload_takes_a_flooded_listener_away() {
    let peers = Peers::new();
    let pointsman = Pointsman::start(&peers.yaml("1s", true));
    let flooded = pointsman.address("flooded");
    let mut session = pointsman.connect("edge");
    let _flood = flood(&pointsman);
    let since = Instant::now();
    assert_eq!(pointsman.reload(&peers.yaml("1s", false)), Ok(2));
    wait_until("the flooded listener to close", || is_refused(&flooded));
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    // The workers are there for everybody else, and for the next reload.
    exchange(&mut session);
    exchange(&mut pointsman.connect("edge"));
    assert_eq!(pointsman.reload(&peers.yaml("1s", false)), Ok(3));
    assert!(is_refused(&flooded));
    drop(session);
    pointsman.wait_idle();
    pointsman.stop();
}
