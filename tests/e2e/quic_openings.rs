//! What a UDP listener with `sni` routes makes of first datagrams: those of real clients in any
//! order, broken ones, and what is not QUIC.

use crate::harness::initial::{Initial, V1, crypto};
use crate::harness::{Metrics, Pointsman, Record, UdpPeer, pass, routed, wait_until};
use std::time::{Duration, Instant};

const NAMES: &str = "[shop.example.com, aio.example.com, example.com]";

/// Files of one hello each, and its name.
const FLIGHTS: [(&[&str], &str); 5] = [
    (&["chromium-156-a", "chromium-156-b"], "shop.example.com"),
    (&["aioquic-v1"], "aio.example.com"),
    (&["aioquic-v2"], "aio.example.com"),
    (&["rfc9001-a2"], "example.com"),
    (&["rfc9369-a2"], "example.com"),
];

fn captured(file: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/quic/{file}.bin", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

/// A listener that sends what has one of [`NAMES`] to `named`, and all else to `rest`.
struct Edge {
    pointsman: Pointsman,
    address: String,
    named: UdpPeer,
    rest: UdpPeer,
}

impl Edge {
    fn start(listener: &[&str], default: bool) -> Self {
        let (named, rest) = (UdpPeer::default(), UdpPeer::default());
        let lines = [&["protocol: udp", "timeouts: { idle: 60s }"], listener].concat();
        let by_name = format!("{{ sni: {NAMES}, pool: named }}");
        let mut routes = vec![&*by_name];
        if default {
            routes.push("{ pool: rest }");
        } else {
            routes.push("{ sni: else.example.com, pool: rest }");
        }
        let pools = [("named", named.address()), ("rest", rest.address())];
        let yaml = routed(&lines, &routes, &pools) + "shutdown: { grace: 0s }\n";
        let pointsman = Pointsman::start(&yaml);
        let address = pointsman.address("edge");
        Edge { pointsman, address, named, rest }
    }

    /// Sends datagrams from one new address; each is received before the next is sent.
    fn send<'a>(&self, datagrams: impl IntoIterator<Item = &'a [u8]>) -> UdpPeer {
        let client = UdpPeer::default();
        for datagram in datagrams {
            client.send(&self.address, datagram);
        }
        client
    }

    fn wait_closed(&self, termination: &str, count: usize) {
        self.pointsman.expect_count(count as f64, |metrics| metrics.closed("edge", termination));
    }

    fn wait_opened(&self, count: usize) {
        let labels = [("listener", "edge")];
        wait_until(&format!("{count} flows"), || {
            self.pointsman.metrics().value("pointsman_connections_total", &labels) == count as f64
        });
        self.pointsman.wait_received();
    }

    /// So many datagrams are dropped for this reason: the end of their flow is counted before.
    fn expect_dropped(&self, reason: &str, count: usize) {
        let labels = [("listener", "edge"), ("reason", reason)];
        let dropped = |metrics: &Metrics| metrics.value("pointsman_udp_dropped_total", &labels);
        self.pointsman.expect_count(count as f64, dropped);
    }
}

/// Every order of up to three things, each by its index.
fn orders(count: usize) -> Vec<Vec<usize>> {
    match count {
        1 => vec![vec![0], vec![0, 0]],
        _ => vec![
            vec![0, 1],
            vec![1, 0],
            vec![0, 0, 1],
            vec![1, 1, 0],
            vec![0, 1, 0],
            vec![1, 0, 1],
            vec![0, 0, 0, 1, 1],
        ],
    }
}

#[test]
fn all_datagrams_of_a_hello_are_passed_on_in_the_order_they_came_in() {
    let edge = Edge::start(&[], true);
    for (files, _) in FLIGHTS {
        let datagrams: Vec<_> = files.iter().map(|file| captured(file)).collect();
        for order in orders(datagrams.len()) {
            let sent: Vec<_> = order.iter().map(|&index| &*datagrams[index]).collect();
            let _client = edge.send(sent.iter().copied());
            let first = edge.named.wait();
            let mut got = vec![first.0];
            while got.len() < sent.len() {
                let (datagram, from) = edge.named.wait();
                assert_eq!(from, first.1, "one flow");
                got.push(datagram);
            }
            assert!(got == sent, "{files:?} {order:?}");
        }
    }
    assert_eq!((edge.named.next(), edge.rest.next()), (None, None));
    let count: usize = FLIGHTS.iter().map(|(files, _)| orders(files.len()).len()).sum();
    edge.wait_opened(count);
    assert_eq!(
        edge.pointsman.metrics().sum("pointsman_udp_dropped_total", ("listener", "edge")),
        0.0
    );
    // Names, protocols and times are told, of live flows and of those that have ended.
    let sessions = edge.pointsman.admin("GET", "/api/v1/sessions").1;
    for (files, name) in FLIGHTS {
        assert!(sessions.contains(&format!("\"sni\":\"{name}\"")), "{files:?}: {sessions}");
    }
    let ech = edge.pointsman.metrics().value("pointsman_ech_total", &[("listener", "edge")]);
    assert_eq!(ech, orders(2).len() as f64);
    let records = edge.pointsman.stop();
    assert_eq!(records.len(), count);
    for record in records {
        let name = record.text("sni");
        let protocol = if name == "example.com" { "alpn" } else { "h3" };
        assert_eq!(record.list("alpn"), [protocol]);
        assert!(record.number("preread_ms") >= 0.0);
        assert_eq!((record.text("protocol"), record.text("pool")), ("udp", "named"));
    }
}

#[test]
fn half_a_hello_waits_and_then_is_dropped() {
    let edge = Edge::start(&["preread: { timeout: 300ms }"], true);
    for file in ["chromium-156-a", "chromium-156-b"] {
        let datagram = captured(file);
        let _client = edge.send([&*datagram, &*datagram]);
    }
    edge.wait_closed("preread_timeout", 2);
    edge.expect_dropped("preread", 4);
    assert_eq!((edge.named.next(), edge.rest.next()), (None, None));
    let records = edge.pointsman.stop();
    for record in records {
        assert!(record.is_null("sni") && record.is_null("pool"), "{record:?}");
        assert!((290.0..3000.0).contains(&record.number("preread_ms")), "{record:?}");
    }
}

/// However an unfinished hello ends, the datagrams that were held of it are counted.
#[test]
fn what_was_held_of_a_hello_is_counted_when_it_makes_room() {
    let lines = ["protocol: udp", "limits: { flows: 3 }"];
    let yaml = routed(
        &lines,
        &[&format!("{{ sni: {NAMES}, pool: pool }}")],
        &[("pool", "127.0.0.1:9".into())],
    );
    let pointsman = Pointsman::start(&format!("{yaml}workers: 1\nshutdown: {{ grace: 0s }}\n"));
    let clients = [(); 10].map(|()| UdpPeer::default());
    for client in &clients {
        client.send(&pointsman.address("edge"), &captured("chromium-156-a"));
    }
    let labels = [("listener", "edge"), ("reason", "preread")];
    let held = |metrics: &Metrics| metrics.value("pointsman_udp_dropped_total", &labels);
    let metrics = pointsman.expect_count(7.0, held);
    assert_eq!((metrics.active("edge"), metrics.closed("edge", "limit")), (3.0, 7.0));
}

/// A hello that comes after a reload has its time, whatever time those before it have.
#[test]
fn a_shorter_time_is_not_waited_out_behind_a_longer_one() {
    let edge = |timeout: &str| {
        let lines = ["protocol: udp", &format!("preread: {{ timeout: {timeout} }}")];
        routed(
            &lines,
            &[&format!("{{ sni: {NAMES}, pool: pool }}")],
            &[("pool", "127.0.0.1:9".into())],
        ) + "workers: 1\nshutdown: { grace: 0s }\n"
    };
    let pointsman = Pointsman::start(&edge("1h"));
    let address = pointsman.address("edge");
    let clients = [(); 2].map(|()| UdpPeer::default());
    clients[0].send(&address, &captured("chromium-156-a"));
    pointsman.wait_received();
    pointsman.reload(&edge("100ms")).unwrap();
    clients[1].send(&address, &captured("chromium-156-a"));
    pointsman.expect_count(1.0, |metrics| metrics.closed("edge", "preread_timeout"));
    assert_eq!(pointsman.metrics().active("edge"), 1.0);
    assert_eq!(pointsman.access_log(1)[0].text("client"), clients[1].address());
}

/// A datagram cut at any byte reaches no route with a name, and none at all once it says that it is
/// of a known version.
#[test]
fn truncated_hellos_reach_no_name() {
    let edge = Edge::start(&["preread: { timeout: 300ms }"], true);
    let datagram = captured("aioquic-v1");
    // Open to the end, so that no port is used twice.
    let mut clients = Vec::new();
    for end in 0..datagram.len() {
        clients.push(edge.send([&datagram[..end]]));
        if end % 50 == 0 {
            edge.pointsman.wait_received();
        }
    }
    edge.wait_opened(datagram.len());
    edge.wait_closed("preread_invalid", datagram.len() - 5);
    assert_eq!(edge.named.next(), None);
    let mut unversioned: Vec<_> = edge.rest.all().iter().map(Vec::len).collect();
    // By several workers.
    unversioned.sort_unstable();
    assert_eq!(unversioned, [0, 1, 2, 3, 4]);
    edge.expect_dropped("preread", datagram.len() - 5);
    // The other half of a hello does not help.
    let (first, second) = (captured("chromium-156-a"), captured("chromium-156-b"));
    for end in (5..second.len()).step_by(50) {
        clients.push(edge.send([&*first, &second[..end]]));
    }
    let timed_out = (5..second.len()).step_by(50).count();
    edge.wait_closed("preread_timeout", timed_out);
    assert_eq!((edge.named.next(), edge.rest.next()), (None, None));
}

/// No bit makes it reach another pool than its own, but for those that say it is no QUIC of a known
/// version.
#[test]
fn flipped_bits_lead_nowhere() {
    let edge = Edge::start(&["preread: { timeout: 300ms }"], true);
    let datagram = captured("aioquic-v2");
    // Open to the end, so that no port is used twice.
    let mut clients = Vec::new();
    // Its only packet; what follows that is padding that nobody vouches for.
    let packet = 26 + 498;
    for bit in (0..packet * 8).filter(|bit| *bit < 400 || bit % 13 == 0) {
        let mut broken = datagram.clone();
        broken[bit / 8] ^= 0x80 >> (bit % 8);
        clients.push(edge.send([&*broken]));
        if clients.len() % 50 == 0 {
            edge.pointsman.wait_received();
        }
    }
    edge.wait_opened(clients.len());
    assert_eq!(edge.named.next(), None);
    for datagram in edge.rest.all() {
        let version = &datagram[1..5];
        let short = datagram[0] & 0x80 == 0;
        let kind = datagram[0] >> 4 & 3;
        // Retry or Handshake open no connection.
        let opens_none = kind == 3 || kind == 0;
        assert!(short || version != &captured("aioquic-v2")[1..5] || opens_none, "{datagram:x?}");
    }
}

#[test]
fn what_has_no_name_takes_the_default() {
    let not_quic: [&[u8]; 5] = [b"", b"hello", b"\x16\x03\x01", &[0x40; 30], &[0x7f; 1200]];
    let mut unknown = captured("aioquic-v1");
    unknown[1..5].copy_from_slice(&[0x0a, 0x1a, 0x2a, 0x3a]);
    let cases: Vec<&[u8]> = not_quic.into_iter().chain([&*unknown]).collect();
    let edge = Edge::start(&[], true);
    for datagram in &cases {
        let client = edge.send([*datagram]);
        let (got, from) = edge.rest.wait();
        assert_eq!(got, *datagram);
        // Both ways, whatever it is.
        edge.rest.send(&from.to_string(), b"answer");
        assert_eq!(client.wait().0, b"answer");
        client.send(&edge.address, b"more");
        assert_eq!(edge.rest.wait().0, b"more");
    }
    assert_eq!(edge.named.next(), None);

    let edge = Edge::start(&[], false);
    for datagram in &cases {
        let _client = edge.send([*datagram]);
    }
    edge.wait_closed("no_route", cases.len());
    assert_eq!((edge.named.next(), edge.rest.next()), (None, None));
    edge.expect_dropped("flow", cases.len());
}

/// An Initial packet of a hello that never ends.
fn endless(number: u64) -> Vec<u8> {
    let dcid = number.to_be_bytes().to_vec();
    let initial = Initial { dcid, ..Initial::new(V1) };
    let mut hello = vec![1, 0, 0x10, 0];
    hello.resize(1000, 3);
    initial.datagram(&crypto(0, &hello))
}

#[test]
fn unfinished_hellos_are_bounded_and_the_oldest_go_first() {
    const KEPT: usize = 64 * 1024;
    const FLOOD: u64 = 3000;
    let preread = format!("preread: {{ timeout: 60s, max_bytes: 16KiB, total_bytes: {KEPT} }}");
    let edge = Edge::start(&[&preread], true);
    let honest = captured("aioquic-v1");
    let (mut clients, mut served) = (Vec::new(), Vec::new());
    for number in 0..FLOOD {
        clients.push(edge.send([&*endless(number)]));
        // More than these, all for one worker, would be more than its socket has room for.
        if number % 25 == 0 {
            edge.pointsman.wait_received();
        }
        if number % 100 == 0 {
            // Served meanwhile, at once.
            served.push(edge.send([&*honest]));
            assert_eq!(edge.named.wait().0, honest);
        }
    }
    // Each datagram counts an eighth more.
    let kept = KEPT / (1200 * 9 / 8);
    edge.wait_closed("overload", FLOOD as usize - kept);
    edge.pointsman.wait_received();
    let metrics = edge.pointsman.metrics();
    assert_eq!(metrics.closed("edge", "overload"), (FLOOD as usize - kept) as f64);
    assert_eq!(metrics.active("edge"), (kept + served.len()) as f64);
    edge.expect_dropped("preread", FLOOD as usize - kept);
    // The youngest are those that are left.
    let sessions = edge.pointsman.admin("GET", "/api/v1/sessions?limit=1000").1;
    let first = clients.first().unwrap().address();
    assert!(!sessions.contains(&first), "{first}");
    let last = clients.last().unwrap().address();
    assert!(sessions.contains(&last), "{last}");
    assert_eq!((edge.named.next(), edge.rest.next()), (None, None));
}

/// A flood at one listener leaves room for the hello that comes to another in two datagrams.
#[test]
fn unfinished_hellos_of_another_listener_go_first() {
    let backend = UdpPeer::default();
    let preread = "preread: { timeout: 60s, max_bytes: 16KiB, total_bytes: 64KiB }";
    let listener = format!(
        "bind: \"127.0.0.1:0\", protocol: udp, {preread}, routes: [{{ sni: {NAMES}, pool: pool }}]"
    );
    let pointsman = Pointsman::start(&format!(
        "workers: 1\n\
         shutdown: {{ grace: 0s }}\n\
         listeners: {{ edge: {{ {listener} }}, flooded: {{ {listener} }} }}\n\
         pools: {{ pool: {{ backends: [\"{}\"] }} }}\n",
        backend.address()
    ));
    let (edge, flooded) = (pointsman.address("edge"), pointsman.address("flooded"));
    let flood: Vec<_> = (0..100).map(|_| UdpPeer::default()).collect();
    for (number, client) in (0..).zip(&flood) {
        client.send(&flooded, &endless(number));
    }
    wait_until("the flood to be as much as may be", || {
        pointsman.metrics().closed("flooded", "overload") > 0.0
    });
    let client = UdpPeer::default();
    for file in FLIGHTS[0].0 {
        client.send(&edge, &captured(file));
        pointsman.wait_received();
    }
    for file in FLIGHTS[0].0 {
        assert_eq!(backend.wait().0, captured(file));
    }
    assert_eq!(pointsman.metrics().closed("edge", "overload"), 0.0);
}

#[test]
fn a_hello_has_as_many_bytes_as_it_may() {
    let edge = Edge::start(&["preread: { timeout: 60s, max_bytes: 4KiB }"], true);
    // Says at once that it will be longer.
    let mut hello = vec![1, 0, 0x10, 0];
    hello.resize(1000, 3);
    let _client = edge.send([&*Initial::new(V1).datagram(&crypto(0, &hello))]);
    edge.wait_closed("preread_too_large", 1);
    // Or comes in ever more datagrams, the same piece again and again.
    let client = UdpPeer::default();
    let piece = |number| Initial::numbered(number).datagram(&crypto(0, &[1, 0, 0x0e, 0, 3]));
    (0..=64).for_each(|number| client.send(&edge.address, &piece(number)));
    edge.wait_closed("preread_too_large", 2);
    assert_eq!((edge.named.next(), edge.rest.next()), (None, None));
}

/// From the first byte to the last is one deadline, whatever else comes.
#[test]
fn the_deadline_is_that_of_the_whole_hello() {
    let edge = Edge::start(&["preread: { timeout: 400ms }"], true);
    let begun = Instant::now();
    let (client, first) = (UdpPeer::default(), captured("chromium-156-a"));
    while edge.pointsman.metrics().closed("edge", "preread_timeout") == 0.0 {
        client.send(&edge.address, &first);
        pass(Duration::from_millis(20));
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    let records: Vec<Record> = edge.pointsman.access_log(1);
    assert!(records[0].number("preread_ms") < 2000.0, "{records:?}");
}
