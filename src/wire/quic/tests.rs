//! Tables. Splits, flips, properties and other implementations: `tests/quic/`.

use super::super::ClientHello;
use super::super::client_hello::tests::builder::{self as hello_builder, Hello};
use super::super::client_hello::{self, read_message};
use super::initial::{Answer, InitialReader, Reason};
use super::packet::{HeaderFault, Kind, Long, Packet, server_id_of};
use super::stream::PIECES_MAX;

#[path = "../../../tests/quic/builder.rs"]
mod builder;

use builder::*;

const MAX: usize = 64 * 1024;

fn message() -> Vec<u8> {
    Hello::to("example.com").alpn(&["h3"]).message()
}

fn hello() -> ClientHello {
    read_message(&message()).unwrap()
}

/// The answer to each of these datagrams.
fn answers(datagrams: &[Vec<u8>]) -> Vec<Answer> {
    let mut reader = InitialReader::new(MAX);
    datagrams.iter().map(|datagram| reader.push(datagram)).collect()
}

#[track_caller]
fn check(datagrams: &[Vec<u8>], expected: Answer) {
    assert_eq!(answers(datagrams).last(), Some(&expected));
}

/// A hello in two datagrams, the second of which is made by `change`.
#[track_caller]
fn check_second(change: impl Fn(&mut Initial), expected: Answer) {
    let message = message();
    let (first, second) = message.split_at(100);
    let mut changed = Initial::numbered(1);
    change(&mut changed);
    let datagrams = [
        Initial::new(V1).datagram(&crypto(0, first)),
        changed.datagram(&crypto(100, second)),
        Initial::numbered(2).datagram(&crypto(100, second)),
    ];
    let found = answers(&datagrams);
    assert_eq!(found[0], Answer::NeedMore);
    assert_eq!(found[1], expected);
    // What has been passed over does not keep the client from going on.
    let last = if expected == Answer::NeedMore { Answer::Hello(hello()) } else { expected };
    assert_eq!(found[2], last);
}

/// The only packet of a datagram, made by `change`.
#[track_caller]
fn check_first(change: impl Fn(&mut Initial), expected: Answer) {
    let mut changed = Initial::new(V1);
    change(&mut changed);
    check(&[changed.datagram(&crypto(0, &message()))], expected);
}

#[test]
fn kinds_of_packets() {
    let check = |version, first: u8, expected: Kind| {
        let datagram = [&[first], &u32::to_be_bytes(version)[..], &[1, 9, 2, 8, 7, 6]].concat();
        let Some(Packet::Long(long)) = Packet::parse(&datagram) else {
            panic!("{datagram:?}");
        };
        let found = (long.version, long.kind, long.dcid, long.scid);
        assert_eq!(found, (version, expected, &[9][..], &[8, 7][..]));
        // Cut short in the ids, it is none.
        (0..10).for_each(|end| assert_eq!(Packet::parse(&datagram[..end]), None, "{end}"));
        assert!(Packet::parse(&datagram[..10]).is_some());
    };
    use Kind::*;
    for (bits, v1, v2) in
        [(0, Initial, Retry), (1, ZeroRtt, Initial), (2, Handshake, ZeroRtt), (3, Retry, Handshake)]
    {
        check(V1, 0xc0 | bits << 4, v1);
        check(V2, 0xc0 | bits << 4, v2);
        check(0, 0x80 | bits << 4, VersionNegotiation);
        check(0xff00_001d, 0x80 | bits << 4, Unknown);
    }
}

#[test]
fn short_headers() {
    assert_eq!(Packet::parse(&[]), None);
    for first in 0..0x80 {
        let bytes = [first, 1, 2];
        let found = Packet::parse(&bytes);
        let expected = Packet::Short { after_first: &[1, 2] };
        assert_eq!(found, (first & 0x40 != 0).then_some(expected));
    }
}

/// Versions that are not known here may have ids of 255 bytes; of the others they are malformed.
#[test]
fn long_ids() {
    for (version, known) in [(V1, true), (V2, true), (7, false)] {
        for (dcid, scid) in [(20, 20), (21, 0), (0, 21), (255, 255)] {
            let initial =
                Initial { version, dcid: vec![1; dcid], scid: vec![2; scid], ..Initial::new(V1) };
            let datagram = initial.datagram(&[1]);
            let Some(Packet::Long(long)) = Packet::parse(&datagram) else {
                panic!("{initial:?}");
            };
            assert_eq!((long.dcid.len(), long.scid.len()), (dcid, scid));
            let fault = match (known, dcid <= 20 && scid <= 20) {
                (true, true) => None,
                (_, false) => Some(HeaderFault::IdTooLong),
                (false, _) => Some(HeaderFault::Length),
            };
            assert_eq!(long.protected().err(), fault);
        }
    }
}

#[test]
fn packets_of_a_datagram_are_told_apart() {
    let after = [0x4f, 1, 2];
    for version in [V1, V2] {
        for kind in [INITIAL, ZERO_RTT, HANDSHAKE] {
            let token = if kind == INITIAL { vec![5; 70] } else { vec![] };
            let initial = Initial { kind, token: token.clone(), ..Initial::new(version) };
            let packet = initial.packet(&[1; 100]);
            let followed = [&packet[..], &after].concat();
            let Some(Packet::Long(long)) = Packet::parse(&followed) else {
                panic!("{initial:?}");
            };
            let found = long.protected().unwrap();
            assert_eq!((found.packet, found.rest), (&packet[..], &after[..]));
            assert_eq!(found.token, token);
            assert_eq!(packet.len() - found.number_at, 2 + 100 + 16);
            // What is cut short has no packet in it.
            for end in 0..packet.len() {
                let cut = Packet::parse(&packet[..end]);
                let cut =
                    cut.map(|cut| matches!(cut, Packet::Long(cut) if cut.protected().is_ok()));
                assert_ne!(cut, Some(true), "{end}");
            }
        }
        let retry = Initial { kind: RETRY, ..Initial::new(version) }.packet(&[1; 100]);
        assert!(matches!(
            Packet::parse(&retry),
            Some(Packet::Long(Long { kind: Kind::Retry, .. }))
        ));
    }
}

#[test]
fn ids_that_servers_choose() {
    for version in [V1, V2] {
        for (kind, told) in [(INITIAL, true), (ZERO_RTT, false), (HANDSHAKE, true), (RETRY, true)] {
            for length in [0, 1, 20, 21] {
                let initial = Initial { kind, scid: vec![7; length], ..Initial::new(version) };
                let datagram = initial.packet(&[1; 9]);
                let expected = (told && (1..=20).contains(&length)).then(|| vec![7; length]);
                assert_eq!(server_id_of(&datagram).map(<[u8]>::to_vec), expected, "{initial:?}");
            }
        }
    }
    for other in
        [&[][..], &[0x40; 30], &[0xc0, 0, 0, 0, 0, 1, 1, 1, 2], &[0xc0, 0, 0, 0, 9, 0, 1, 2]]
    {
        assert_eq!(server_id_of(other), None);
    }
}

#[test]
fn what_opens_a_connection() {
    use Answer::*;
    let hello = Hello(hello());
    check_first(|_| {}, hello.clone());
    check_first(|initial| initial.version = V2, hello.clone());
    check_first(|initial| initial.version = 0xff00_001d, UnknownVersion);
    check_first(|initial| initial.version = 0, NotQuic);
    check_first(|initial| initial.kind = HANDSHAKE, NotQuic);
    check_first(|initial| initial.kind = RETRY, NotQuic);
    check_first(|initial| initial.kind = ZERO_RTT, NeedMore);
    check_first(|initial| initial.scid.clear(), hello.clone());
    check_first(|initial| initial.scid = vec![1; 20], hello.clone());
    check_first(|initial| initial.dcid = vec![1; 20], hello.clone());
    check_first(|initial| initial.token = vec![1; 300], hello.clone());
    for length in 1..=4 {
        check_first(|initial| initial.number_length = length, hello.clone());
        check_first(|initial| initial.number = (1 << (8 * length)) - 1, {
            if length <= 2 { hello.clone() } else { Reject(Reason::Undecryptable) }
        });
    }
    check(&[vec![]], NotQuic);
    check(&[vec![0x40; 1200]], NotQuic);
    check(&[b"\0\x01\0\x08 a query of another protocol".to_vec()], NotQuic);
    check(&[vec![0xc0, 0, 0, 0]], NotQuic);
    check(&[vec![0xc0, 0, 0, 0, 1]], Reject(Reason::Header(HeaderFault::Truncated)));
    check(&[vec![0xc0, 0, 0, 0, 2, 0]], NotQuic);
    check(&[vec![0xc0, 0, 0, 0, 2, 0, 0]], UnknownVersion);
}

#[test]
fn headers_against_the_rules() {
    let header = |fault| Answer::Reject(Reason::Header(fault));
    check_first(|initial| initial.fixed_bit = false, header(HeaderFault::FixedBit));
    check_first(|initial| initial.dcid = vec![1; 21], header(HeaderFault::IdTooLong));
    check_first(|initial| initial.scid = vec![1; 21], header(HeaderFault::IdTooLong));
    check_first(|initial| initial.dcid = vec![1; 7], Answer::Reject(Reason::IdTooShort));
    check_first(|initial| initial.dcid.clear(), Answer::Reject(Reason::IdTooShort));
    for reserved in 1..=3 {
        check_first(|initial| initial.reserved = reserved, Answer::Reject(Reason::ReservedBits));
    }
    let undecryptable = Answer::Reject(Reason::Undecryptable);
    check_first(|initial| initial.keys_of = Some(vec![1; 8]), undecryptable);
    // What a server has given the client allows more.
    let with_token = |change: fn(&mut Initial)| {
        let expected = Answer::Hello(hello());
        let token = |initial: &mut Initial| {
            initial.token = vec![1; 9];
            change(initial);
        };
        check_first(token, expected);
    };
    with_token(|initial| initial.fixed_bit = false);
    with_token(|initial| initial.dcid = vec![1; 7]);
    with_token(|initial| initial.dcid.clear());
}

#[test]
fn lengths_against_the_rules() {
    let header = |fault| Answer::Reject(Reason::Header(fault));
    let begin = [0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
    let check = |rest: &[u8], fault| {
        let mut datagram = [&begin, rest].concat();
        datagram.resize(1200, 0);
        check(&[datagram], header(fault));
    };
    check(&[0x44, 0xa1], HeaderFault::Token);
    check(&[0xff; 8], HeaderFault::Token);
    check(&[0, 0], HeaderFault::Length);
    check(&[0, 19], HeaderFault::Length);
    check(&[0, 0x44, 0xa0], HeaderFault::Length);
    check(&[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], HeaderFault::Length);
    let small = |bytes: usize, expected: Answer| {
        let mut packet = Initial::new(V1).packet(&crypto(0, &message()));
        packet.resize(bytes, 0);
        super::tests::check(&[packet], expected);
    };
    small(1199, Answer::Reject(Reason::DatagramTooSmall));
    // The datagram may be padded behind the packet too.
    small(1200, Answer::Hello(hello()));
}

/// After the first packet, what the keys do not open is nobody's.
#[test]
fn later_packets() {
    use Answer::*;
    check_second(|_| {}, Hello(hello()));
    check_second(|initial| initial.keys_of = Some(vec![1; 8]), NeedMore);
    check_second(|initial| initial.version = V2, NeedMore);
    check_second(|initial| initial.version = 9, NeedMore);
    check_second(|initial| initial.version = 0, NeedMore);
    check_second(|initial| initial.kind = HANDSHAKE, NeedMore);
    check_second(|initial| initial.kind = ZERO_RTT, NeedMore);
    check_second(|initial| initial.kind = RETRY, NeedMore);
    check_second(|initial| initial.fixed_bit = false, NeedMore);
    check_second(|initial| initial.dcid = vec![1; 8], NeedMore);
    check_second(|initial| initial.dcid = vec![1; 21], NeedMore);
    let other_ids = Reject(Reason::ConnectionIds);
    let other_dcid = |initial: &mut Initial| {
        initial.dcid = vec![1; 8];
        initial.keys_of = Some(DCID.to_vec());
    };
    check_second(other_dcid, other_ids.clone());
    check_second(|initial| initial.scid = vec![], other_ids);
    check_second(|initial| initial.reserved = 1, Reject(Reason::ReservedBits));
    // The number of the first packet, with something new.
    check_second(|initial| initial.number = 0, Reject(Reason::PacketNumber));
    check_second(|initial| initial.number = 200, Hello(hello()));
    check_second(|initial| initial.token = vec![3; 9], Hello(hello()));
}

#[test]
fn rubbish_between_the_datagrams() {
    let message = message();
    let (first, second) = message.split_at(100);
    let rubbish = [
        vec![],
        vec![0x40; 1200],
        vec![0xff; 1200],
        vec![0; 3],
        vec![0xc0, 0, 0, 0, 1],
        vec![0xc0; 5],
    ];
    let mut datagrams = vec![Initial::new(V1).datagram(&crypto(0, first))];
    datagrams.extend(rubbish);
    assert!(answers(&datagrams).iter().all(|answer| *answer == Answer::NeedMore));
    // A small datagram with a packet that the keys open is the client's.
    let small = Initial::numbered(1).packet(&crypto(100, second));
    let refused = Answer::Reject(Reason::DatagramTooSmall);
    check(&[datagrams.clone(), vec![small]].concat(), refused);
    datagrams.push(Initial::numbered(1).datagram(&crypto(100, second)));
    check(&datagrams, Answer::Hello(hello()));
}

/// 0-RTT packets before the hello, in datagrams of their own and in its own.
#[test]
fn zero_rtt_first() {
    let early = Initial { kind: ZERO_RTT, ..Initial::new(V1) }.packet(&[1; 300]);
    let initial = Initial::new(V1).datagram(&crypto(0, &message()));
    let both = [&early[..], &initial].concat();
    check(&[both], Answer::Hello(hello()));
    let found = answers(&[early.clone(), vec![0x40; 50], vec![0xc0; 50], initial]);
    let waiting = Answer::NeedMore;
    assert_eq!(found, [waiting.clone(), waiting.clone(), waiting, Answer::Hello(hello())]);
    let other = Initial { keys_of: Some(vec![2]), ..Initial::new(V1) }.datagram(&[1]);
    check(&[early, other], Answer::Reject(Reason::Undecryptable));
}

/// Everything in a datagram is looked at, whatever there is between and behind.
#[test]
fn several_packets_in_a_datagram() {
    let message = message();
    let (first, second) = message.split_at(100);
    let one = Initial::new(V1).packet(&crypto(0, first));
    let two = Initial::numbered(1).packet(&crypto(100, second));
    let early = Initial { kind: ZERO_RTT, ..Initial::new(V1) }.packet(&[1; 300]);
    let foreign = Initial { keys_of: Some(vec![2]), ..Initial::new(V1) }.packet(&[1; 30]);
    let check = |packets: &[&[u8]], expected: Answer| {
        let mut datagram = packets.concat();
        datagram.resize(datagram.len().max(1200), 0);
        check(&[datagram], expected);
    };
    let whole = Answer::Hello(hello());
    check(&[&one, &two], whole.clone());
    check(&[&two, &one], whole.clone());
    check(&[&one, &early, &two], whole.clone());
    check(&[&one, &foreign, &two, &[0x40; 9]], whole.clone());
    check(&[&foreign, &one, &two], Answer::Reject(Reason::Undecryptable));
    check(&[&one, &[0x40], &two], Answer::NeedMore);
    // Also what comes behind a whole hello.
    let other = Initial::numbered(2).packet(&crypto(50, b"something else"));
    check(&[&one, &two, &other], Answer::Reject(Reason::Conflict));
    let other = Initial { dcid: vec![9; 8], keys_of: Some(DCID.to_vec()), ..Initial::numbered(2) };
    let other = other.packet(&[1; 30]);
    check(&[&one, &two, &other], Answer::Reject(Reason::ConnectionIds));
}

#[test]
fn frames() {
    let message = message();
    let whole = crypto(0, &message);
    let check = |frames: &[&[u8]], expected| {
        check(&[Initial::new(V1).datagram(&frames.concat())], expected);
    };
    check(&[&[0, 1, 2, 0, 0, 0, 0], &whole, &[0x1c, 0, 6, 0]], Answer::Hello(hello()));
    check(&[&[0]], Answer::NeedMore);
    for frame in [&[0x1d, 0, 0][..], &[8, 0, 1], &[0x1e], &[0x40, 1], &[0x1a], &[7, 1, 1]] {
        check(&[&whole, frame], Answer::Reject(Reason::Frame));
        check(&[frame, &whole], Answer::Reject(Reason::Frame));
    }
    // Four bytes of packet number leave room for a packet without any frame.
    let empty = Initial { number_length: 4, ..Initial::new(V1) }.packet(&[]);
    let padded = [empty, vec![0; 1200]].concat();
    super::tests::check(&[padded], Answer::Reject(Reason::Frame));
}

#[test]
fn pieces_of_the_hello() {
    let message = message();
    let piece = |from: usize, to: usize| crypto(from, &message[from..to]);
    let end = message.len();
    let check = |frames: &[Vec<u8>], expected| {
        check(&[Initial::new(V1).datagram(&frames.concat())], expected);
    };
    let whole = Answer::Hello(hello());
    check(&[piece(90, end), piece(0, 40), piece(30, 100)], whole.clone());
    check(&[piece(0, 60), piece(0, 60), piece(20, 30), piece(60, end)], whole.clone());
    check(&[piece(0, 60), piece(61, end)], Answer::NeedMore);
    check(&[piece(1, end)], Answer::NeedMore);
    check(&[piece(0, end), crypto(end, b"not looked at")], whole);
    let mut other = message.clone();
    other[50] ^= 1;
    let conflict = Answer::Reject(Reason::Conflict);
    check(&[piece(0, end), crypto(0, &other)], conflict.clone());
    check(&[piece(0, 60), crypto(50, &other[50..])], conflict.clone());
    check(&[piece(40, 60), crypto(0, &other)], conflict);
    let scattered: Vec<_> = (0..=PIECES_MAX).map(|at| crypto(2 * at, &[1])).collect();
    check(&scattered[..PIECES_MAX], Answer::NeedMore);
    check(&scattered, Answer::Reject(Reason::TooManyPieces));
}

#[test]
fn the_bound_is_the_message() {
    let message = message();
    let length = message.len();
    let datagram = Initial::new(V1).datagram(&crypto(0, &message));
    for (max, expected) in [
        (length, Answer::Hello(hello())),
        (length - 1, Answer::TooLarge),
        (0, Answer::TooLarge),
        (usize::MAX, Answer::Hello(hello())),
    ] {
        assert_eq!(InitialReader::new(max).push(&datagram), expected, "{max}");
    }
    let check = |max, offset, data: &[u8], expected| {
        let frame = crypto(offset, data);
        let found = InitialReader::new(max).push(&Initial::new(V1).datagram(&frame));
        assert_eq!(found, expected, "{max} {offset} {data:?}");
    };
    // Known as soon as the header is, or from where a piece lies.
    check(MAX, 0, &[1, 0, 0xff, 0xfc], Answer::NeedMore);
    check(MAX, 0, &[1, 0, 0xff, 0xfd], Answer::TooLarge);
    check(MAX, 0, &[1, 1], Answer::NeedMore);
    check(MAX, MAX - 1, &[1], Answer::NeedMore);
    check(MAX, MAX, &[1], Answer::TooLarge);
    check(MAX, (1 << 62) - 1, &[1], Answer::TooLarge);
}

#[test]
fn what_is_no_hello() {
    let check = |message: &[u8], reason| {
        let datagram = Initial::new(V1).datagram(&crypto(0, message));
        check(&[datagram], Answer::Reject(Reason::Hello(reason)));
    };
    check(&[2], client_hello::Reason::NotClientHello);
    check(&[1, 0, 0, 0], client_hello::Reason::Length);
    let twice = Hello::to("a.com").extension(hello_builder::ALPN, []).message();
    check(&twice, client_hello::Reason::Length);
}

#[test]
fn answers_are_final() {
    let good = Initial::new(V1).datagram(&crypto(0, &message()));
    let bad = Initial::new(V1).datagram(&[0x1d]);
    for first in [&good, &bad, &vec![0x40], &Initial::new(9).datagram(&[1])] {
        let found = answers(&[first.clone(), good.clone(), bad.clone(), vec![]]);
        assert!(found.iter().all(|answer| *answer == found[0]), "{found:?}");
    }
}

#[test]
fn the_original_destination() {
    let message = message();
    let mut reader = InitialReader::new(MAX);
    reader.push(&Initial { kind: ZERO_RTT, ..Initial::new(V1) }.packet(&[1; 30]));
    assert_eq!(reader.original_dcid(), None);
    reader.push(&Initial::new(V1).datagram(&crypto(0, &message[..60])));
    assert_eq!(reader.original_dcid().unwrap().as_slice(), DCID);
    assert_eq!(format!("{:?}", reader.original_dcid().unwrap()), "d1d2d3d4d5d6d7d8");
    reader.push(&Initial::numbered(1).datagram(&crypto(60, &message[60..])));
    assert_eq!(reader.original_dcid().unwrap().as_slice(), DCID);
    let mut rejected = InitialReader::new(MAX);
    rejected.push(&Initial { keys_of: Some(vec![3]), ..Initial::new(V1) }.datagram(&[1]));
    assert_eq!(rejected.original_dcid(), None);
}
