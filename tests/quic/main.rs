//! The reader of QUIC openings against real clients, and against every way that an opening can be
//! cut, shuffled, lost and broken.

use std::fs;
use std::time::Instant;

use pointsman::wire::client_hello::read_message;
use pointsman::wire::quic::Packet;
use pointsman::wire::quic::initial::{Answer, InitialReader, PIECES_MAX};
use pointsman::wire::{Alpn, ClientHello};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

mod builder;
mod fuzz;
#[path = "../hello/builder.rs"]
mod hello_builder;

use builder::{Initial, V1, V2, crypto};
use hello_builder::Hello;

const MAX: usize = 64 * 1024;

/// Clients, the datagrams of their hellos, and the name in them. The RFCs' own are RFC 9001 section
/// A.2 and RFC 9369 section A.2; the others are as they came from the socket.
const FLIGHTS: [(&str, &[&str], &str); 5] = [
    ("Chromium 156", &["chromium-156-a", "chromium-156-b"], "shop.example.com"),
    ("aioquic", &["aioquic-v1"], "aio.example.com"),
    ("aioquic, version 2", &["aioquic-v2"], "aio.example.com"),
    ("RFC 9001", &["rfc9001-a2"], "example.com"),
    ("RFC 9369", &["rfc9369-a2"], "example.com"),
];

fn datagram(file: &str) -> Vec<u8> {
    fs::read(format!("tests/data/quic/{file}.bin")).unwrap()
}

fn flights() -> impl Iterator<Item = (&'static str, Vec<Vec<u8>>, &'static str)> {
    let read = |(client, files, name): (_, &[&str], _)| {
        (client, files.iter().map(|file| datagram(file)).collect(), name)
    };
    FLIGHTS.into_iter().map(read)
}

/// The last answer to these datagrams.
fn read<D: AsRef<[u8]>>(datagrams: impl IntoIterator<Item = D>) -> Answer {
    let mut reader = InitialReader::new(MAX);
    let answers = datagrams.into_iter().map(|datagram| reader.push(datagram.as_ref()));
    answers.last().unwrap_or(Answer::NeedMore)
}

#[track_caller]
fn hello<D: AsRef<[u8]>>(datagrams: impl IntoIterator<Item = D>) -> ClientHello {
    match read(datagrams) {
        Answer::Hello(hello) => hello,
        other => panic!("{other:?}"),
    }
}

#[test]
fn real_clients() {
    for (client, datagrams, name) in flights() {
        let found = hello(&datagrams);
        assert_eq!(found.sni.as_deref(), Some(name), "{client}");
        let alpn = if name == "example.com" { "alpn" } else { "h3" };
        assert_eq!(found.alpn, Alpn::from_names([alpn]).unwrap(), "{client}");
        assert!(found.versions.contains(&0x0304), "{client}");
        assert_eq!(found.ech, client == "Chromium 156");
        // Nothing is there too early, any order will do, and copies do no harm.
        for (last, datagram) in datagrams.iter().enumerate() {
            let others = || datagrams.iter().enumerate().filter(|(at, _)| *at != last);
            let twice = || others().flat_map(|(_, datagram)| [datagram, datagram]);
            assert_eq!(read(others().map(|(_, datagram)| datagram)), Answer::NeedMore);
            assert_eq!(hello(twice().chain([datagram])), found);
            assert_eq!(hello(twice().rev().chain([datagram, datagram])), found);
        }
    }
}

/// Our own builder makes the RFCs' packets from the frame that they have in common.
#[test]
fn the_builder_is_right() {
    let frame = datagram("rfc-frame");
    for (version, file) in [(V1, "rfc9001-a2"), (V2, "rfc9369-a2")] {
        let initial = Initial {
            dcid: vec![0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08],
            scid: vec![],
            number: 2,
            number_length: 4,
            ..Initial::new(version)
        };
        assert_eq!(initial.datagram(&frame), datagram(file), "{file}");
    }
}

/// Cut short anywhere, a packet has no part of a hello; and the whole ones still have theirs
/// afterwards, unless it would have been the first.
#[test]
fn every_datagram_cut_short() {
    for (client, datagrams, _) in flights() {
        let found = hello(&datagrams);
        for (at, datagram) in datagrams.iter().enumerate() {
            for end in 0..packet_end(datagram) {
                let mut cut = datagrams.clone();
                cut[at].truncate(end);
                let answer = read(&cut);
                assert!(!matches!(answer, Answer::Hello(_)), "{client} {at} {end}: {answer:?}");
                if at > 0 {
                    assert_eq!(answer, Answer::NeedMore, "{client} {at} {end}");
                    assert_eq!(hello(cut.iter().chain([datagram])), found, "{client} {at} {end}");
                }
            }
        }
    }
}

/// Whatever one bit does, there is never another hello; and none, but where the bit is in the padding
/// behind the packet.
#[test]
fn every_bit_flipped() {
    for (client, datagrams, _) in flights() {
        let found = Answer::Hello(hello(&datagrams));
        for (at, datagram) in datagrams.iter().enumerate() {
            let end = packet_end(datagram);
            for bit in 0..8 * datagram.len() {
                let mut flipped = datagrams.clone();
                flipped[at][bit / 8] ^= 1 << (bit % 8);
                let answer = read(&flipped);
                let good = match &answer {
                    _ if bit >= 8 * end => answer == found,
                    Answer::NeedMore if at > 0 => read(flipped.iter().chain([datagram])) == found,
                    // The kind of packet and the version are as they were.
                    Answer::Reject(_) => at == 0,
                    Answer::NeedMore | Answer::NotQuic | Answer::UnknownVersion => bit < 40,
                    Answer::Hello(_) | Answer::TooLarge => false,
                };
                assert!(good, "{client} {at} {bit}: {answer:?}");
            }
        }
    }
}

/// Where the first packet of a datagram ends.
fn packet_end(datagram: &[u8]) -> usize {
    match Packet::parse(datagram) {
        Some(Packet::Long(long)) => long.protected().unwrap().packet.len(),
        other => panic!("{other:?}"),
    }
}

/// Prints what it costs.
#[test]
fn cost_of_an_opening() {
    for (client, datagrams, _) in flights() {
        let round = |_| {
            let start = Instant::now();
            for _ in 0..100 {
                std::hint::black_box(read(std::hint::black_box(&datagrams)));
            }
            start.elapsed() / 100
        };
        let least = (0..20).map(round).min().unwrap();
        println!("{client}, {} datagrams: {least:?}", datagrams.len());
    }
}

/// As many bytes of the smallest pieces as fit into datagrams, again and again, in the order that makes
/// most work. Moving what has been received for each of them would be billions of bytes.
#[test]
fn work_is_linear_in_the_bytes() {
    let frames = |offsets: &[usize]| -> Vec<u8> {
        offsets.iter().flat_map(|&at| crypto(at + 64, &[1])).collect()
    };
    let forward: Vec<_> = (0..2000).collect();
    let apart: Vec<_> = (0..PIECES_MAX).rev().map(|at| 2 * at).cycle().take(2000).collect();
    for offsets in [forward, apart] {
        let frames = frames(&offsets);
        let datagrams: Vec<_> =
            (0..200).map(|number| Initial::numbered(number).datagram(&frames)).collect();
        let start = Instant::now();
        assert_eq!(read(&datagrams), Answer::NeedMore);
        let took = start.elapsed();
        println!("{} datagrams of {} bytes: {took:?}", datagrams.len(), datagrams[0].len());
        assert!(took.as_secs() < 5, "{took:?}");
    }
}

#[test]
fn corpus() {
    let replay = |target: &str, check: fn(&[u8])| {
        let files = fs::read_dir(format!("tests/fuzz/corpus/{target}")).unwrap();
        assert!(files.map(|file| check(&fs::read(file.unwrap().path()).unwrap())).count() > 0);
    };
    replay("quic_initial", fuzz::check_flight);
    replay("quic_lb", fuzz::check_routable);
}

/// A flight as a client might send it: a hello cut into pieces, some of them twice or overlapping,
/// in any order, and put into packets with other frames between them.
#[derive(Clone, Debug)]
struct Flight {
    message: Vec<u8>,
    datagrams: Vec<Vec<u8>>,
}

fn flight() -> impl Strategy<Value = Flight> {
    let name = "[a-z]{1,20}\\.example";
    let layout = (
        vec(any::<Index>(), 0..25),
        vec((any::<Index>(), any::<Index>()), 0..10),
        vec((any::<u16>(), 0usize..4, 0usize..6), 36),
        1usize..6,
    );
    let header = (any::<bool>(), vec(any::<u8>(), 8..=20), vec(any::<u8>(), 0..=20), 1usize..=4);
    let token = vec(any::<u8>(), 0..100);
    (name, any::<bool>(), layout, header, token).prop_map(|(name, large, layout, header, token)| {
        let (cuts, extra, order, packets) = layout;
        let mut hello = Hello::to(&name).alpn(&["h3"]);
        if large {
            hello = hello.post_quantum();
        }
        let message = hello.message();
        let (two, dcid, scid, number_length) = header;
        let version = if two { V2 } else { V1 };
        let first = Initial { dcid, scid, token, number_length, ..Initial::new(version) };
        let frames = shuffled(pieces(&message, &cuts, &extra), &order);
        let sizes = frames.len().div_ceil(packets);
        let packets = frames.chunks(sizes).enumerate().map(|(number, frames)| {
            let initial = Initial { number: number as u64, ..first.clone() };
            (initial, frames.concat())
        });
        Flight { datagrams: together(packets.collect()), message }
    })
}

/// CRYPTO frames for all of the message, and a few for parts of it again.
fn pieces(message: &[u8], cuts: &[Index], extra: &[(Index, Index)]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(message.len())).collect();
    cuts.extend([0, message.len()]);
    cuts.sort_unstable();
    let again = extra.iter().map(|(from, length)| {
        let from = from.index(message.len());
        (from, from + length.index(message.len() - from))
    });
    let pieces = cuts.windows(2).map(|ends| (ends[0], ends[1])).chain(again);
    pieces.map(|(from, to)| crypto(from, &message[from..to])).collect()
}

/// Frames in an order of keys, each with others before it.
fn shuffled(frames: Vec<Vec<u8>>, order: &[(u16, usize, usize)]) -> Vec<Vec<u8>> {
    let others: [&[u8]; 4] = [&[], &[1], &[0, 0, 0], &[2, 5, 0, 0, 0]];
    let mut keyed: Vec<_> = frames.into_iter().zip(order).collect();
    keyed.sort_by_key(|(_, (key, ..))| *key);
    keyed.into_iter().map(|(frame, (_, other, _))| [others[*other], &frame].concat()).collect()
}

/// Every other packet shares a datagram with the one behind it.
fn together(packets: Vec<(Initial, Vec<u8>)>) -> Vec<Vec<u8>> {
    let datagrams = packets.chunks(2).map(|packets| match packets {
        [(one, frames), (two, others)] => [one.packet(frames), two.datagram(others)].concat(),
        [(only, frames)] => only.datagram(frames),
        _ => unreachable!("chunks of two"),
    });
    datagrams.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// However a hello is cut, it is the same; and not there before its last piece.
    #[test]
    fn any_flight(flight in flight(), order in any::<Index>(), again in vec(any::<Index>(), 0..4)) {
        let Flight { message, mut datagrams } = flight;
        let first = order.index(datagrams.len());
        datagrams.rotate_left(first);
        for copy in again {
            let copy = datagrams[copy.index(datagrams.len())].clone();
            datagrams.insert(0, copy);
        }
        prop_assert_eq!(Ok(hello(&datagrams)), read_message(&message));
    }

    /// With any byte of it changed, there is the same hello or none.
    #[test]
    fn any_flight_mangled(flight in flight(), at in any::<(Index, Index)>(), value in 1u8..) {
        let Flight { message, mut datagrams } = flight;
        let which = at.0.index(datagrams.len());
        let byte = at.1.index(datagrams[which].len());
        datagrams[which][byte] ^= value;
        if let Answer::Hello(found) = read(&datagrams) {
            prop_assert_eq!(Ok(found), read_message(&message));
        }
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..300), how in any::<u8>()) {
        let length = bytes.len() as u16;
        let flight = [&[how], &length.to_be_bytes()[..], &bytes].concat();
        fuzz::check_flight(&flight);
        fuzz::check_flight(&bytes);
        fuzz::check_routable(&bytes);
    }

    /// Pieces of a few bytes at a few places, which often contradict each other.
    #[test]
    fn any_pieces(
        packets in vec((0u8..4, vec((0u8..24, vec(0u8..3, 0..20)), 1..6)), 1..4),
    ) {
        let mut flight = Vec::new();
        for (number, pieces) in packets {
            let frames: Vec<u8> = pieces.iter().flat_map(|(offset, data)| {
                [&[6, 0x40, *offset, 0x40, data.len() as u8], &data[..]].concat()
            }).collect();
            flight.push(number << 4 | 4);
            flight.extend((frames.len() as u16).to_be_bytes());
            flight.extend(frames);
        }
        fuzz::check_flight(&flight);
    }
}
