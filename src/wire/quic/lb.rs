//! Connection ids that say which server they belong to (QUIC-LB,
//! draft-ietf-quic-load-balancers-21): a server makes them so that any balancer with the same
//! configuration finds it, without having seen the connection before.
//!
//! ```text
//! id = config(3 bits) length-or-random(5 bits) server-id nonce [anything]      section 4.2
//! ```
//!
//! With a key, server id and nonce are encrypted together: as one block of AES if they are 16 bytes,
//! or else by four rounds of a Feistel network over their halves (section 4.4).

use std::fmt;
use std::ops::RangeInclusive;

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};

use super::packet::{ConnectionId, ID_MAX};

/// Configurations are told apart by three bits; 7 says that an id has no server id.
pub const ROTATION_MAX: u8 = 6;
/// Bytes of a server id.
pub const SERVER_ID_LENGTHS: RangeInclusive<usize> = 1..=15;
/// Bytes of a nonce.
pub const NONCE_LENGTHS: RangeInclusive<usize> = 4..=18;
/// Bytes of both: what the ids of QUIC have room for behind the first byte.
pub const BOTH_MAX: usize = ID_MAX - 1;

const SERVER_ID_MAX: usize = *SERVER_ID_LENGTHS.end();
const BLOCK: usize = 16;

/// The shape of a pool's connection ids, and their key.
#[derive(Clone, Debug)]
pub struct Routable {
    rotation: u8,
    /// Without a key, ids are not encrypted.
    cipher: Option<Aes128>,
    server_id_length: usize,
    nonce_length: usize,
}

/// Why there are no connection ids of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A configuration that three bits do not say, or 7.
    #[error("the number of a QUIC-LB configuration is 0 to 6")]
    Rotation,
    /// A server id without a byte or with too many.
    #[error("a server id has 1 to 15 bytes")]
    ServerIdLength,
    /// A nonce too short or too long.
    #[error("a nonce has 4 to 18 bytes")]
    NonceLength,
    /// More than a connection id has room for.
    #[error("server id and nonce have at most 19 bytes together")]
    TooLong,
}

/// Which server: up to 15 bytes, equal only to those of the same length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId {
    bytes: [u8; SERVER_ID_MAX],
    length: u8,
}

impl Routable {
    /// Ids of configuration `rotation` (0 to 6), encrypted if there is a `key`. Lengths are in bytes.
    pub fn new(
        rotation: u8,
        key: Option<[u8; 16]>,
        server_id_length: usize,
        nonce_length: usize,
    ) -> Result<Self, ShapeError> {
        if rotation > ROTATION_MAX {
            return Err(ShapeError::Rotation);
        }
        if !SERVER_ID_LENGTHS.contains(&server_id_length) {
            return Err(ShapeError::ServerIdLength);
        }
        if !NONCE_LENGTHS.contains(&nonce_length) {
            return Err(ShapeError::NonceLength);
        }
        if server_id_length + nonce_length > BOTH_MAX {
            return Err(ShapeError::TooLong);
        }
        let cipher = key.map(|key| Aes128::new(&key.into()));
        Ok(Routable { rotation, cipher, server_id_length, nonce_length })
    }

    /// The configuration that the first three bits of its ids say.
    pub fn rotation(&self) -> u8 {
        self.rotation
    }

    /// Bytes of an id, without what servers append for their own use.
    pub fn id_length(&self) -> usize {
        1 + self.server_id_length + self.nonce_length
    }

    /// The server that made `id`, which may go on with other bytes: with those of a short header,
    /// for one. `None` if it is too short or of another configuration.
    ///
    /// Any id of the right configuration is some server's, made up by a client or not: the caller
    /// knows which servers there are.
    pub fn decode(&self, id: &[u8]) -> Option<ServerId> {
        let (&first, rest) = id.split_first()?;
        if first >> 5 != self.rotation {
            return None;
        }
        let mut both = Both::new(rest.get(..self.server_id_length + self.nonce_length)?)?;
        if let Some(cipher) = &self.cipher {
            // Three rounds are enough for the first half.
            both.decrypt(cipher, self.server_id_length > self.nonce_length);
        }
        ServerId::new(both.as_slice().get(..self.server_id_length)?)
    }

    /// The id that a server makes, for programs that stand in for one. Its first byte says how long
    /// the rest is. `None` if server id or nonce have other lengths than this configuration's.
    ///
    /// A nonce must not be used twice, and without a key must look random.
    pub fn encode(&self, server_id: &[u8], nonce: &[u8]) -> Option<ConnectionId> {
        if server_id.len() != self.server_id_length || nonce.len() != self.nonce_length {
            return None;
        }
        let mut both = Both::new(&[server_id, nonce].concat())?;
        if let Some(cipher) = &self.cipher {
            both.encrypt(cipher);
        }
        let first = self.rotation << 5 | u8::try_from(both.length).ok()?;
        ConnectionId::new(&[&[first], both.as_slice()].concat())
    }
}

impl ServerId {
    /// `None` without a byte, or of more than 15.
    pub fn new(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; SERVER_ID_MAX];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        let length = u8::try_from(id.len()).ok().filter(|&length| length > 0)?;
        Some(ServerId { bytes, length })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// In hexadecimal.
impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Server id and nonce, encrypted or not.
struct Both {
    bytes: [u8; BOTH_MAX],
    length: usize,
}

/// Half of them. Of an odd number of bytes, the one in the middle is divided, and its other half is
/// zero here.
type Half = [u8; BOTH_MAX.div_ceil(2)];

impl Both {
    fn new(both: &[u8]) -> Option<Self> {
        let mut bytes = [0; BOTH_MAX];
        bytes.get_mut(..both.len())?.copy_from_slice(both);
        Some(Both { bytes, length: both.len() })
    }

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The only block, if they are one.
    fn block(&mut self) -> Option<&mut Block> {
        self.bytes.get_mut(..self.length)?.try_into().ok()
    }

    fn encrypt(&mut self, cipher: &Aes128) {
        if let Some(block) = self.block() {
            return cipher.encrypt_block(block);
        }
        let (mut left, mut right) = self.halves();
        self.round(cipher, 1, &left, &mut right);
        self.round(cipher, 2, &right, &mut left);
        self.round(cipher, 3, &left, &mut right);
        self.round(cipher, 4, &right, &mut left);
        self.join(&left, &right);
    }

    /// Decrypts the left half, and all if `whole`.
    fn decrypt(&mut self, cipher: &Aes128, whole: bool) {
        if let Some(block) = self.block() {
            return cipher.decrypt_block(block);
        }
        let (mut left, mut right) = self.halves();
        self.round(cipher, 4, &right, &mut left);
        self.round(cipher, 3, &left, &mut right);
        self.round(cipher, 2, &right, &mut left);
        if whole {
            self.round(cipher, 1, &left, &mut right);
        }
        self.join(&left, &right);
    }

    /// Bytes of a half, and the odd byte that the halves share.
    fn half(&self) -> (usize, usize) {
        (self.length.div_ceil(2), self.length % 2)
    }

    fn halves(&self) -> (Half, Half) {
        let (half, odd) = self.half();
        let (mut left, mut right) = (Half::default(), Half::default());
        left.iter_mut().zip(&self.bytes).take(half).for_each(|(to, from)| *to = *from);
        let second = self.bytes.iter().skip(half - odd);
        right.iter_mut().zip(second).take(half).for_each(|(to, from)| *to = *from);
        self.clear_left(&mut left);
        self.clear_right(&mut right);
        (left, right)
    }

    fn join(&mut self, left: &Half, right: &Half) {
        let (half, odd) = self.half();
        self.bytes = [0; BOTH_MAX];
        self.bytes.iter_mut().zip(left).take(half).for_each(|(to, from)| *to = *from);
        let second = self.bytes.iter_mut().skip(half - odd);
        second.zip(right).take(half).for_each(|(to, from)| *to |= *from);
    }

    /// One pass: changes the right half by the left in odd ones, the left by the right in others.
    fn round(&self, cipher: &Aes128, pass: u8, by: &Half, half: &mut Half) {
        // The length is below 20, and a half is zero beyond its end.
        let mut block = [0; BLOCK];
        block.iter_mut().zip(by).for_each(|(to, from)| *to = *from);
        let [.., length_byte, pass_byte] = &mut block;
        (*length_byte, *pass_byte) = (self.length as u8, pass);
        let mut block = Block::from(block);
        cipher.encrypt_block(&mut block);
        half.iter_mut().zip(block).take(self.half().0).for_each(|(to, with)| *to ^= with);
        if pass % 2 == 1 { self.clear_right(half) } else { self.clear_left(half) }
    }

    fn clear_left(&self, left: &mut Half) {
        if let (half, 1) = self.half() {
            left.iter_mut().take(half).skip(half - 1).for_each(|shared| *shared &= 0xf0);
        }
    }

    fn clear_right(&self, right: &mut Half) {
        if let (_, 1) = self.half() {
            let [shared, ..] = right;
            *shared &= 0x0f;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration and an id of it, from text.
    struct Known {
        shape: Routable,
        server_id: Vec<u8>,
        nonce: Vec<u8>,
        id: Vec<u8>,
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<_> = text.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn known(rotation: u8, key: Option<&str>, server_id: &str, nonce: &str, id: &str) -> Known {
        let key = key.map(|key| hex(key).try_into().unwrap());
        let [server_id, nonce, id] = [server_id, nonce, id].map(hex);
        let shape = Routable::new(rotation, key, server_id.len(), nonce.len()).unwrap();
        Known { shape, server_id, nonce, id }
    }

    fn check(known: Known) {
        let Known { shape, server_id, nonce, id } = known;
        assert_eq!(shape.encode(&server_id, &nonce).unwrap().as_slice(), id);
        assert_eq!(shape.decode(&id).unwrap().as_slice(), server_id);
        assert_eq!(shape.id_length(), id.len());
    }

    #[test]
    fn vectors() {
        let text = include_str!("../../../tests/data/quic-lb.json");
        let file: serde_json::Value = serde_json::from_str(text).unwrap();
        let vectors = file["vectors"].as_array().unwrap();
        assert!(!vectors.is_empty());
        for vector in vectors {
            let text = |field: &str| vector[field].as_str().unwrap();
            let rotation = vector["config_rotation"].as_u64().unwrap() as u8;
            let key = file["key"].as_str();
            let ids = [text("server_id"), text("nonce"), text("connection_id")];
            check(known(rotation, key, ids[0], ids[1], ids[2]));
        }
    }

    /// The draft's own: section 4.4.2.4, and appendix B as far as its first bytes are what its text
    /// says. In the last the server id is longer than the nonce.
    #[test]
    fn examples_of_the_draft() {
        check(known(0, None, "c4605e", "4504cc4f", "07c4605e4504cc4f"));
        let key = "fdf726a9893ec05c0632d3956680baf0";
        check(known(0, Some(key), "31441a", "9c69c275", "0767947d29be054a"));
        let key = "8f95f09245765f80256934e50c66207f";
        let id = "2fcc381bc74cb4fbad2823a3d1f8fed2";
        check(known(1, Some(key), "ed793a51d49b8f5fab65", "ee080dbf48", id));
    }

    /// With a key and without one.
    fn shapes() -> Vec<Routable> {
        let mut all = Vec::new();
        for server_id in 0..=20 {
            for nonce in 0..=20 {
                let allowed = (1..=15).contains(&server_id)
                    && (4..=18).contains(&nonce)
                    && server_id + nonce <= 19;
                for key in [None, Some([7; 16])] {
                    let shape = Routable::new(server_id as u8 % 7, key, server_id, nonce);
                    assert_eq!(shape.is_ok(), allowed, "{server_id} {nonce}");
                    all.extend(shape);
                }
            }
        }
        all
    }

    #[test]
    fn there_and_back_at_all_lengths() {
        for shape in shapes() {
            for start in [0u8, 100, 250] {
                let bytes: Vec<u8> = (0..19).map(|byte| start ^ (byte * 13)).collect();
                let (server_id, nonce) = bytes.split_at(shape.server_id_length);
                let nonce = &nonce[..shape.nonce_length];
                let id = shape.encode(server_id, nonce).unwrap();
                let id = id.as_slice();
                assert_eq!(id.len(), shape.id_length());
                assert_eq!(usize::from(id[0] & 31), id.len() - 1);
                let encrypted = id[1..] != [server_id, nonce].concat();
                assert_eq!(encrypted, shape.cipher.is_some());
                let found = shape.decode(id).unwrap();
                assert_eq!(found.as_slice(), server_id, "{shape:?}");
                // Whatever the length bits are, and whatever follows.
                let other = [&[id[0] ^ 31], &id[1..], &[1, 2, 3]].concat();
                assert_eq!(shape.decode(&other), Some(found));
                // Too short, and of other configurations.
                (0..id.len()).for_each(|end| assert_eq!(shape.decode(&id[..end]), None));
                for rotation in (1..8).map(|other| other << 5) {
                    let other = [&[id[0] ^ rotation], &id[1..]].concat();
                    assert_eq!(shape.decode(&other), None);
                }
                assert_eq!(shape.encode(&server_id[1..], nonce), None);
                assert_eq!(shape.encode(server_id, &[nonce, &[0]].concat()), None);
            }
        }
    }

    #[test]
    fn shapes_that_there_are_not() {
        let check = |rotation, server_id, nonce, expected| {
            let found = Routable::new(rotation, None, server_id, nonce).map(|_| ());
            assert_eq!(found, Err(expected), "{rotation} {server_id} {nonce}");
        };
        check(7, 1, 4, ShapeError::Rotation);
        check(0, 0, 4, ShapeError::ServerIdLength);
        check(0, 16, 4, ShapeError::ServerIdLength);
        check(0, 1, 3, ShapeError::NonceLength);
        check(0, 1, usize::MAX, ShapeError::NonceLength);
        check(0, 1, 19, ShapeError::NonceLength);
        check(0, 15, 5, ShapeError::TooLong);
        check(0, 2, 18, ShapeError::TooLong);
    }

    #[test]
    fn a_key_is_not_printed() {
        let shape = Routable::new(0, Some([0xab; 16]), 3, 4).unwrap();
        let text = format!("{shape:?}").to_lowercase();
        assert!(!text.contains("171") && !text.contains("abab"), "{text}");
    }

    #[test]
    fn server_ids() {
        assert_eq!(ServerId::new(&[]), None);
        assert_eq!(ServerId::new(&[0; 16]), None);
        assert_ne!(ServerId::new(&[0; 1]), ServerId::new(&[0; 2]));
        assert_eq!(format!("{:?}", ServerId::new(&[1, 0xab]).unwrap()), "01ab");
    }
}
