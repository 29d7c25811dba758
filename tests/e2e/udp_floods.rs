//! A UDP listener that is flooded with more than its worker can take: what the operator wants is
//! done all the same.

use std::io::ErrorKind;
use std::net::UdpSocket;

use rustix::process::Signal;

use crate::harness::{Backend, Flood, Pointsman, Stream, UdpBackend, wait_until};

const FLOODERS: usize = 3;

/// `edge` echoes by TCP. Each datagram to `flooded` is a flow whose backend refuses it: that costs
/// the worker many times what it costs the flood, and what waits for it would keep it busy even if
/// the flood had to pause.
struct Peers {
    echo: Backend,
    nobody: UdpBackend,
}

impl Peers {
    fn new() -> Self {
        Peers { echo: Backend::echo(), nobody: UdpBackend::refusing() }
    }

    fn yaml(&self, flooded: bool) -> String {
        let udp = "protocol: udp, udp: { per_packet: true, receive_buffer: 32MiB }";
        let short = "timeouts: { idle: 200ms }, limits: { flows: 100 }";
        let second =
            format!(", flooded: {{ bind: \"127.0.0.1:0\", {udp}, {short}, pool: nobody }}");
        format!(
            "workers: 1\n\
             shutdown: {{ grace: 1h }}\n\
             listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool }}{} }}\n\
             pools:\n\
             \x20 pool: {{ backends: [\"{}\"], health: off }}\n\
             \x20 nobody: {{ backends: [\"{}\"], outlier: off }}\n",
            if flooded { second.as_str() } else { "" },
            self.echo.address(),
            self.nobody.address(),
        )
    }
}

/// A flood that has become too much.
fn flood(pointsman: &Pointsman) -> Flood {
    let flood = Flood::of_datagrams(&pointsman.address("flooded"), FLOODERS);
    wait_until("the worker to be behind", || {
        let lost = [("listener", "flooded"), ("reason", "receive_buffer")];
        pointsman.metrics().value("pointsman_udp_dropped_total", &lost) > 0.0
    });
    flood
}

fn exchange(stream: &mut Stream) {
    stream.send(100);
    stream.receive(100);
}

fn is_refused(address: &str) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address).unwrap();
    // An ICMP message comes at once on a loopback, and the next operation tells of it.
    let sent = socket.send(b"probe").and_then(|_| socket.send(b"probe"));
    sent.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn a_reload_takes_a_flooded_listener_away() {
    let peers = Peers::new();
    let pointsman = Pointsman::start(&peers.yaml(true));
    let address = pointsman.address("flooded");
    let mut session = pointsman.connect("edge");
    let flood = flood(&pointsman);
    pointsman.reload(&peers.yaml(false)).unwrap();
    wait_until("the flooded listener to close", || is_refused(&address));
    exchange(&mut session);
    exchange(&mut pointsman.connect("edge"));
    drop((flood, session));
    pointsman.wait_idle();
}

#[test]
fn no_flow_begins_during_a_stop() {
    let peers = Peers::new();
    let mut pointsman = Pointsman::start(&peers.yaml(true));
    let _flood = flood(&pointsman);
    pointsman.signal(Signal::TERM);
    // Grace is long: it is over when the last flow is.
    assert_eq!(pointsman.wait().code(), Some(0));
}
