//! The reader of hellos against every way that one can arrive, be broken, or be read by others.

use std::fs;
use std::time::{Duration, Instant};

use pointsman::wire::ClientHello;
use pointsman::wire::client_hello::{Answer, Reader};
use proptest::collection::vec;
use proptest::prelude::*;

mod builder;
mod fuzz;
mod oracle;

use builder::{Hello, record, records};
use oracle::{MAX, Reading, normal, read, read_split, reading, tls_parser};

const VECTORS: [&str; 5] =
    ["chromium-156", "firefox-esr", "openssl-3.0", "openssl-no-sni", "openssl-tls12"];

/// The vectors as bytes; each is one record.
fn vectors() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let read = |name| (name, fs::read(format!("tests/data/hellos/{name}.bin")).unwrap());
    VECTORS.into_iter().map(read)
}

/// The vectors, and hellos of our own: post-quantum, padded to 16 and 60 KiB.
fn hellos() -> Vec<Vec<u8>> {
    let mut all: Vec<_> = vectors().map(|(_, bytes)| bytes).collect();
    let large = Hello::to("large.example.com").alpn(&["h2", "acme-tls/1"]).post_quantum();
    all.push(large.bytes());
    all.extend([16 * 1024, 60 * 1024].map(|length| large.clone().padded_to(length).bytes()));
    all
}

#[track_caller]
fn hello(bytes: &[u8]) -> ClientHello {
    match read(bytes) {
        Answer::Hello(hello) => hello,
        other => panic!("{other:?}"),
    }
}

/// What rustls' own server would be told.
fn rustls(mut bytes: &[u8]) -> Option<Reading> {
    let mut acceptor = ::rustls::server::Acceptor::default();
    while !bytes.is_empty() {
        acceptor.read_tls(&mut bytes).unwrap();
        if let Some(accepted) = acceptor.accept().ok()? {
            let hello = accepted.client_hello();
            let name = hello.server_name().and_then(|name| normal(name.as_bytes()));
            let alpn = hello.alpn().into_iter().flatten().map(<[u8]>::to_vec).collect();
            return Some((name, alpn));
        }
    }
    None
}

/// The message in a vector.
fn message(bytes: &[u8]) -> &[u8] {
    &bytes[5..]
}

#[test]
fn every_prefix_needs_more() {
    for bytes in hellos() {
        // One reader through all of them, and a new one for each of the first.
        let mut reader = Reader::new(MAX);
        for end in 0..bytes.len() {
            assert_eq!(reader.advance(&bytes[..end]), Answer::NeedMore, "{end}");
            if end < 2500 {
                assert_eq!(read(&bytes[..end]), Answer::NeedMore, "{end}");
            }
        }
        assert_eq!(reader.advance(&bytes), Answer::Hello(hello(&bytes)));
    }
}

#[test]
fn split_into_two_segments_anywhere() {
    for bytes in hellos() {
        let expected = Answer::Hello(hello(&bytes));
        for end in 0..bytes.len() {
            assert_eq!(read_split(&bytes, [end], MAX), expected, "{end}");
        }
    }
}

#[test]
fn over_two_records_anywhere() {
    for (name, bytes) in vectors() {
        let expected = Answer::Hello(hello(&bytes));
        for at in 1..message(&bytes).len() {
            let cut = records(message(&bytes), [at]);
            assert_eq!(read(&cut), expected, "{name} {at}");
            assert_eq!(read(&cut[..cut.len() - 1]), Answer::NeedMore, "{name} {at}");
            // Nothing of another type comes between.
            let (first, second) = cut.split_at(at + 5);
            for kind in [20, 21, 23, 24] {
                let broken = [first, &record(kind, &[0]), second].concat();
                assert!(matches!(read(&broken), Answer::Reject(_)), "{name} {at}");
            }
            let empty = [first, &record(22, &[]), second].concat();
            assert!(matches!(read(&empty), Answer::Reject(_)), "{name} {at}");
        }
    }
}

/// All pairs of places in the smaller vectors; of the larger, pairs close to each other.
#[test]
fn over_three_records_anywhere() {
    for (name, bytes) in vectors() {
        let expected = Answer::Hello(hello(&bytes));
        let length = message(&bytes).len();
        let furthest = if length < 400 { length } else { 8 };
        for first in 1..length - 1 {
            for second in 1..furthest.min(length - first) {
                let cut = records(message(&bytes), [first, second]);
                assert_eq!(read(&cut), expected, "{name} {first} {second}");
            }
        }
    }
}

#[test]
fn one_byte_a_record() {
    for bytes in hellos().iter().filter(|bytes| bytes.len() < 10_000) {
        let expected = Answer::Hello(hello(bytes));
        let cut = records(message(bytes), std::iter::repeat(1));
        assert_eq!(cut.len(), message(bytes).len() * 6);
        assert_eq!(read(&cut), expected);
        assert_eq!(read_split(&cut, 0..cut.len(), MAX), expected);
        assert_eq!(read_split(&cut, [], cut.len() - 1), Answer::TooLarge);
    }
}

/// Cut at every byte of every record, with what follows already there.
#[test]
fn followed_by_other_data() {
    let after = [record(20, &[1]), record(23, &[7; 5000]), b"GET /".to_vec()].concat();
    for bytes in hellos() {
        let expected = Answer::Hello(hello(&bytes));
        let followed = [&bytes[..], &after].concat();
        assert_eq!(read(&followed), expected);
        for end in bytes.len() - 6..bytes.len() + 6 {
            assert_eq!(read_split(&followed, [end], MAX), expected, "{end}");
        }
    }
}

/// Whatever one bit does: what is accepted is what others read too, and only a first byte that is
/// no record's makes it another protocol.
#[test]
fn every_bit_flipped() {
    for (name, bytes) in vectors() {
        for at in 0..bytes.len().min(600) {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                match read(&flipped) {
                    Answer::Hello(hello) => {
                        let expected = tls_parser(&flipped);
                        assert_eq!(Some(reading(&hello)), expected, "{name} {at} {bit}");
                    }
                    Answer::NotTls => assert!(at == 0 && !(20..=24).contains(&flipped[0])),
                    Answer::NeedMore | Answer::Reject(_) | Answer::TooLarge => {}
                }
                assert_eq!(read_split(&flipped, [at, at + 1], MAX), read(&flipped));
            }
        }
    }
}

/// 60 KiB a byte at a time, and 16 KiB in records of three bytes. Looking at everything again for
/// each byte would be two billion bytes.
#[test]
fn work_is_linear_in_the_bytes() {
    let padded = |length| Hello::to("a.com").padded_to(length).message();
    let large = records(&padded(60 * 1024), []);
    let scattered = records(&padded(16_000), std::iter::repeat(3));
    for bytes in [large, scattered] {
        let mut reader = Reader::new(MAX);
        let start = Instant::now();
        for end in 0..bytes.len() {
            assert_eq!(reader.advance(&bytes[..end]), Answer::NeedMore);
        }
        let took = start.elapsed();
        println!("{} bytes one at a time: {took:?}", bytes.len());
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}

/// Prints what it costs.
#[test]
fn cost_of_a_hello() {
    for (name, bytes) in vectors() {
        let cut = records(message(&bytes), [1000]);
        for (how, bytes) in [("in one record", &bytes), ("in two", &cut)] {
            let round = |_| {
                let start = Instant::now();
                for _ in 0..100 {
                    std::hint::black_box(read(std::hint::black_box(bytes)));
                }
                start.elapsed() / 100
            };
            let least = (0..50).map(round).min().unwrap();
            println!("{name} {how}: {least:?}");
        }
    }
}

#[test]
fn agrees_with_other_implementations() {
    for bytes in hellos() {
        let found = Some(reading(&hello(&bytes)));
        assert_eq!(tls_parser(&bytes), found);
        assert_eq!(rustls(&bytes), found);
    }
    for name in ["a", "EXAMPLE.com", "_x.example.com", "xn--bcher-kva.example", "a-b.1.c9"] {
        let bytes = Hello::to(name).alpn(&["http/1.1"]).bytes();
        let found = Some(reading(&hello(&bytes)));
        assert_eq!(tls_parser(&bytes), found, "{name}");
        assert_eq!(rustls(&bytes), found, "{name}");
    }
}

#[test]
fn corpus() {
    let files = fs::read_dir("tests/fuzz/corpus/client_hello").unwrap();
    let read = files.map(|file| fuzz::check(&fs::read(file.unwrap().path()).unwrap())).count();
    assert!(read > 0);
}

/// Any hello with valid fields, and the name and protocols in it.
fn valid() -> impl Strategy<Value = (Hello, Reading)> {
    let label = "[a-z0-9_]([a-z0-9_-]{0,20}[a-z0-9_])?";
    let name = proptest::option::of(vec(label, 1..5).prop_map(|labels| labels.join(".")));
    let name = name.prop_map(|name| name.map(|name| format!("n{name}")));
    let alpn = vec(vec(any::<u8>(), 1..20), 0..6);
    let others = vec((100u16..0xfe00, vec(any::<u8>(), 0..50)), 0..8);
    (name, alpn, others, any::<bool>(), any::<bool>()).prop_map(
        |(name, alpn, others, pq, upper)| {
            let mut built = if pq { Hello::plain().post_quantum() } else { Hello::plain() };
            let mut kinds: Vec<u16> = Vec::new();
            for (kind, data) in others {
                if !kinds.contains(&kind) && kind != 0x2a2a {
                    kinds.push(kind);
                    built = built.extension(kind, data);
                }
            }
            if let Some(name) = &name {
                let sent = if upper { name.to_ascii_uppercase() + "." } else { name.clone() };
                built =
                    built.extension(builder::SERVER_NAME, builder::server_name(sent.as_bytes()));
            }
            if !alpn.is_empty() {
                built = built.alpn(&alpn);
            }
            (built, (name, alpn))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn valid_hellos((built, expected) in valid(), sizes in vec(1usize..700, 0..6)) {
        let bytes = records(&built.message(), sizes);
        prop_assert_eq!(reading(&hello(&bytes)), expected);
        fuzz::check(&bytes);
    }

    #[test]
    fn mangled_hellos(
        (built, _) in valid(),
        sizes in vec(1usize..700, 0..4),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = records(&built.message(), sizes);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        fuzz::check(&bytes);
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..300)) {
        fuzz::check(&bytes);
        fuzz::check(&record(22, &bytes));
        fuzz::check(&records(&builder::handshake(1, &bytes), []));
    }
}
