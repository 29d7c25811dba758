//! The keys of a client's Initial packets (RFC 9001 section 5; RFC 9369 section 3.3 for version 2),
//! and opening packets with them. The algorithms are ring's.

use std::fmt;

use ring::aead::quic::{self, HeaderProtectionKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Okm, Prk, Salt};

use super::packet::{Protected, Version};

/// Bits of the first byte that are protected in a long header.
const PROTECTED: u8 = 0x0f;
/// Those of them that must be 0 once the protection is off (RFC 9000 section 17.2).
const RESERVED: u8 = 0x0c;
/// How long a packet number can be: the sample starts that far behind its beginning.
const NUMBER_MAX: usize = 4;

/// What protects the Initial packets that a client sends.
pub(super) struct Keys {
    packet: LessSafeKey,
    iv: Iv,
    header: HeaderProtectionKey,
}

/// A packet that its sender made with the same keys.
pub(super) struct Opened {
    pub(super) number: u64,
    /// Whether the reserved bits are as they must be.
    pub(super) reserved_bits_clear: bool,
    /// Its frames.
    pub(super) payload: Vec<u8>,
}

impl Keys {
    /// From the destination of the client's first Initial packet.
    pub(super) fn client(version: Version, dcid: &[u8]) -> Self {
        let [salt, key, iv, header] = strings(version);
        let initial = Salt::new(HKDF_SHA256, salt).extract(dcid);
        let secret: Prk = expand(&initial, b"client in", HKDF_SHA256);
        Keys {
            packet: LessSafeKey::new(expand::<_, UnboundKey>(&secret, key, &AES_128_GCM)),
            iv: expand(&secret, iv, IvLength),
            header: expand(&secret, header, &quic::AES_128),
        }
    }

    /// Opens a packet, `largest` being the highest number of those opened before; `None` if it was
    /// not made with these keys.
    pub(super) fn open(&self, sealed: &Protected<'_>, largest: Option<u64>) -> Option<Opened> {
        let mut packet = sealed.packet.to_vec();
        let (first, truncated, length) = self.unmask(&mut packet, sealed.number_at)?;
        let number = whole_number(truncated, length, largest);
        let start = sealed.number_at + length;
        let (header, payload) = packet.split_at_mut_checked(start)?;
        let nonce = Nonce::assume_unique_for_key(self.iv.of(number));
        let plain = self.packet.open_in_place(nonce, Aad::from(header), payload).ok()?.len();
        packet.truncate(start + plain);
        packet.drain(..start);
        Some(Opened { number, reserved_bits_clear: first & RESERVED == 0, payload: packet })
    }

    /// Takes the protection off a header (RFC 9001 section 5.4): its first byte, and the packet
    /// number as sent with its length.
    fn unmask(&self, packet: &mut [u8], number_at: usize) -> Option<(u8, u64, usize)> {
        let (header, after) = packet.split_at_mut_checked(number_at)?;
        let sample = after.get(NUMBER_MAX..NUMBER_MAX + quic::AES_128.sample_len())?;
        let [first_mask, number_mask @ ..] = self.header.new_mask(sample).ok()?;
        let first = header.first_mut()?;
        *first ^= first_mask & PROTECTED;
        let length = usize::from(*first & 3) + 1;
        let number =
            after.iter_mut().zip(number_mask).take(length).fold(0, |number, (byte, mask)| {
                *byte ^= mask;
                number << 8 | u64::from(*byte)
            });
        Some((*first, number, length))
    }
}

/// Without what is secret to those who have not seen the client's packets.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

/// The initialization vector, which a packet number makes into a nonce.
struct Iv([u8; NONCE_LEN]);

impl Iv {
    fn of(&self, number: u64) -> [u8; NONCE_LEN] {
        let mut nonce = self.0;
        // Both end with their least significant byte.
        let bytes = number.to_be_bytes();
        nonce.iter_mut().rev().zip(bytes.iter().rev()).for_each(|(nonce, byte)| *nonce ^= byte);
        nonce
    }
}

struct IvLength;

impl KeyType for IvLength {
    fn len(&self) -> usize {
        NONCE_LEN
    }
}

impl From<Okm<'_, IvLength>> for Iv {
    fn from(material: Okm<'_, IvLength>) -> Self {
        let mut iv = Iv([0; NONCE_LEN]);
        material.fill(&mut iv.0).expect("as long as was asked for");
        iv
    }
}

/// The salt, and the labels of key, initialization vector and header protection: RFC 9001 sections
/// 5.1 and 5.2, RFC 9369 sections 3.3.1 and 3.3.2.
fn strings(version: Version) -> [&'static [u8]; 4] {
    match version {
        Version::V1 => [
            b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a",
            b"quic key",
            b"quic iv",
            b"quic hp",
        ],
        Version::V2 => [
            b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9",
            b"quicv2 key",
            b"quicv2 iv",
            b"quicv2 hp",
        ],
    }
}

/// `HKDF-Expand-Label` without a context (RFC 8446 section 7.1).
fn expand<L: KeyType, T>(secret: &Prk, label: &[u8], length: L) -> T
where
    T: for<'a> From<Okm<'a, L>>,
{
    const PREFIX: &[u8] = b"tls13 ";
    let short = "labels and keys have a few bytes";
    let bytes = u16::try_from(length.len()).expect(short).to_be_bytes();
    let label_length = [u8::try_from(PREFIX.len() + label.len()).expect(short)];
    let info = [bytes.as_slice(), &label_length, PREFIX, label, &[0]];
    T::from(secret.expand(&info, length).expect(short))
}

/// The packet number whose last `length` bytes are `truncated`: the one closest to what is expected
/// next (RFC 9000 section A.3).
fn whole_number(truncated: u64, length: usize, largest: Option<u64>) -> u64 {
    let window = 1u64 << (8 * length);
    let expected = largest.map_or(0, |largest| largest + 1);
    let candidate = expected & !(window - 1) | truncated;
    if candidate + window / 2 <= expected && candidate < (1 << 62) - window {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 section A.3 has the first; the others lie around the window.
    #[test]
    fn whole_numbers() {
        let check = |truncated, length, largest: u64, expected| {
            assert_eq!(whole_number(truncated, length, Some(largest)), expected, "{truncated:x}");
        };
        check(0x9b32, 2, 0xa82f_30ea, 0xa82f_9b32);
        check(0xff, 1, 0xff, 0xff);
        check(0x00, 1, 0xff, 0x100);
        check(0x7f, 1, 0xff, 0x17f);
        check(0x80, 1, 0xff, 0x180);
        check(0x81, 1, 0xff, 0x81);
        check(0xff, 1, 0x100, 0xff);
        check(0x00, 1, 0x17e, 0x100);
        check(0x00, 1, 0x17f, 0x200);
        assert_eq!(whole_number(0xffff_ffff, 4, None), 0xffff_ffff);
        assert_eq!(whole_number(0, 1, None), 0);
    }
}
