//! A flood of datagrams from addresses that are forged: it pushes out itself, and who has been
//! answered before does not notice.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use pointsman::limits::PORTS_GIVEN_UP;
use socket2::{Domain, Protocol, Socket, Type};

use crate::harness::{
    Metrics, Pointsman, UdpBackend, UdpClient, raise_descriptors, wait_for, wait_until,
};
use crate::namespace::Network;

/// What is sent in a row, before each friend asks and is answered: no more than fits into the
/// queues on the way, so that what gets lost is lost by pointsman.
const BURST: u32 = 250;

/// Clients that were there before.
const FRIENDS: usize = 12;

/// What the process may grow by once there are as many flows as there may be.
const GROWTH: u64 = 8 << 20;

/// Sends UDP over IPv4 from any address.
struct Forger(Socket);

impl Forger {
    fn new() -> Self {
        // The header is ours (raw(7)).
        let protocol = Protocol::from(libc::IPPROTO_RAW);
        Forger(Socket::new(Domain::IPV4, Type::RAW, Some(protocol)).unwrap())
    }

    fn send(&self, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) {
        let length = u16::try_from(8 + bytes.len()).unwrap();
        // Total length, identification and checksum are filled in by the kernel.
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(from.ip().octets());
        packet.extend(to.ip().octets());
        for field in [from.port(), to.port(), length, 0] {
            packet.extend(field.to_be_bytes());
        }
        packet.extend(bytes);
        let sent = self.0.send_to(&packet, &SocketAddr::from(to).into()).unwrap();
        assert_eq!(sent, packet.len());
    }
}

/// The number of a source as an address of 10.64.0.0/16, and any port.
fn source(number: u32) -> SocketAddrV4 {
    let ip = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 64, 0, 0)) | number);
    SocketAddrV4::new(ip, 1024 + (number % 60_000) as u16)
}

/// What is flooded and how.
struct Case {
    /// Of the flooded listener.
    udp: &'static str,
    /// As many flows as it may have.
    flows: u32,
    /// Of the process.
    max_connections: &'static str,
    /// Where the flood comes from, one datagram each.
    sources: u32,
    /// Flows of the flood that there is room for.
    room: u32,
}

/// Friends, who ask and are answered, and a flood of what nobody answers.
struct Site {
    network: Network,
    pointsman: Pointsman,
    backend: UdpBackend,
    friends: Vec<UdpClient>,
    questions: usize,
    case: Case,
    /// Their flows are at the flooded listener.
    among: bool,
}

impl Site {
    fn open(case: Case) -> Self {
        let network = Network::new();
        network.middle.ip("route add 10.64.0.0/16 via 10.1.0.2");
        let backend = network.backend.within(|| UdpBackend::choosy("10.2.0.2:0"));
        let Case { udp, flows, max_connections, .. } = &case;
        let address = backend.address();
        let pointsman = network.middle.start(&format!(
            "workers: 2
max_connections: {max_connections}
shutdown: {{ grace: 0s }}
listeners:
  edge:
    bind: 10.1.0.1:0
    protocol: udp
    udp: {{ receive_buffer: 4MiB, responses: {udp} }}
    limits: {{ flows: {flows} }}
    timeouts: {{ idle: 10m }}
    pool: pool
  other: {{ bind: \"10.1.0.1:0\", protocol: udp, pool: pool, timeouts: {{ idle: 10m }} }}
pools: {{ pool: {{ backends: [\"{address}\"] }} }}
"
        ));
        // Where no answer is expected there are none among the flooded.
        let among = *udp != "0";
        let asked = pointsman.address(if among { "edge" } else { "other" });
        let friends = network
            .client
            .within(|| (0..FRIENDS).map(|_| UdpClient::from("10.1.0.2:0", &asked)).collect());
        let mut site = Site { network, pointsman, backend, friends, questions: 0, case, among };
        site.ask();
        site
    }

    /// Each friend asks, and is answered.
    fn ask(&mut self) {
        let question = format!("ask {}", self.questions);
        self.friends.iter().for_each(|friend| friend.send(&question));
        for friend in &self.friends {
            assert_eq!(friend.receive(), question.as_bytes());
        }
        self.questions += 1;
    }

    fn flows(&self) -> f64 {
        self.pointsman.metrics().value("pointsman_udp_flows_active", &[EDGE])
    }

    /// Sends from all sources. `looks` is whether the admin server can be asked meanwhile.
    fn flood(&mut self, looks: bool) {
        let Case { flows, sources, room, .. } = self.case;
        let to: SocketAddrV4 = self.pointsman.address("edge").parse().unwrap();
        let forger = self.network.client.within(Forger::new);
        let mut full = None;
        for first in (0..sources).step_by(BURST as usize) {
            (first..first + BURST).for_each(|number| forger.send(source(number), to, b"forged"));
            self.ask();
            if looks && first % (10 * BURST) == 0 {
                let active = self.flows();
                // Those included that look for room: one a worker.
                assert!(active <= f64::from(flows) + 2.0, "{active}");
            }
            if first > room {
                full.get_or_insert_with(|| self.pointsman.resident());
            }
        }
        let full = full.expect("more sources than flows");
        let grown = self.pointsman.resident().saturating_sub(full);
        assert!(grown < GROWTH, "{grown} bytes more than {full}");
    }

    /// All flows of the flood but those that there is room for have made room for another, `spare`
    /// more where several do so at a time. Counters and log say so.
    fn expect_made_room(self, termination: &str, spare: usize) {
        let Case { sources, room, .. } = self.case;
        // No friend had to begin again.
        let friends = if self.among { FRIENDS } else { 0 };
        let total = f64::from(sources) + friends as f64;
        // Workers that look for room at the same moment make one more than they need.
        let (most, spare) = (f64::from(room) + friends as f64, spare as f64 + 2.0);
        let active = |metrics: &Metrics| metrics.value("pointsman_udp_flows_active", &[EDGE]);
        let metrics = wait_for("the last of the flood to have its place", || {
            let metrics = self.pointsman.metrics();
            let came = metrics.value("pointsman_udp_flows_total", &[EDGE]) == total;
            (came && active(&metrics) <= most).then_some(metrics)
        });
        let active = active(&metrics);
        assert!(active >= most - spare, "{active} flows of {most}");
        assert_eq!(metrics.closed("edge", termination), total - active);
        for reason in ["receive_buffer", "send_buffer", "flow", "backend", "unexpected", "other"] {
            let dropped = metrics.value("pointsman_udp_dropped_total", &[EDGE, ("reason", reason)]);
            assert_eq!(dropped, 0.0, "{reason}");
        }
        wait_until("all of it at the backend", || {
            self.backend.count() == sources as usize + self.questions * FRIENDS
        });
        let name = self.backend.address();
        assert_eq!(self.pointsman.state(&name), "up");
        let failures = "pointsman_backend_connect_failures_total";
        assert_eq!(metrics.sum(failures, ("backend", &*name)), 0.0);
        assert_eq!(metrics.value("pointsman_access_log_dropped_total", &[]), 0.0);
        // Each has a record, or is among those left out, of which the log tells after a second.
        wait_until("the log to have told of all", || {
            let records = self.pointsman.access_log(0);
            assert!(records.iter().all(|record| record.text("termination") == termination));
            let told = self.pointsman.left_out(termination);
            assert!(told > 0 || records.len() < sources as usize);
            (records.len() + told) as f64 == total - active
        });
        self.pointsman.stop();
    }
}

const EDGE: (&str, &str) = ("listener", "edge");

/// Without answers no flow has a descriptor or a port of its own.
#[test]
fn as_many_flows_as_there_may_be_where_none_has_a_socket() {
    let (flows, sources) = (20_000, 50_000);
    let mut site =
        Site::open(Case { udp: "0", flows, max_connections: "off", sources, room: flows });
    site.flood(true);
    assert!(site.pointsman.usage().sockets < 100);
    site.expect_made_room("limit", 0);
}

/// Each flow has a socket: as many as there are descriptors and local ports for.
#[test]
fn as_many_flows_as_there_may_be_with_a_socket_each() {
    raise_descriptors();
    let (flows, sources) = (15_000, 50_000);
    let room = flows - FRIENDS as u32;
    let mut site = Site::open(Case { udp: "off", flows, max_connections: "off", sources, room });
    site.flood(true);
    assert!(site.pointsman.usage().sockets < flows as usize + 100);
    site.expect_made_room("limit", 0);
}

/// More flows are allowed than the process may have descriptors.
#[test]
fn flows_make_room_where_descriptors_run_out() {
    let (flows, sources, room) = (20_000, 10_000, 2000);
    let mut site = Site::open(Case { udp: "off", flows, max_connections: "off", sources, room });
    let now = site.pointsman.usage_at_rest().descriptors() as u64;
    site.pointsman.limit_descriptors(now + u64::from(room));
    // The admin server has no descriptor then either.
    site.flood(false);
    site.pointsman.limit_descriptors(now + 2 * u64::from(room));
    assert!(site.pointsman.log().contains("no socket for a flow"), "nothing in the log");
    site.expect_made_room("overload", 0);
}

/// The same of local ports.
#[test]
fn flows_make_room_where_local_ports_run_out() {
    let (flows, sources, room) = (20_000, 10_000, 2000);
    let mut site = Site::open(Case { udp: "off", flows, max_connections: "off", sources, room });
    let ports = format!("50000 {}", 50_000 + room - 1);
    site.network.middle.set("net/ipv4/ip_local_port_range", &ports);
    site.flood(true);
    assert!(site.pointsman.log().contains("no socket for a flow"), "nothing in the log");
    site.expect_made_room("overload", 2 * PORTS_GIVEN_UP);
}

/// The process has no more sessions than it may, flows among them.
#[test]
fn flows_make_room_where_the_process_has_as_many_as_it_may() {
    let (flows, sources) = (20_000, 10_000);
    let room = 2000 - FRIENDS as u32;
    let mut site = Site::open(Case { udp: "0", flows, max_connections: "2000", sources, room });
    site.flood(true);
    site.expect_made_room("overload", 0);
}
