//! Makes the datagrams of QUIC clients: Initial packets around any frames, valid ones and broken
//! ones. Shared by the tests beside the reader and those of this directory. Keys are derived here
//! again, from HMAC, so that a mistake in the program's own is not made twice.

// Each test binary uses another part of it.
#![allow(dead_code)]

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey, quic};
use ring::hmac;

pub const V1: u32 = 1;
pub const V2: u32 = 0x6b33_43cf;

/// What a client makes up for the server.
pub const DCID: [u8; 8] = [0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8];

/// The type bits of version 1.
pub const INITIAL: u8 = 0;
pub const ZERO_RTT: u8 = 1;
pub const HANDSHAKE: u8 = 2;
pub const RETRY: u8 = 3;

/// A packet to be: fields as on the wire.
#[derive(Clone, Debug)]
pub struct Initial {
    pub version: u32,
    /// Of version 1, whatever the version.
    pub kind: u8,
    pub fixed_bit: bool,
    pub reserved: u8,
    pub dcid: Vec<u8>,
    pub scid: Vec<u8>,
    pub token: Vec<u8>,
    pub number: u64,
    /// Bytes of the number that are sent.
    pub number_length: usize,
    /// What the keys come from, if it is not the destination.
    pub keys_of: Option<Vec<u8>>,
}

impl Initial {
    /// The first packet of a connection.
    pub fn new(version: u32) -> Self {
        Initial {
            version,
            kind: INITIAL,
            fixed_bit: true,
            reserved: 0,
            dcid: DCID.to_vec(),
            scid: vec![0xc1; 4],
            token: vec![],
            number: 0,
            number_length: 2,
            keys_of: None,
        }
    }

    /// The packet with this number.
    pub fn numbered(number: u64) -> Self {
        Initial { number, ..Initial::new(V1) }
    }

    /// The packet, just as long as `frames` make it, but four bytes (RFC 9001 section 5.4.2).
    pub fn packet(&self, frames: &[u8]) -> Vec<u8> {
        self.sealed(frames, 0)
    }

    /// A datagram with nothing else, padded to 1200 bytes.
    pub fn datagram(&self, frames: &[u8]) -> Vec<u8> {
        self.sealed(frames, 1200)
    }

    /// The packet with PADDING behind the frames, to be of `bytes` at least.
    fn sealed(&self, frames: &[u8], bytes: usize) -> Vec<u8> {
        let mut header = self.header();
        // The length takes two bytes, and the tag 16.
        let around = header.len() + 2 + self.number_length + 16;
        let least = bytes.saturating_sub(around).max(4 - self.number_length);
        let mut payload = frames.to_vec();
        payload.resize(payload.len().max(least), 0);
        let length = u16::try_from(self.number_length + payload.len() + 16).unwrap();
        header.extend((length | 0x4000).to_be_bytes());
        let number_at = header.len();
        header.extend(&self.number.to_be_bytes()[8 - self.number_length..]);
        let keys = Keys::new(self.version, self.keys_of.as_deref().unwrap_or(&self.dcid));
        keys.seal(header, number_at, self.number, payload)
    }

    fn header(&self) -> Vec<u8> {
        let kind = if self.version == V2 { (self.kind + 1) & 3 } else { self.kind };
        let number_length = u8::try_from(self.number_length - 1).unwrap();
        let fixed = u8::from(self.fixed_bit) << 6;
        let mut header = vec![0x80 | fixed | kind << 4 | self.reserved << 2 | number_length];
        header.extend(self.version.to_be_bytes());
        for id in [&self.dcid, &self.scid] {
            header.push(u8::try_from(id.len()).unwrap());
            header.extend(id);
        }
        if self.kind == INITIAL {
            header.extend(varint(self.token.len() as u64));
            header.extend(&self.token);
        }
        header
    }
}

/// A CRYPTO frame.
pub fn crypto(offset: usize, data: &[u8]) -> Vec<u8> {
    [&[6], &varint(offset as u64)[..], &varint(data.len() as u64), data].concat()
}

/// An integer in as few bytes as possible (RFC 9000 section 16).
pub fn varint(value: u64) -> Vec<u8> {
    let (log, bytes) = match value {
        0..=0x3f => (0, 1),
        0x40..=0x3fff => (1, 2),
        0x4000..=0x3fff_ffff => (2, 4),
        _ => (3, 8),
    };
    let mut encoded = value.to_be_bytes()[8 - bytes..].to_vec();
    encoded[0] |= log << 6;
    encoded
}

/// The keys of a client's Initial packets.
struct Keys {
    key: Vec<u8>,
    iv: Vec<u8>,
    header: Vec<u8>,
}

impl Keys {
    /// RFC 9001 section 5.2 and RFC 9369 section 3.3.
    fn new(version: u32, dcid: &[u8]) -> Self {
        let (salt, labels): (_, [&[u8]; 3]) = match version {
            V2 => (
                0x0ded_e3de_f700_a6db_8193_81be_6e26_9dcb_u128,
                [b"quicv2 key", b"quicv2 iv", b"quicv2 hp"],
            ),
            _ => (
                0x3876_2cf7_f559_34b3_4d17_9ae6_a4c8_0cad_u128,
                [b"quic key", b"quic iv", b"quic hp"],
            ),
        };
        let end: u32 = if version == V2 { 0xf9bd_2ed9 } else { 0xccbb_7f0a };
        let salt = [&salt.to_be_bytes()[..], &end.to_be_bytes()].concat();
        let initial = hmac_sha256(&salt, dcid);
        let secret = expand(&initial, b"client in", 32);
        let [key, iv, header] = labels;
        Keys {
            key: expand(&secret, key, 16),
            iv: expand(&secret, iv, 12),
            header: expand(&secret, header, 16),
        }
    }

    fn seal(&self, header: Vec<u8>, number_at: usize, number: u64, payload: Vec<u8>) -> Vec<u8> {
        let mut nonce: [u8; 12] = self.iv.clone().try_into().unwrap();
        nonce[4..].iter_mut().zip(number.to_be_bytes()).for_each(|(nonce, byte)| *nonce ^= byte);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &self.key).unwrap());
        let mut sealed = payload;
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce, Aad::from(&header), &mut sealed).unwrap();
        let number_length = header.len() - number_at;
        let mut packet = [header, sealed].concat();
        let sample = &packet[number_at + 4..number_at + 20];
        let protection = quic::HeaderProtectionKey::new(&quic::AES_128, &self.header).unwrap();
        let mask = protection.new_mask(sample).unwrap();
        packet[0] ^= mask[0] & 0x0f;
        let number = packet[number_at..].iter_mut().take(number_length);
        number.zip(&mask[1..]).for_each(|(byte, mask)| *byte ^= mask);
        packet
    }
}

fn hmac_sha256(key: &[u8], data: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref().to_vec()
}

/// `HKDF-Expand-Label` (RFC 8446 section 7.1) of up to 32 bytes.
fn expand(secret: &[u8], label: &[u8], length: u8) -> Vec<u8> {
    let label_length = 6 + u8::try_from(label.len()).unwrap();
    let info = [&[0, length, label_length], &b"tls13 "[..], label, &[0, 1]].concat();
    hmac_sha256(secret, &info)[..usize::from(length)].to_vec()
}
