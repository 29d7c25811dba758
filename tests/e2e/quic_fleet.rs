//! Instances that have nothing in common but their configuration: whichever of them gets a packet,
//! it goes to the backend that has its connection.

use std::collections::BTreeSet;

use pointsman::wire::quic::lb::Routable;

use crate::harness::hello::Hello;
use crate::harness::initial::{HANDSHAKE, Initial, V1, ZERO_RTT, crypto};
use crate::harness::{Pointsman, UdpClient, UdpPeer, wait_for};

const HOST: &str = "shop.example.com";
const KEY: [u8; 16] = [0x5a; 16];
const NONCE: usize = 6;

/// Backends that keep what they get, and two instances whose files name them in another order.
struct Fleet {
    instances: [(Pointsman, String); 2],
    backends: Vec<UdpPeer>,
}

impl Fleet {
    fn start() -> Self {
        let backends: Vec<_> = (0..5).map(|_| UdpPeer::default()).collect();
        let lines = backends.iter().zip(0..).map(|(backend, index)| {
            let id: String = server_id(index).iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{{ address: \"{}\", server_id: \"{id}\" }}", backend.address())
        });
        let mut lines: Vec<_> = lines.collect();
        let key: String = KEY.iter().map(|byte| format!("{byte:02x}")).collect();
        let instances = [(); 2].map(|()| {
            lines.reverse();
            let pointsman = Pointsman::start(&format!(
                "workers: 2
listeners:
  edge:
    bind: 127.0.0.1:0
    protocol: udp
    preread: {{ timeout: 60s }}
    routes: [{{ sni: {HOST}, pool: pool }}, {{ pool: pool }}]
pools:
  pool:
    balance: {{ policy: maglev, key: source }}
    health: off
    quic_lb: {{ config: 2, key: \"{key}\", nonce_length: {NONCE} }}
    backends: [{}]
",
                lines.join(", ")
            ));
            let address = pointsman.address("edge");
            (pointsman, address)
        });
        Fleet { instances, backends }
    }

    /// Sends from a client at this address to an instance; which backend got it.
    fn send(&self, client: u8, instance: usize, datagrams: &[&[u8]]) -> usize {
        let own = format!("127.0.1.{client}:0");
        let client = UdpClient::from(&own, &self.instances[instance].1);
        datagrams.iter().for_each(|datagram| client.send(datagram));
        let find = || {
            let mut all = self.backends.iter().enumerate();
            all.find_map(|(index, backend)| Some((index, backend.next()?.0)))
        };
        let (index, first) = wait_for("a backend to get it", find);
        assert_eq!(first, datagrams[0]);
        datagrams[1..].iter().for_each(|next| assert_eq!(self.backends[index].wait().0, *next));
        index
    }
}

fn server_id(index: u8) -> [u8; 2] {
    [0xb0, index]
}

/// The id that a server makes.
fn id_of(routable: &Routable, server: [u8; 2], number: u8) -> Vec<u8> {
    routable.encode(&server, &[number; NONCE]).unwrap().as_slice().to_vec()
}

fn opening(dcid: &[u8]) -> Vec<u8> {
    let hello = Hello::to(HOST).message();
    Initial { dcid: dcid.to_vec(), ..Initial::new(V1) }.datagram(&crypto(0, &hello))
}

fn long(kind: u8, dcid: &[u8]) -> Vec<u8> {
    Initial { kind, dcid: dcid.to_vec(), ..Initial::new(V1) }.datagram(&[0])
}

fn short(dcid: &[u8]) -> Vec<u8> {
    [&[0x41], dcid, &[0xee; 30]].concat()
}

#[test]
fn a_packet_reaches_its_backend_by_any_instance() {
    let fleet = Fleet::start();
    let routable = Routable::new(2, Some(KEY), 2, NONCE).unwrap();
    let mut used = BTreeSet::new();
    for client in 1..=20 {
        // Nobody has chosen an id yet: the hash of the address decides, by any instance.
        let first = [client; 8];
        let (hello, early) = (opening(&first), long(ZERO_RTT, &first));
        let backend = fleet.send(client, 0, &[&hello]);
        assert_eq!(fleet.send(client, 1, &[&hello, &early]), backend);
        used.insert(backend);
        // From then on the id does, wherever the client is, and from the handshake on: no instance
        // has seen the server choose it.
        let chosen = id_of(&routable, server_id(backend as u8), client);
        for (instance, elsewhere) in [(1, 0), (0, 100), (1, 150), (0, 200)] {
            let from = client + elsewhere;
            assert_eq!(fleet.send(from, instance, &[&long(HANDSHAKE, &chosen)]), backend);
            assert_eq!(fleet.send(from, instance, &[&short(&chosen)]), backend);
        }
    }
    assert!(used.len() > 2, "{used:?}");
}

/// What names nobody goes by its address, alike everywhere: ids of another configuration, of a
/// server that is not there, or cut short; and what a client makes up for its first packets,
/// although it would name somebody.
#[test]
fn an_id_that_names_nobody_is_hashed_alike() {
    let fleet = Fleet::start();
    let other = Routable::new(3, Some(KEY), 2, NONCE).unwrap();
    let routable = Routable::new(2, Some(KEY), 2, NONCE).unwrap();
    let mut used = BTreeSet::new();
    for client in 1..=20 {
        let by_address = fleet.send(client, 0, &[&opening(&[client; 8])]);
        used.insert(by_address);
        let named = server_id((by_address as u8 + 1) % 5);
        let made_up = id_of(&routable, named, client);
        for datagram in [
            short(&id_of(&other, named, client)),
            short(&id_of(&routable, [0xb1, 0], client)),
            [&[0x41], &made_up[..5]].concat(),
            opening(&made_up),
        ] {
            for instance in [0, 1] {
                assert_eq!(fleet.send(client, instance, &[&datagram]), by_address, "{client}");
            }
        }
    }
    assert!(used.len() > 2, "{used:?}");
}
