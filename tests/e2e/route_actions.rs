//! What a route does other than lead to one pool: reject, reset, split; and the policies that hash
//! the name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use crate::harness::hello::{Hello, record};
use crate::harness::{Edge, Pointsman, Stream, answer, answering, captured, wait_until};

/// Fatal (2) unrecognized_name (112), in a record of TLS 1.2's version as every client reads it.
const ALERT: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x70];

fn hello(name: &str) -> Vec<u8> {
    Hello::to(name).bytes()
}

/// A client that has sent more than anybody read still gets the alert, and FIN behind it.
#[test]
fn reject_sends_an_alert_that_can_be_read() {
    let routes = ["{ sni: \"*.example.com\", action: reject }", "{ pool: other }"];
    let edge = Edge::start(&[], &routes, &["other"]);
    let early = record(23, &[7; 16_000]);
    let flights = [
        hello("old.example.com"),
        captured("chromium-156"),
        [hello("old.example.com"), early.clone()].concat(),
        [hello("old.example.com"), early.repeat(20)].concat(),
    ];
    for flight in &flights {
        let mut stream = edge.connect();
        stream.write(flight);
        wait_until("the end", || stream.is_hung_up());
        // It goes on sending, and has not read yet.
        stream.write(&early);
        edge.pointsman.wait_received();
        assert_eq!(stream.read(7), ALERT);
        stream.expect_end();
    }
    // One that has said all it had to say.
    let mut stream = edge.connect();
    stream.write(&flights[0]);
    stream.finish();
    assert_eq!(stream.read_to_end(), ALERT);
    drop(stream);
    edge.expect_closed("rejected", flights.len() + 1);
    assert_eq!(edge.reached(), 0);
    assert_eq!(edge.ask(b"not TLS").as_deref(), Some("other"));
    let records = edge.pointsman.access_log(flights.len() + 2);
    let name = |index: usize| records[index].text("sni");
    assert_eq!((name(0), name(1)), ("old.example.com", "shop.example.com"));
}

/// The alert is for everybody who speaks TLS, also where no name is asked for.
#[test]
fn reject_by_source_alone_sends_the_alert() {
    let routes = ["{ source: 127.0.0.0/8, action: reject }", "{ pool: other }"];
    let edge = Edge::start(&[], &routes, &["other"]);
    let mut stream = edge.connect();
    stream.write(&hello("a.example.com"));
    assert_eq!(stream.read_to_end(), ALERT);
    drop(stream);
    edge.expect_closed("rejected", 1);
    assert_eq!(edge.reached(), 0);
}

/// Who does not speak TLS would not know what to do with an alert.
#[test]
fn reject_without_tls_is_fin() {
    let routes = ["{ sni: a.example.com, pool: a }", "{ action: reject }"];
    let edge = Edge::start(&[], &routes, &["a"]);
    let mut stream = edge.connect();
    stream.write(b"GET / HTTP/1.1\r\n\r\n");
    stream.expect_end();
    drop(stream);
    let mut stream = edge.connect();
    stream.write(&Hello::plain().bytes());
    assert_eq!(stream.read_to_end(), ALERT);
    drop(stream);
    edge.expect_closed("rejected", 2);
}

#[test]
fn reset_is_rst() {
    let routes = ["{ sni: old.example.com, action: reset }", "{ pool: other }"];
    let edge = Edge::start(&[], &routes, &["other"]);
    for flight in [hello("old.example.com"), [hello("old.example.com"), vec![0; 9000]].concat()] {
        let mut stream = edge.connect();
        stream.write(&flight);
        stream.expect_reset();
    }
    edge.expect_closed("rejected", 2);
    assert_eq!(edge.reached(), 0);
    assert!(edge.pointsman.access_log(2).iter().all(|r| r.text("sni") == "old.example.com"));
}

fn client(number: u32) -> SocketAddr {
    // A prime step spreads them over 127.0.0.0/8.
    SocketAddr::from((Ipv4Addr::from_bits(0x7f01_0001 + number * 8191), 0))
}

/// The answer to a client at this address.
fn ask_from(source: SocketAddr, address: &str, bytes: &[u8]) -> String {
    let mut stream = Stream::connect_from(source, address).unwrap();
    stream.write(bytes);
    stream.finish();
    answer(&stream.read_to_end(), bytes).expect("an answer")
}

/// A five-tuple is another for each connection: under a split the client's address decides, or a
/// client would see both pools.
#[test]
fn a_split_before_a_hash_of_five_tuples_is_stable_by_source() {
    let [main, canary] = [answering("main"), answering("canary")];
    let pool = |backend: &crate::harness::Backend| {
        format!("{{ backends: [\"{}\"], balance: maglev, health: off }}", backend.address())
    };
    let split = "[{ pool: main, weight: 1 }, { pool: canary, weight: 1 }]";
    let yaml = format!(
        "listeners:\n  edge: {{ bind: \"127.0.0.1:0\", routes: [{{ split: {split} }}] }}\n\
         pools:\n  main: {}\n  canary: {}\n",
        pool(&main),
        pool(&canary)
    );
    let pointsman = Pointsman::start(&yaml);
    let edge = pointsman.address("edge");
    let pools: BTreeSet<_> = (0..20)
        .map(|number| {
            let ask = |_| ask_from(client(number), &edge, b"hello");
            let seen: BTreeSet<_> = (0..8).map(ask).collect();
            assert_eq!(seen.len(), 1, "client {number}: {seen:?}");
            seen
        })
        .collect();
    assert_eq!(pools.len(), 2, "20 clients, half each");
}

#[test]
fn a_split_is_stable_by_source() {
    const CLIENTS: u32 = 400;
    let main = answering("main");
    let canary = answering("canary");
    let pool = |backend: &crate::harness::Backend| {
        let balance = "{ policy: maglev, key: source }";
        format!("{{ backends: [\"{}\"], balance: {balance}, health: off }}", backend.address())
    };
    let split = "[{ pool: main, weight: 95 }, { pool: canary, weight: 5 }]";
    let yaml = format!(
        "listeners:\n  edge:\n    bind: \"127.0.0.1:0\"\n    routes:\n\
         \x20     - {{ sni: www.example.com, split: {split} }}\n\
         pools:\n  main: {}\n  canary: {}\n",
        pool(&main),
        pool(&canary)
    );
    let bytes = hello("www.example.com");
    let round = || -> Vec<String> {
        let pointsman = Pointsman::start(&yaml);
        let edge = pointsman.address("edge");
        let ask = |number| ask_from(client(number), &edge, &bytes);
        let first: Vec<_> = (0..CLIENTS).map(ask).collect();
        // From another port, the same.
        assert!((0..50).all(|number| ask(number) == first[number as usize]));
        first
    };
    let first = round();
    let canaries = first.iter().filter(|pool| *pool == "canary").count();
    // The mean is 20, and four standard deviations are 17.
    assert!((3..=37).contains(&canaries), "{canaries}");
    assert_eq!(round(), first, "after a restart");
}

#[test]
fn one_name_keeps_its_backend() {
    let names = ["b0", "b1", "b2", "b3", "b4"];
    let backends = names.map(answering);
    let list: Vec<_> = backends.iter().map(|b| format!("\"{}\"", b.address())).collect();
    for policy in ["maglev", "hash"] {
        let yaml = format!(
            "listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool }} }}\n\
             pools: {{ pool: {{ balance: {{ policy: {policy}, key: sni }}, \
             health: off, backends: [{}] }} }}\n",
            list.join(", ")
        );
        let round = || -> BTreeMap<u32, String> {
            let pointsman = Pointsman::start(&yaml);
            let edge = pointsman.address("edge");
            let ask = |number: u32| {
                // Neither the client's address nor how the name is spelled matters.
                let lower = hello(&format!("host{number}.example.com"));
                let upper = hello(&format!("HOST{number}.Example.com."));
                let picked = ask_from(client(number), &edge, &lower);
                assert_eq!(ask_from(client(number + 100), &edge, &lower), picked);
                assert_eq!(ask_from(client(number + 200), &edge, &upper), picked);
                picked
            };
            (0..60).map(|number| (number, ask(number))).collect()
        };
        let first = round();
        let used: BTreeSet<_> = first.values().collect();
        assert_eq!(used.len(), names.len(), "{policy}: {first:?}");
        assert_eq!(round(), first, "{policy} after a restart");
    }
}

/// Without a name the client's address takes its place.
#[test]
fn without_a_name_the_source_is_hashed() {
    let backends = ["b0", "b1", "b2", "b3"].map(answering);
    let list: Vec<_> = backends.iter().map(|b| format!("\"{}\"", b.address())).collect();
    let yaml = format!(
        "listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool }} }}\n\
         pools: {{ pool: {{ balance: {{ policy: maglev, key: sni }}, \
         health: off, backends: [{}] }} }}\n",
        list.join(", ")
    );
    let pointsman = Pointsman::start(&yaml);
    let edge = pointsman.address("edge");
    let mut used = BTreeSet::new();
    for number in 0..40 {
        let picked = ask_from(client(number), &edge, b"not TLS");
        assert_eq!(ask_from(client(number), &edge, &Hello::plain().bytes()), picked);
        used.insert(picked);
    }
    assert_eq!(used.len(), 4);
}
