//! How the connection ids of QUIC name a backend (draft-ietf-quic-load-balancers, QUIC-LB).

use std::fmt;

/// What a pool's backends write into their connection ids, so that a flow is known again by them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuicLb {
    /// The first three bits of a connection id, 0 to 6.
    pub config: u8,
    /// What connection ids are encrypted by; `None` when they are not.
    pub key: Option<Secret>,
    /// Bytes, 4 to 18. With `server_id_length` at most 19.
    pub nonce_length: u8,
    /// Bytes, 1 to 15: of the `server_id` of every backend of the pool.
    pub server_id_length: u8,
}

/// A key of AES-128, which no log and no answer shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 16]);

impl Secret {
    /// Takes the key's bytes.
    pub fn new(bytes: [u8; 16]) -> Self {
        Secret(bytes)
    }

    /// For the cipher, and nothing else.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
