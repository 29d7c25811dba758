//! Which backend a client gets: the same for everyone who computes it, and nothing that grows
//! with the number of clients.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use crate::harness::{Backend, Pointsman, Stream, one_listener};

const CLIENTS: u32 = 200;

fn client(number: u32) -> SocketAddr {
    // A prime step spreads them over 127.0.0.0/8.
    let ip = Ipv4Addr::from_bits(0x7f01_0001 + number * 8191);
    SocketAddr::from((ip, 0))
}

/// The backend of each client by its source address.
fn picks(pointsman: &Pointsman) -> BTreeMap<String, String> {
    let edge = pointsman.address("edge");
    for number in 0..CLIENTS {
        let mut stream = Stream::connect_from(client(number), &edge).unwrap();
        stream.send(1);
        stream.receive(1);
    }
    let records = pointsman.access_log(CLIENTS as usize);
    let ip = |text: &str| text.rsplit_once(':').expect("IP:PORT").0.to_owned();
    records.iter().map(|r| (ip(r.text("client")), r.text("backend").to_owned())).collect()
}

#[test]
fn hashes_pick_alike_in_any_order_and_after_a_restart() {
    let backends: Vec<_> = (0..5).map(|_| Backend::echo()).collect();
    let mut addresses: Vec<_> = backends.iter().map(Backend::address).collect();
    let mut rng = fastrand::Rng::with_seed(45);
    for policy in ["hash", "maglev"] {
        let settings = format!("balance: {{ policy: {policy}, key: source }}");
        let mut first = None;
        for _ in 0..3 {
            rng.shuffle(&mut addresses);
            let list: Vec<_> = addresses.iter().map(String::as_str).collect();
            let pointsman = Pointsman::start(&one_listener("", &list, &settings));
            let picked = picks(&pointsman);
            pointsman.stop();
            assert_eq!(picked.len(), CLIENTS as usize);
            let mut counts = BTreeMap::<_, u32>::new();
            picked.values().for_each(|backend| *counts.entry(backend.clone()).or_default() += 1);
            assert_eq!(counts.len(), 5, "{policy}: not spread: {counts:?}");
            assert_eq!(first.get_or_insert_with(|| picked.clone()), &picked, "{policy}");
        }
    }
}

/// A client keeps its backend, whatever port it comes from.
#[test]
fn source_ignores_the_port() {
    let backends: Vec<_> = (0..5).map(|_| Backend::echo()).collect();
    let addresses: Vec<_> = backends.iter().map(Backend::address).collect();
    let list: Vec<_> = addresses.iter().map(String::as_str).collect();
    let settings = "balance: { policy: maglev, key: source }";
    let pointsman = Pointsman::start(&one_listener("", &list, settings));
    for _ in 0..30 {
        let mut stream = pointsman.connect("edge");
        stream.send(1);
        stream.receive(1);
    }
    let records = pointsman.access_log(30);
    let first = records[0].text("backend");
    assert!(records.iter().all(|record| record.text("backend") == first));
}

#[test]
fn round_robin_is_exact_over_all_workers() {
    let backends: Vec<_> = (0..3).map(|_| Backend::echo()).collect();
    let addresses: Vec<_> = backends.iter().map(Backend::address).collect();
    let list: Vec<_> = addresses.iter().map(String::as_str).collect();
    let pointsman = Pointsman::start(&one_listener("", &list, "balance: round_robin"));
    for _ in 0..300 {
        let mut stream = pointsman.connect("edge");
        stream.send(1);
        stream.receive(1);
    }
    let metrics = pointsman.wait_idle();
    for address in &addresses {
        let labels = [("pool", "pool"), ("backend", address.as_str())];
        assert_eq!(metrics.value("pointsman_backend_connections_total", &labels), 100.0);
    }
}

#[test]
fn least_conn_fills_evenly() {
    let backends: Vec<_> = (0..4).map(|_| Backend::echo()).collect();
    let addresses: Vec<_> = backends.iter().map(Backend::address).collect();
    let list: Vec<_> = addresses.iter().map(String::as_str).collect();
    let pointsman = Pointsman::start(&one_listener("", &list, "balance: least_conn"));
    let mut streams: Vec<_> = (0..80)
        .map(|_| {
            let mut stream = pointsman.connect("edge");
            stream.send(1);
            stream.receive(1);
            stream
        })
        .collect();
    streams.iter_mut().for_each(|stream| stream.send(1));
    let metrics = pointsman.metrics();
    for address in &addresses {
        let labels = [("pool", "pool"), ("backend", address.as_str())];
        assert_eq!(metrics.value("pointsman_backend_connections_active", &labels), 20.0);
    }
}

#[test]
fn a_thousand_clients_add_no_series() {
    let backend = Backend::echo();
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], ""));
    let edge = pointsman.address("edge");
    let session = |number| {
        let mut stream = Stream::connect_from(client(number), &edge).unwrap();
        stream.send(1);
        stream.receive(1);
    };
    session(0);
    let before = pointsman.wait_idle().names();
    (1..1000).for_each(session);
    let metrics = pointsman.wait_idle();
    assert_eq!(metrics.value("pointsman_connections_total", &[("listener", "edge")]), 1000.0);
    assert_eq!(metrics.names(), before);
    let clients: std::collections::BTreeSet<_> =
        pointsman.access_log(1000).iter().map(|r| r.text("client").to_owned()).collect();
    assert_eq!(clients.len(), 1000);
}
