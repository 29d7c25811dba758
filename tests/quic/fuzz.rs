//! What holds of any datagrams; what the fuzzers look for exceptions to.

use std::collections::BTreeMap;

use pointsman::wire::client_hello::read_message;
use pointsman::wire::quic::initial::{Answer, InitialReader};
use pointsman::wire::quic::lb::Routable;
use pointsman::wire::quic::{Packet, server_id_of};

use super::builder::{Initial, V1, V2};

const MAX: usize = 64 * 1024;

/// Asserts what holds of the flight in `bytes`: datagrams, each after a byte that says how it is made
/// and its length in two.
///
/// Datagrams that are not taken as they are become the frames of an Initial packet, or else no
/// fuzzer would come past the encryption.
pub fn check_flight(bytes: &[u8]) {
    let mut readers = [MAX, 300].map(InitialReader::new);
    let mut last = [Answer::NeedMore, Answer::NeedMore];
    let mut model = Some(BTreeMap::new());
    let mut rest = bytes;
    while let [how, high, low, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
        let (content, next) = after.split_at(length);
        let datagram = datagram(*how, content);
        match how & 1 {
            0 => model = model.and_then(|model| expect(model, content)),
            _ => model = None,
        }
        check_packets(&datagram);
        for (reader, last) in readers.iter_mut().zip(&mut last) {
            let answer = reader.push(&datagram);
            assert!(*last == Answer::NeedMore || answer == *last, "{last:?}, then {answer:?}");
            *last = answer;
        }
        rest = next;
    }
    let [large, small] = &last;
    assert!(small == large || *small == Answer::TooLarge, "{small:?} {large:?}");
    if let (Answer::Hello(hello), Some(model)) = (large, model) {
        let message: Vec<u8> = model.into_values().collect();
        let length = 4 + u32::from_be_bytes([0, message[1], message[2], message[3]]) as usize;
        assert_eq!(Ok(hello), read_message(&message[..length]).as_ref());
    }
}

/// A packet of frames, its version and number from `how`; or `content` as it is.
fn datagram(how: u8, content: &[u8]) -> Vec<u8> {
    if how & 1 == 1 || content.len() > 10_000 {
        return content.to_vec();
    }
    let version = if how & 2 == 0 { V1 } else { V2 };
    let number_length = usize::from(how >> 2 & 3) + 1;
    let initial = Initial { number_length, number: u64::from(how >> 4), ..Initial::new(version) };
    initial.datagram(content)
}

/// The bytes of the stream with what these frames add; `None` where they are not all alike CRYPTO
/// frames, in integers of two bytes.
fn expect(mut model: BTreeMap<usize, u8>, mut frames: &[u8]) -> Option<BTreeMap<usize, u8>> {
    while let [kind, after @ ..] = frames {
        let [a @ 0x40..=0x7f, b, c @ 0x40..=0x7f, d, after @ ..] = after else {
            return None;
        };
        let number = |high: u8, low| usize::from(u16::from_be_bytes([high & 0x3f, low]));
        let (offset, length) = (number(*a, *b), number(*c, *d));
        let data = after.get(..length).filter(|_| *kind == 6)?;
        for (at, byte) in (offset..).zip(data) {
            // The first one stays: what contradicts it must have been rejected.
            model.entry(at).or_insert(*byte);
        }
        frames = &after[length..];
    }
    Some(model)
}

/// Asserts that what is told apart in a datagram is all of it.
fn check_packets(datagram: &[u8]) {
    let server_id = server_id_of(datagram);
    match Packet::parse(datagram) {
        Some(Packet::Long(long)) => {
            assert!(server_id.is_none_or(|id| id == long.scid));
            if let Ok(found) = long.protected() {
                assert_eq!([found.packet, found.rest].concat(), datagram);
                assert!(found.packet.len() - found.number_at >= 20);
            }
        }
        Some(Packet::Short { after_first }) => assert_eq!(after_first, &datagram[1..]),
        None => assert_eq!(server_id, None),
    }
}

/// Asserts that an id is read as it was made, for a shape, key, server and nonce out of `bytes`; and
/// that any id is read without trouble.
pub fn check_routable(bytes: &[u8]) {
    let [how, server_id_length, nonce_length, rest @ ..] = bytes else {
        return;
    };
    let Some((key, rest)) = rest.split_first_chunk() else {
        return;
    };
    let (server_id_length, nonce_length) = (usize::from(*server_id_length), (*nonce_length).into());
    let key = (how & 0x80 == 0).then_some(*key);
    let Ok(routable) = Routable::new(how & 7, key, server_id_length, nonce_length) else {
        return;
    };
    // Any bytes are an id.
    if let Some(found) = routable.decode(rest) {
        assert_eq!(found.as_slice().len(), server_id_length);
    }
    let Some((server_id, rest)) = rest.split_at_checked(server_id_length) else {
        return;
    };
    if let Some(nonce) = rest.get(..nonce_length) {
        let id = routable.encode(server_id, nonce).expect("of the right lengths");
        let found = routable.decode(id.as_slice()).expect("of the right configuration");
        assert_eq!(found.as_slice(), server_id);
    }
}
