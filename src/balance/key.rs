//! What hash policies hash: the exact bytes, so that every instance picks alike.
//!
//! Addresses are 4 or 16 bytes and ports 2 bytes, in network order. An IPv4-mapped IPv6 address
//! counts as the IPv4 address it stands for, so that it does not matter whether a listener is
//! bound to `[::]` or `0.0.0.0`.

use std::net::{IpAddr, SocketAddr};

use xxhash_rust::xxh64::xxh64;

/// Which part of a connection a hash policy looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Protocol number, client address, client port, local address, local port.
    FiveTuple,
    /// Client address.
    Source,
    /// Client address with everything after the /24 or /56 zeroed: still 4 or 16 bytes.
    SourceNet,
}

/// The addresses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// IP protocol number: 6 or 17.
    pub protocol: u8,
    /// The client's address and port.
    pub client: SocketAddr,
    /// The address and port it connected to.
    pub local: SocketAddr,
}

/// The longest key: a five-tuple of IPv6.
const KEY_MAX: usize = 1 + 2 * (16 + 2);

/// A key under construction, on the stack.
struct Key {
    bytes: [u8; KEY_MAX],
    length: usize,
}

impl KeyKind {
    /// XXH64 of the key, with the configuration's `hash_seed`. Allocates nothing.
    pub fn hash(self, tuple: &Tuple, seed: u64) -> u64 {
        let mut key = Key { bytes: [0; KEY_MAX], length: 0 };
        match self {
            KeyKind::FiveTuple => {
                key.push(&[tuple.protocol]);
                for end in [tuple.client, tuple.local] {
                    key.push_ip(end.ip());
                    key.push(&end.port().to_be_bytes());
                }
            }
            KeyKind::Source => key.push_ip(tuple.client.ip()),
            KeyKind::SourceNet => key.push_ip(network(tuple.client.ip())),
        }
        xxh64(&key.bytes[..key.length], seed)
    }
}

impl Key {
    fn push(&mut self, part: &[u8]) {
        self.bytes[self.length..][..part.len()].copy_from_slice(part);
        self.length += part.len();
    }

    fn push_ip(&mut self, ip: IpAddr) {
        match ip.to_canonical() {
            IpAddr::V4(ip) => self.push(&ip.octets()),
            IpAddr::V6(ip) => self.push(&ip.octets()),
        }
    }
}

/// The /24 or /56 that an address is in: commonly one customer, or one carrier's NAT.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4((ip.to_bits() & (u32::MAX << 8)).into()),
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & (u128::MAX << 72)).into()),
    }
}
