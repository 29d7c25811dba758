//! QUIC connections outlive the addresses of their clients, on whatever worker and whatever
//! instance a datagram arrives; and an id is no way to somebody else's datagrams or routes.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;

use pointsman::limits::CONNECTION_IDS_UNUSED;

use crate::harness::hello::Hello;
use crate::harness::initial::{HANDSHAKE, Initial, V1, crypto};
use crate::harness::{
    Dial, Pointsman, QuicClient, QuicServer, Rebinder, UdpPeer, wait_for, wait_until,
};

const HOST: &str = "shop.example.com";
const KEY: &str = "8f95f09245765f80256934e50c66207f";

/// Two servers in one pool. What has no name goes to `rest`.
struct Site {
    servers: [QuicServer; 2],
    rest: UdpPeer,
    authorities: PathBuf,
}

impl Site {
    fn open() -> Self {
        let server = |name: &str, id: &str| {
            let ids = ["--lb-config", "1", "--lb-key", KEY, "--server-id", id];
            QuicServer::start(name, HOST, "echo", &ids)
        };
        let servers = [server("one", "0a0b0c01"), server("two", "0a0b0c02")];
        let all = servers.iter().map(|server| fs::read(server.certificate()).unwrap());
        let authorities = servers[0].certificate().with_file_name("all.pem");
        fs::write(&authorities, all.collect::<Vec<_>>().concat()).unwrap();
        Site { servers, rest: UdpPeer::default(), authorities }
    }

    /// An instance in front of them, which can read their ids or not.
    fn instance(&self, pool: &str) -> Pointsman {
        let backend = |index: usize| {
            let address = self.servers[index].address();
            format!("{{ address: \"{address}\", server_id: \"0a0b0c0{}\" }}", index + 1)
        };
        Pointsman::start(&format!(
            "workers: 2
shutdown: {{ grace: 0s }}
listeners:
  edge:
    bind: 127.0.0.1:0
    protocol: udp
    routes: [{{ sni: {HOST}, pool: pool }}, {{ pool: rest }}]
pools:
  pool: {{ health: off, backends: [{}, {}], {pool} }}
  rest: {{ health: off, backends: [\"{}\"] }}
",
            backend(0),
            backend(1),
            self.rest.address()
        ))
    }

    fn connect(&self, relay: &Rebinder) -> QuicClient {
        QuicClient::connect(Dial {
            port: relay.port(),
            name: Some(HOST),
            authority: &self.authorities,
            alpn: "echo",
            version: 1,
            more: &[],
        })
    }
}

fn quic_lb() -> String {
    format!("balance: maglev, quic_lb: {{ config: 1, key: {KEY}, nonce_length: 12 }}")
}

#[test]
fn a_client_whose_port_changes_stays_on_its_backend() {
    let site = Site::open();
    let pointsman = site.instance("balance: random");
    let address = pointsman.address("edge");
    let relay = Rebinder::start(&address);
    let mut client = site.connect(&relay);
    let who = client.ask("first");
    let workers = || {
        let metrics = pointsman.metrics();
        ["0", "1"].map(|worker| {
            metrics.value("pointsman_worker_connections_active", &[("worker", worker)])
        })
    };
    // The kernel chooses the worker by the port.
    let mut rounds = 0;
    while rounds < 20 || workers().contains(&0.0) {
        assert!(rounds < 200, "{:?}", workers());
        relay.rebind();
        assert_eq!(client.ask(&format!("round {rounds}")), who);
        assert!(relay.answers() > 0);
        rounds += 1;
    }
    assert_eq!(site.rest.next(), None);
    // With an id that is not known, the same datagram goes elsewhere.
    let mut other = relay.last_short();
    other[1] ^= 1;
    UdpPeer::default().send(&address, &other);
    assert_eq!(site.rest.wait().0, other);
    // All were flows of their own, to one backend.
    let records = pointsman.stop();
    let (named, others): (Vec<_>, Vec<_>) =
        records.iter().partition(|record| record.text("pool") == "pool");
    assert_eq!((named.len(), others.len()), (rounds + 1, 1));
    for record in &named {
        assert_eq!(record.text("backend"), named[0].text("backend"));
        // Known from the hello, which only the first of them has seen.
        assert_eq!((record.text("sni"), record.list("alpn")), (HOST, vec!["echo"]));
    }
}

#[test]
fn whoever_repeats_a_datagram_gets_nothing_of_its_connection() {
    let site = Site::open();
    let pointsman = site.instance("balance: random");
    let address = pointsman.address("edge");
    let relay = Rebinder::start(&address);
    let mut client = site.connect(&relay);
    let who = client.ask("first");
    let thief = UdpPeer::default();
    for round in 0..20 {
        let captured = relay.last_short();
        // By then the server has read the original: a copy that overtakes it looks like a client
        // that has moved, and then the server itself asks the new address who it is.
        assert_eq!(client.ask("meanwhile"), who);
        let before = relay.answers();
        thief.send(&address, &captured);
        assert_eq!(client.ask(&format!("round {round}")), who);
        assert!(relay.answers() > before);
    }
    assert_eq!(thief.all(), Vec::<Vec<u8>>::new());
    // All copies have reached the backend, by a flow of their own.
    let records = pointsman.stop();
    let thiefs = records.iter().find(|record| record.text("client") == thief.address()).unwrap();
    let victims =
        records.iter().find(|record| record.text("client") == relay.outside().to_string()).unwrap();
    assert_eq!(thiefs.text("backend"), victims.text("backend"));
    assert!(thiefs.number("bytes_in") > 0.0 && thiefs.number("bytes_out") == 0.0, "{thiefs:?}");
}

#[test]
fn ids_that_name_their_server_are_read_by_any_instance_and_after_a_restart() {
    let site = Site::open();
    let first = site.instance(&quic_lb());
    let relay = Rebinder::start(&first.address("edge"));
    let mut clients: Vec<(Rebinder, QuicClient, String)> = Vec::new();
    // Some on each.
    while !["one", "two"].iter().all(|name| clients.iter().any(|(.., who)| who == name)) {
        assert!(clients.len() < 40);
        let relay = Rebinder::start(&first.address("edge"));
        let mut client = site.connect(&relay);
        let who = client.ask("first");
        clients.push((relay, client, who));
    }
    drop(relay);
    let mut all_go_to = |instance: &Pointsman, line: &str| {
        for (relay, client, who) in &mut clients {
            relay.turn_to(&instance.address("edge"));
            assert_eq!(client.ask(line), *who);
        }
    };
    let second = site.instance(&quic_lb());
    all_go_to(&second, "another instance");
    drop((first, second));
    let restarted = site.instance(&quic_lb());
    all_go_to(&restarted, "restarted");
    assert_eq!(site.rest.next(), None);
    // One that cannot read them has no idea.
    let without = site.instance("balance: random");
    let (relay, client, _) = &mut clients[0];
    relay.turn_to(&without.address("edge"));
    client.send("lost");
    assert_eq!(site.rest.wait().0[0] & 0x80, 0);
}

/// Two pools of two backends that keep what they get, each in front of a name; `gone` is rejected.
struct Stubs {
    pointsman: Pointsman,
    address: String,
    pools: [[UdpPeer; 2]; 2],
    rest: UdpPeer,
}

impl Stubs {
    fn start() -> Self {
        let pools = <[[UdpPeer; 2]; 2]>::default();
        let rest = UdpPeer::default();
        let pool = |index: usize| {
            let [one, two] = &pools[index];
            let backends = format!("\"{}\", \"{}\"", one.address(), two.address());
            format!("{{ balance: round_robin, health: off, backends: [{backends}] }}")
        };
        let pointsman = Pointsman::start(&format!(
            "workers: 2
listeners:
  edge:
    bind: 127.0.0.1:0
    protocol: udp
    routes:
      - {{ sni: a.example.com, pool: a }}
      - {{ sni: b.example.com, pool: b }}
      - {{ sni: gone.example.com, action: reject }}
      - {{ pool: rest }}
pools:
  a: {}
  b: {}
  rest: {{ health: off, backends: [\"{}\"] }}
",
            pool(0),
            pool(1),
            rest.address()
        ));
        let address = pointsman.address("edge");
        Stubs { pointsman, address, pools, rest }
    }

    /// Sends from a new address; the client, which backend got it (pool and index), from where.
    fn send(&self, datagram: &[u8]) -> (UdpPeer, (usize, usize), String) {
        let client = UdpPeer::default();
        client.send(&self.address, datagram);
        let all = || (0..2).flat_map(|pool| (0..2).map(move |index| (pool, index)));
        let (at, got, from) = wait_for("a backend to get it", || {
            all().find_map(|(pool, index)| {
                let (got, from) = self.pools[pool][index].next()?;
                Some(((pool, index), got, from))
            })
        });
        assert_eq!(got, datagram);
        (client, at, from.to_string())
    }

    /// Sends what no backend with a name may get.
    fn expect_rejected(&self, datagram: &[u8], termination: &str) {
        let before = self.pointsman.metrics().closed("edge", termination);
        UdpPeer::default().send(&self.address, datagram);
        wait_until(termination, || {
            self.pointsman.metrics().closed("edge", termination) == before + 1.0
        });
        assert!(self.pools.iter().flatten().all(|backend| backend.next().is_none()));
        assert_eq!(self.rest.next(), None);
    }
}

/// The opening of a connection to a name, with this destination.
fn opening(name: &str, dcid: &[u8]) -> Vec<u8> {
    let hello = Hello::to(name).message();
    Initial { dcid: dcid.to_vec(), ..Initial::new(V1) }.datagram(&crypto(0, &hello))
}

/// A packet of a server's handshake, which nobody reads further than its ids.
fn handshake(kind: u8, dcid: &[u8], scid: &[u8]) -> Vec<u8> {
    let (dcid, scid) = (dcid.to_vec(), scid.to_vec());
    Initial { kind, dcid, scid, ..Initial::new(V1) }.datagram(&[0])
}

fn short(dcid: &[u8]) -> Vec<u8> {
    [&[0x41], dcid, &[0xee; 30]].concat()
}

const ORIGINAL: [u8; 8] = [0xa1; 8];

#[test]
fn a_hello_that_comes_again_goes_where_it_went() {
    let stubs = Stubs::start();
    let hello = opening("a.example.com", &ORIGINAL);
    let (_client, at, _) = stubs.send(&hello);
    assert_eq!(at.0, 0);
    for _ in 0..9 {
        assert_eq!(stubs.send(&hello).1, at);
    }
    // Another connection has its turn.
    let (_client, other, _) = stubs.send(&opening("a.example.com", &[0xa2; 8]));
    assert_eq!(other, (0, 1 - at.1));
    // What follows the hello, before the server has chosen an id.
    let early = Initial { kind: 1, dcid: ORIGINAL.to_vec(), ..Initial::new(V1) }.datagram(&[0]);
    UdpPeer::default().send(&stubs.address, &early);
    let records = stubs.pointsman.admin("GET", "/api/v1/sessions").1;
    assert!(records.contains("a.example.com"), "{records}");
}

/// Ids of every length, in every packet of a handshake, from addresses that were not there before.
#[test]
fn ids_are_learned_from_the_handshake_and_give_nobody_the_answers_of_another() {
    let stubs = Stubs::start();
    for length in 1..=20_u8 {
        let original = [length; 8];
        let (client, at, way) = stubs.send(&opening("a.example.com", &original));
        let backend = &stubs.pools[at.0][at.1];
        let chosen: Vec<u8> = (0..length).map(|index| 0xc0 ^ index ^ length << 3).collect();
        let kind = if length % 2 == 0 { HANDSHAKE } else { 0 };
        let answer = handshake(kind, &[0xc1; 4], &chosen);
        backend.send(&way, &answer);
        assert_eq!(client.wait().0, answer);
        let later = [
            short(&chosen),
            handshake(HANDSHAKE, &chosen, &[0xc1; 4]),
            // An Initial packet under the keys of the first id, as all of a connection are.
            Initial { dcid: chosen.clone(), keys_of: Some(original.to_vec()), ..Initial::new(V1) }
                .datagram(&[1]),
        ];
        for datagram in later {
            let (thief, other, other_way) = stubs.send(&datagram);
            assert_eq!(other, at, "{length} {datagram:x?}");
            assert_ne!(other_way, way);
            for number in 0..10 {
                backend.send(&way, &[number; 30]);
                assert_eq!(client.wait().0, [number; 30]);
            }
            backend.send(&other_way, b"to the other");
            assert_eq!(thief.wait().0, b"to the other");
            assert_eq!(thief.next(), None);
        }
        assert_eq!(client.next(), None);
    }
}

/// Whoever forges addresses never uses an id that a server has chosen, since he gets no answers.
#[test]
fn forged_openings_push_no_id_out_that_a_client_has_used() {
    let stubs = Stubs::start();
    let connect = |original: [u8; 8], chosen: [u8; 8]| {
        let (client, at, way) = stubs.send(&opening("a.example.com", &original));
        let backend = &stubs.pools[at.0][at.1];
        backend.send(&way, &handshake(HANDSHAKE, &[0xc1; 4], &chosen));
        client.wait();
        (client, at)
    };
    let (used, unused) = ([0xc1; 8], [0xc2; 8]);
    let (client, at) = connect(ORIGINAL, used);
    client.send(&stubs.address, &handshake(HANDSHAKE, &used, &[0xc1; 4]));
    let (got, _) = stubs.pools[at.0][at.1].wait();
    assert_eq!(got, handshake(HANDSHAKE, &used, &[0xc1; 4]));
    let (_waits, other) = connect([0xa2; 8], unused);
    assert_eq!(stubs.send(&short(&unused)).1, other);
    let is_unknown = |id: &[u8]| {
        UdpPeer::default().send(&stubs.address, &short(id));
        assert_eq!(stubs.rest.wait().0, short(id));
    };
    // What a client has made up does not become a server's choice by being used.
    is_unknown(&ORIGINAL);

    let (_waits, again) = connect([0xa3; 8], [0xc3; 8]);
    for number in 0..CONNECTION_IDS_UNUSED as u32 * 13 / 10 {
        let [_, _, high, low] = number.to_be_bytes();
        let forged = UdpSocket::bind(SocketAddr::from(([127, 1, high, low], 0))).unwrap();
        let id = u64::from(number).to_be_bytes();
        forged.send_to(&opening("b.example.com", &id), &stubs.address).unwrap();
        if number % 50 == 0 {
            stubs.pointsman.wait_received();
        }
    }
    stubs.pointsman.wait_received();
    stubs.pools[1].iter().for_each(|backend| while backend.next().is_some() {});
    assert_eq!(stubs.send(&short(&used)).1, at);
    // This was used from another address, where the answers of its server go as well.
    assert_eq!(stubs.send(&short(&unused)).1, other);
    assert_eq!(again.0, 0);
    is_unknown(&[0xc3; 8]);
}

/// An id that was learned for one name is no way around the routes of another.
#[test]
fn an_opening_is_routed_by_its_hello_whatever_its_id() {
    let stubs = Stubs::start();
    let (client, at, way) = stubs.send(&opening("a.example.com", &ORIGINAL));
    let chosen = [0xc7; 8];
    stubs.pools[at.0][at.1].send(&way, &handshake(0, &[0xc1; 4], &chosen));
    client.wait();
    let early = Initial { kind: 1, dcid: ORIGINAL.to_vec(), ..Initial::new(V1) }.datagram(&[0]);
    for (id, later) in [(ORIGINAL, early), (chosen, short(&chosen))] {
        stubs.expect_rejected(&opening("gone.example.com", &id), "rejected");
        let (_other, there, _) = stubs.send(&opening("b.example.com", &id));
        assert_eq!(there.0, 1);
        // And does not draw that connection to another backend.
        for _ in 0..4 {
            assert_eq!(stubs.send(&later).1, at);
        }
    }
}
