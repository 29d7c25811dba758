//! What is no QUIC at a listener that reads it.

use crate::harness::{Pointsman, UdpBackend, UdpClient, wait_until};

const EDGE: (&str, &str) = ("listener", "edge");

fn routed(backend: &UdpBackend, more: &str, other: &str) -> Pointsman {
    Pointsman::start(&format!(
        "workers: 2\nlisteners:\n  edge:\n    bind: 127.0.0.1:0\n    protocol: udp\n    {more}\n    \
         routes:\n      - {{ sni: a.example.com, pool: pool }}\n{other}\
         pools: {{ pool: {{ backends: [\"{}\"] }} }}\n",
        backend.address()
    ))
}

/// Random bytes, most of which look like the beginning of an Initial.
fn garbage(random: &mut fastrand::Rng) -> Vec<u8> {
    let length = [0, 1, 7, 40, 300, 1200, 1200, 1350, 1472][random.usize(0..9)];
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
    let head: &[u8] = match random.u8(0..5) {
        0 => &[],
        1 => &[0xc3, 0, 0, 0, 1, 8],
        2 => &[0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x96],
        3 => &[0xd3, 0x6b, 0x33, 0x43, 0xcf, 8],
        _ => &[0xc3, 0xfa, 0xce, 0xb0, 0x0c, 20],
    };
    let shared = head.len().min(bytes.len());
    bytes[..shared].copy_from_slice(&head[..shared]);
    bytes
}

#[test]
fn floods_of_garbage_harm_nothing() {
    const ROUNDS: usize = 12;
    let backend = UdpBackend::echo("a");
    let more = "timeouts: { idle: 200ms }\n    limits: { flows: 500 }\n    \
                preread: { timeout: 100ms }\n    \
                udp: { receive_buffer: 4MiB }";
    let mut pointsman = routed(&backend, more, "");
    let edge = pointsman.address("edge");
    let mut random = fastrand::Rng::with_seed(3);
    let mut early = 0;
    for round in 0..ROUNDS {
        let clients: Vec<_> = (0..20).map(|_| UdpClient::to(&edge)).collect();
        for _ in 0..20 {
            clients.iter().for_each(|client| client.send(garbage(&mut random)));
        }
        pointsman.wait_received();
        assert!(pointsman.metrics().active("edge") <= 500.0);
        if round == ROUNDS / 4 {
            early = pointsman.resident();
        }
    }
    assert!(pointsman.running());
    let grown = pointsman.resident().saturating_sub(early);
    assert!(grown < 8 << 20, "{grown} bytes more");
    let metrics = pointsman.wait_idle();
    assert_eq!(backend.count(), 0);
    let sent = (ROUNDS * 20 * 20) as f64;
    let closed = metrics.sum("pointsman_connections_closed_total", EDGE);
    assert!(closed > 0.0 && closed <= sent);
    let log = pointsman.log();
    assert!(!log.contains("panic"), "{log}");
    wait_until("all drops", || {
        pointsman.metrics().sum("pointsman_udp_dropped_total", EDGE) == sent
    });
}

/// Nothing that looks like a hello, and never ends, is kept longer than it may.
#[test]
fn unfinished_hellos_are_given_up() {
    let backend = UdpBackend::echo("a");
    let pointsman = routed(&backend, "preread: { timeout: 200ms }", "");
    let edge = pointsman.address("edge");
    // An unknown version is no hello of ours, and satisfies no `sni`.
    let client = UdpClient::to(&edge);
    let mut unknown = vec![0xc0, 0xfa, 0xce, 0xb0, 0x0c, 8];
    unknown.resize(1200, 7);
    client.send(&unknown);
    client.send("plain");
    let records = pointsman.access_log(2);
    assert!(records.iter().all(|record| record.text("termination") == "no_route"), "{records:?}");
    // A known one that does not decrypt is dropped.
    let mut broken = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x96];
    broken.resize(1200, 7);
    client.send(&broken);
    let record = pointsman.access_log(3).remove(2);
    let termination = record.text("termination");
    assert!(["preread_invalid", "preread_timeout"].contains(&termination), "{record:?}");
    assert_eq!(backend.count(), 0);
}

/// A default route takes what is no QUIC at all.
#[test]
fn a_default_route_takes_the_rest() {
    let backend = UdpBackend::echo("a");
    let pointsman = routed(&backend, "timeouts: { idle: 1h }", "      - { pool: pool }\n");
    let client = UdpClient::to(&pointsman.address("edge"));
    for text in ["plain", "again", "and again"] {
        assert_eq!(client.backend(text), "a");
    }
    assert_eq!(pointsman.metrics().active("edge"), 1.0);
}
