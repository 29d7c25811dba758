//! A hello that is cut short, malformed, too large or late: closed, and no backend learns of it. A
//! default route is there all the time, and is no way around.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::harness::hello::*;
use crate::harness::{Edge, answer, captured, expect_record, wait_until};

/// Far more than anything here takes, far less than the patience of a test.
const LONG: &str = "preread: { timeout: 15s }";

/// What happens at once takes less.
const AT_ONCE: Duration = Duration::from_secs(3);

fn edge(listener: &[&str]) -> Edge {
    let routes = [
        "{ sni: [shop.example.com, ossl.example.com, made.example.com], pool: right }",
        "{ sni: \"*.example.com\", pool: wild }",
        "{ pool: other }",
    ];
    Edge::start(listener, &routes, &["right", "wild", "other"])
}

fn made() -> Hello {
    Hello::to("made.example.com")
}

/// A client that sends this and then nothing is closed by FIN, at once.
fn expect_closed_at_once(edge: &Edge, bytes: &[u8]) {
    let begun = Instant::now();
    let mut stream = edge.connect();
    stream.write(bytes);
    stream.expect_end();
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
}

/// All records have this termination and nothing that only a whole hello tells.
fn expect_records(edge: &Edge, termination: &str, count: usize) {
    edge.expect_closed(termination, count);
    assert_eq!(edge.reached(), 0);
    let records = edge.pointsman.access_log(count);
    assert_eq!(records.len(), count);
    for record in records {
        assert_eq!(record.text("termination"), termination);
        for key in ["sni", "alpn", "pool", "backend", "connect_ms", "first_byte_ms"] {
            assert!(record.is_null(key), "{key} of {record:?}");
        }
        assert!(record.attempts().is_empty() && record.number("bytes_in") == 0.0);
        assert!(record.number("preread_ms") <= record.number("duration_ms"), "{record:?}");
    }
}

#[test]
fn cut_short_at_every_byte() {
    let edge = edge(&[LONG]);
    let mut count = 0;
    let flights =
        [captured("chromium-156"), captured("openssl-3.0"), records(&made().message(), [7, 90])];
    for flight in flights {
        let cut: Vec<_> = (0..flight.len()).map(|end| vec![flight[..end].to_vec()]).collect();
        assert!(edge.ask_all(&cut).iter().all(Option::is_none));
        count += cut.len();
        assert_eq!(edge.ask(&flight).as_deref(), Some("right"));
    }
    assert_eq!(edge.reached(), 3, "the whole ones");
    edge.expect_closed("preread_closed", count);
}

/// Where the type of the server name's extension is, and the name itself.
fn place_of(name: &str, flight: &[u8]) -> (Range<usize>, Range<usize>) {
    let found = flight.windows(name.len()).position(|window| window == name.as_bytes());
    let at = found.expect("the name in clear");
    // Type 2, length 2, length of the list 2, type of the name 1, its length 2.
    (at - 9..at - 7, at..at + name.len())
}

/// What may become of a flight one bit of which was flipped, at byte `at`.
fn allowed(
    flight: &[u8],
    flipped: &[u8],
    at: usize,
    name: &str,
) -> &'static [Option<&'static str>] {
    let (kind, place) = place_of(name, flight);
    if at == 0 {
        // No type of a TLS record: honestly another protocol.
        return if (20..=24).contains(&flipped[0]) { &[None] } else { &[Some("other")] };
    }
    if kind.contains(&at) {
        // An unknown extension, or one that is there twice, and no name.
        return &[Some("other"), None];
    }
    if place.contains(&at) && !flipped[place.clone()].eq_ignore_ascii_case(name.as_bytes()) {
        // Another name, if it is one.
        return &[Some("wild"), Some("other"), None];
    }
    &[Some("right"), None]
}

#[test]
fn any_bit_flipped() {
    let edge = edge(&[LONG]);
    let large =
        Hello::plain().alpn(&["h2"]).extension(SERVER_NAME, server_name(b"made.example.com"));
    let large = large.post_quantum().bytes();
    let hellos = [
        ("shop.example.com", captured("chromium-156")),
        ("ossl.example.com", captured("openssl-3.0")),
        ("made.example.com", records(&large[5..], [60, 300, 5])),
    ];
    for (name, flight) in hellos {
        // The last of them is in records, which cut the name or its extension nowhere.
        let bits = flight.len().min(600) * 8;
        let flip = |bit: usize| {
            let mut flipped = flight.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            flipped
        };
        let flights: Vec<_> = (0..bits).map(|bit| vec![flip(bit)]).collect();
        let answers = edge.ask_all(&flights);
        for (bit, answer) in answers.iter().enumerate() {
            let allowed = allowed(&flight, &flights[bit][0], bit / 8, name);
            assert!(allowed.contains(&answer.as_deref()), "{name}, bit {bit}: {answer:?}");
        }
        let right = answers.iter().filter(|answer| answer.as_deref() == Some("right")).count();
        let closed = answers.iter().filter(|answer| answer.is_none()).count();
        assert!(right > bits / 3 && closed > 100, "{name}: {right} right, {closed} closed");
    }
    edge.pointsman.wait_idle();
    edge.expect_unhurt();
}

fn malformed() -> Vec<Vec<u8>> {
    let named = |data: Vec<u8>| Hello::plain().extension(SERVER_NAME, data).bytes();
    let name = |name: &[u8]| named(server_name(name));
    let message = made().message();
    let (one, two) = message.split_at(50);
    let between = |record: Vec<u8>| [records(one, []), record, records(two, [])].concat();
    vec![
        // Lengths.
        vec![22, 3, 1, 255, 255],
        [&[22, 3, 1, 255, 255][..], &message].concat(),
        named(vec![0, 6, 0, 255, 255, b'a', b'.', b'b']),
        named(vec![0, 6, 0, 0, 200, b'a', b'.', b'b']),
        named(vec![255, 255, 0, 0, 3, b'a', b'.', b'b']),
        named(vec![]),
        named(vec![0, 0]),
        // Names.
        named(server_names(&[(0, b"made.example.com"), (0, b"x.example.com")])),
        named(server_names(&[(0, b"made.example.com"), (0, b"made.example.com")])),
        named(server_names(&[(1, b"made.example.com")])),
        name(b""),
        name(b"."),
        name(b".example.com"),
        name(b"made\0.example.com"),
        name(b"made.example.com\0"),
        name(b"\0.example.com"),
        name(b"made..example.com"),
        name(b"made.example.com.."),
        name(b"*.example.com"),
        name(b"ma de.example.com"),
        name("mäde.example.com".as_bytes()),
        name(&[&[b'a'; 64][..], b".example.com"].concat()),
        name(&[&b"a.".repeat(125)[..], b"example.com"].concat()),
        // Records.
        between(record(22, &[])),
        between(record(23, &[])),
        between(record(23, &[1, 2, 3])),
        between(record(20, &[1])),
        between(record(21, &[2, 112])),
        record(22, &[]),
        record(21, &[2, 40]),
        record(23, &[0; 100]),
        record(22, &handshake(2, &message[4..])),
        // Extensions.
        made().extension(SERVER_NAME, server_name(b"made.example.com")).bytes(),
        made().extension(SERVER_NAME, server_name(b"x.example.com")).bytes(),
        made().extension(KEY_SHARE, vec![]).bytes(),
        made().alpn(&["h2"]).alpn(&["h2"]).bytes(),
        made().alpn::<&str>(&[]).bytes(),
        made().alpn(&[""]).bytes(),
        // A remainder behind the extensions.
        records(&handshake(1, &[&message[4..], &[0]].concat()), []),
    ]
}

#[test]
fn malformed_is_closed_at_once() {
    let edge = edge(&[LONG]);
    let malformed = malformed();
    for (number, bytes) in malformed.iter().enumerate() {
        expect_closed_at_once(&edge, bytes);
        // One by one, so that a failure tells which it was.
        edge.expect_closed("preread_invalid", number + 1);
    }
    expect_records(&edge, "preread_invalid", malformed.len());
}

/// The same where the listener has one route, and no name matters to it: what is read is judged.
#[test]
fn malformed_is_closed_where_the_hello_is_read_for_the_log() {
    let edge = Edge::start(&["preread: { always: true, timeout: 15s }"], &["{ pool: a }"], &["a"]);
    let malformed = malformed();
    malformed.iter().for_each(|bytes| expect_closed_at_once(&edge, bytes));
    expect_records(&edge, "preread_invalid", malformed.len());
}

#[test]
fn too_large_is_closed_at_once() {
    let edge = edge(&["preread: { timeout: 15s, max_bytes: 8KiB }"]);
    let fits = made().padded_to(8192 - 5).bytes();
    assert_eq!(edge.ask(&fits).as_deref(), Some("right"));
    let reached = edge.reached();
    let too_large = [
        // Known by its declared length, long before so many bytes have come.
        record(22, &[1, 1, 0, 0]),
        made().padded_to(8192 - 4).bytes()[..9].to_vec(),
        made().padded_to(8192 - 4).bytes(),
        made().padded_to(60_000).bytes(),
        // Small, but for the records around it.
        records(&made().padded_to(2000).message(), std::iter::repeat(1)),
    ];
    for bytes in &too_large {
        expect_closed_at_once(&edge, bytes);
    }
    assert_eq!(edge.reached(), reached);
    edge.expect_closed("preread_too_large", too_large.len());
    for record in &edge.pointsman.access_log(1 + too_large.len())[1..] {
        assert_eq!(record.text("termination"), "preread_too_large");
        assert!(record.is_null("sni") && record.is_null("alpn") && record.is_null("pool"));
    }
}

#[test]
fn the_silent_are_closed_in_time() {
    let hello = made().bytes();
    for (what, on_timeout) in
        [(0, "close"), (1, "close"), (80, "close"), (1, "default"), (80, "default")]
    {
        let preread = format!("preread: {{ timeout: 400ms, on_timeout: {on_timeout} }}");
        let edge = edge(&[&preread]);
        let mut stream = edge.connect();
        stream.write(&hello[..what]);
        let begun = Instant::now();
        stream.expect_end();
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        drop(stream);
        let record = expect_record(&edge.pointsman, "preread_timeout");
        assert!(record.number("preread_ms") >= 400.0, "{record:?}");
        expect_records(&edge, "preread_timeout", 1);
    }
}

/// Who speaks second is a client of the default route, which has lost nothing but time.
#[test]
fn the_silent_may_take_the_default_route() {
    let edge = edge(&["preread: { timeout: 300ms, on_timeout: default }"]);
    let mut stream = edge.connect();
    wait_until("the default route", || edge.reached() == 1);
    // It was not TLS when it mattered; now it is the backend's.
    let late = made().bytes();
    stream.write(&late);
    stream.finish();
    let answer = answer(&stream.read_to_end(), &late);
    assert_eq!(answer.as_deref(), Some("other"));
    drop(stream);
    let record = expect_record(&edge.pointsman, "client_closed");
    assert!(record.number("preread_ms") >= 300.0, "{record:?}");
    assert!(record.is_null("sni") && record.is_null("alpn"), "{record:?}");
}

#[test]
fn a_reset_before_the_end_of_the_hello() {
    let edge = edge(&[LONG]);
    let flight = captured("openssl-3.0");
    let ends = [0, 1, 5, 100, flight.len() - 1];
    for end in ends {
        let mut stream = edge.connect();
        stream.write(&flight[..end]);
        edge.pointsman.wait_received();
        stream.reset();
    }
    expect_records(&edge, "client_reset", ends.len());
}
