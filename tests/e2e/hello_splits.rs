//! A hello in pieces: over segments and records, cut anywhere, large, with more behind it. It takes
//! the right route, and the backend gets what was sent, byte for byte.

use std::time::{Duration, Instant};

use crate::harness::hello::{Hello, record, records};
use crate::harness::{Edge, captured, expect_record, pass};

const ROUTES: [&str; 6] = [
    "{ sni: shop.example.com, pool: shop }",
    "{ sni: ff.example.com, pool: ff }",
    "{ sni: ossl.example.com, alpn: h2, pool: ossl }",
    "{ sni: old.example.com, pool: old }",
    "{ sni: made.example.com, alpn: h2, pool: made }",
    "{ pool: other }",
];
const POOLS: [&str; 6] = ["shop", "ff", "ossl", "old", "made", "other"];

/// A first flight and the pool it must go to.
type Flight = (&'static str, Vec<u8>);

fn edge() -> Edge {
    // No test takes so long, however busy the machine.
    Edge::start(&["preread: { timeout: 60s }"], &ROUTES, &POOLS)
}

fn real() -> Vec<Flight> {
    let files = ["chromium-156", "firefox-esr", "openssl-3.0", "openssl-tls12", "openssl-no-sni"];
    let pools = ["shop", "ff", "ossl", "old", "other"];
    pools.into_iter().zip(files.map(captured)).collect()
}

fn made() -> Hello {
    Hello::plain().alpn(&["h2", "http/1.1"]).extension(0, sni("made.example.com"))
}

fn sni(name: &str) -> Vec<u8> {
    crate::harness::hello::server_name(name.as_bytes())
}

/// The handshake message in a flight of one record.
fn message(flight: &[u8]) -> &[u8] {
    &flight[5..]
}

/// Each flight, in its parts, goes where it must.
#[track_caller]
fn expect(edge: &Edge, pool: &str, flights: &[Vec<Vec<u8>>]) {
    let answers = edge.ask_all(flights);
    assert_eq!(answers.len(), flights.len());
    for (number, answer) in answers.iter().enumerate() {
        let sizes: Vec<_> = flights[number].iter().map(Vec::len).collect();
        assert_eq!(answer.as_deref(), Some(pool), "flight {number} in parts of {sizes:?} bytes");
    }
}

/// Cut in two at `at`.
fn cut(flight: &[u8], at: usize) -> Vec<Vec<u8>> {
    let (one, other) = flight.split_at(at);
    vec![one.to_vec(), other.to_vec()]
}

#[test]
fn two_segments_cut_at_every_offset() {
    let edge = edge();
    let mut count = 0;
    for (pool, flight) in real().into_iter().chain([("made", made().post_quantum().bytes())]) {
        let flights: Vec<_> = (1..flight.len()).map(|at| cut(&flight, at)).collect();
        expect(&edge, pool, &flights);
        count += flights.len();
    }
    assert_eq!(edge.reached(), count);
    edge.expect_closed("client_closed", count);
}

#[test]
fn a_segment_a_byte() {
    let edge = edge();
    let small = [("made", made().bytes()), ("ossl", captured("openssl-3.0"))];
    for (pool, flight) in small {
        let parts: Vec<_> = flight.iter().map(|byte| vec![*byte]).collect();
        expect(&edge, pool, &[parts]);
    }
}

/// One segment, or two that meet in the header of the second record.
#[test]
fn two_records_cut_at_every_offset() {
    let edge = edge();
    for (pool, flight) in real().into_iter().chain([("made", made().bytes())]) {
        let message = message(&flight);
        let flights: Vec<_> = (1..message.len())
            .map(|at| {
                let bytes = records(message, [at]);
                if at % 2 == 0 { vec![bytes] } else { cut(&bytes, 5 + at + 1 + at / 2 % 4) }
            })
            .collect();
        expect(&edge, pool, &flights);
    }
}

#[test]
fn three_records_cut_at_every_offset() {
    let edge = edge();
    let mut rng = fastrand::Rng::with_seed(3);
    for (pool, flight) in real().into_iter().chain([("made", made().bytes())]) {
        let message = message(&flight);
        let flights: Vec<_> = (1..message.len() - 1)
            .map(|at| {
                let second = rng.usize(1..message.len() - at);
                vec![records(message, [at, second])]
            })
            .collect();
        expect(&edge, pool, &flights);
    }
}

#[test]
fn a_record_a_byte() {
    let edge = edge();
    for (pool, flight) in real().into_iter().chain([("made", made().bytes())]) {
        let bytes = records(message(&flight), std::iter::repeat(1));
        assert_eq!(bytes.len(), 6 * (flight.len() - 5));
        let whole = vec![bytes.clone()];
        let in_threes = bytes.chunks(bytes.len() / 3).map(<[u8]>::to_vec).collect();
        expect(&edge, pool, &[whole, in_threes]);
    }
}

#[test]
fn large_ones() {
    let edge = edge();
    for (length, step) in [(16 << 10, 97), (60 << 10, 997)] {
        let padded = made().post_quantum().padded_to(length);
        let message = padded.message();
        for sizes in [vec![], vec![200; 400], vec![16_384, 1, 2, 3]] {
            let bytes = records(&message, sizes);
            let flights: Vec<_> =
                (1..bytes.len()).step_by(step).map(|at| cut(&bytes, at)).collect();
            expect(&edge, "made", &flights);
        }
    }
    let tiny = records(&made().padded_to(16 << 10).message(), std::iter::repeat(2));
    expect(&edge, "made", &[vec![tiny]]);
}

/// 0-RTT data and a ChangeCipherSpec are the backend's, be they in the hello's segment or behind.
#[test]
fn what_follows_at_once() {
    let edge = edge();
    let cipher_spec = record(20, &[1]);
    let early = [record(23, &[0x5a; 16_000]), record(23, &[0xa5; 700])].concat();
    let behind =
        [cipher_spec.clone(), early.clone(), [&cipher_spec[..], &early].concat(), vec![0; 150_000]];
    for (pool, flight) in real().into_iter().chain([("made", made().bytes())]) {
        let in_two = records(message(&flight), [100]);
        let mut flights = Vec::new();
        for hello in [&flight, &in_two] {
            for behind in &behind {
                let all = [hello.as_slice(), behind].concat();
                let around = hello.len() - 8..hello.len() + 8;
                flights.extend(around.filter(|at| *at < all.len()).map(|at| cut(&all, at)));
                flights.push(vec![all]);
            }
        }
        expect(&edge, pool, &flights);
    }
}

/// Every byte comes soon after the one before it; all of them together do not come in time.
#[test]
fn one_deadline_for_all_of_it() {
    let edge = Edge::start(&["preread: { timeout: 600ms }"], &ROUTES, &POOLS);
    let mut stream = edge.connect();
    let begun = Instant::now();
    for byte in made().post_quantum().bytes() {
        stream.write(&[byte]);
        pass(Duration::from_millis(15));
        if stream.is_hung_up() {
            break;
        }
    }
    stream.expect_end();
    let took = begun.elapsed();
    assert!((Duration::from_millis(590)..Duration::from_secs(4)).contains(&took), "{took:?}");
    drop(stream);
    let record = expect_record(&edge.pointsman, "preread_timeout");
    assert!(record.number("preread_ms") >= 600.0, "{record:?}");
    assert_eq!(edge.reached(), 0);
}
