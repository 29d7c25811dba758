//! What hash policies hash: the exact bytes, so that every instance picks alike.
//!
//! Addresses are 4 or 16 bytes and ports 2 bytes, in network order. An IPv4-mapped IPv6 address
//! counts as the IPv4 address it stands for, so that it does not matter whether a listener is
//! bound to `[::]` or `0.0.0.0`.

use std::fmt;
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
    /// The host name of the TLS hello as an A-label in lower case; the client address without
    /// one.
    Sni,
}

impl KeyKind {
    /// Every kind, in the order of the README.
    pub const ALL: [KeyKind; 4] =
        [KeyKind::FiveTuple, KeyKind::Source, KeyKind::SourceNet, KeyKind::Sni];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            KeyKind::FiveTuple => "five_tuple",
            KeyKind::Source => "source",
            KeyKind::SourceNet => "source_net",
            KeyKind::Sni => "sni",
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple<'a> {
    /// IP protocol number: 6 or 17.
    pub protocol: u8,
    /// The client's address and port.
    pub client: SocketAddr,
    /// The address and port it connected to.
    pub local: SocketAddr,
    /// The host name of the TLS hello, where one was read and has one.
    pub sni: Option<&'a str>,
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
    pub fn hash(self, tuple: &Tuple<'_>, seed: u64) -> u64 {
        if let (KeyKind::Sni, Some(name)) = (self, tuple.sni) {
            return xxh64(name.as_bytes(), seed);
        }
        let mut key = Key { bytes: [0; KEY_MAX], length: 0 };
        match self {
            KeyKind::FiveTuple => {
                key.push(&[tuple.protocol]);
                for end in [tuple.client, tuple.local] {
                    key.push_ip(end.ip());
                    key.push(&end.port().to_be_bytes());
                }
            }
            KeyKind::Source | KeyKind::Sni => key.push_ip(tuple.client.ip()),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(protocol: u8, client: &str, local: &str) -> Tuple<'static> {
        let (client, local) = (client.parse().unwrap(), local.parse().unwrap());
        Tuple { protocol, client, local, sni: None }
    }

    /// Expected values: python's xxhash over the bytes that the module's text describes.
    #[test]
    fn known_answers() {
        let check = |tuple, seed, expected: [u64; 3]| {
            let kinds = [KeyKind::FiveTuple, KeyKind::Source, KeyKind::SourceNet];
            assert_eq!(kinds.map(|kind| kind.hash(&tuple, seed)), expected, "{tuple:?} {seed}");
        };
        let v4 = [0x4425f36d393161c2, 0x42236b243319bac0, 0xf0e227503148bbdc];
        let v6 = tuple(6, "[2001:db8:1:2ff:3:4:5:6]:258", "[2001:db8::1]:8443");
        check(tuple(6, "192.0.2.7:50000", "198.51.100.1:443"), 0, v4);
        check(tuple(6, "[::ffff:192.0.2.7]:50000", "[::ffff:198.51.100.1]:443"), 0, v4);
        check(
            tuple(17, "192.0.2.7:50000", "198.51.100.1:443"),
            0,
            [0xcacdcaa4eb7a7465, v4[1], v4[2]],
        );
        check(
            tuple(6, "192.0.2.200:1", "198.51.100.1:443"),
            0,
            [0x0a457eeb1a2cf81e, 0x36aa3d9287889075, v4[2]],
        );
        check(v6, 0, [0x44b7d51fe134c133, 0xd39f2ee9c42f13dc, 0xb236c361e219ebd7]);
        check(v6, 0x5eed, [0x8cd2c63481aa1da9, 0x279fd42f9777be5c, 0xc7765fe3e71609b1]);
    }

    #[test]
    fn neighbours_share_a_net() {
        let check = |a: &str, b: &str, same: bool| {
            let [a, b] = [a, b].map(|client| tuple(6, client, "10.0.0.1:443"));
            let hash = |tuple| KeyKind::SourceNet.hash(tuple, 7);
            assert_eq!(hash(&a) == hash(&b), same, "{a:?} {b:?}");
        };
        check("10.1.2.0:1", "10.1.2.255:2", true);
        check("10.1.2.0:1", "10.1.3.0:1", false);
        check("[2001:db8:0:100::]:1", "[2001:db8:0:1ff:ffff:ffff:ffff:ffff]:2", true);
        check("[2001:db8:0:100::]:1", "[2001:db8:0:200::]:1", false);
        check("[::ffff:10.1.2.3]:1", "10.1.2.4:1", true);
    }
}
