//! What tells one flow from another.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A client's address and port, and the address it sent to: what an answer has to come from.
///
/// IPv4 and its IPv4-mapped form are the same client; reading gives the IPv4 address. The zone of
/// a link-local client counts, the flow label does not. In 40 bytes instead of 52.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    client: [u8; 16],
    local: [u8; 16],
    zone: u32,
    port: u16,
}

impl Key {
    /// The flow from `client` to `local`.
    pub fn new(client: SocketAddr, local: IpAddr) -> Self {
        let zone = match client {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(client) => client.scope_id(),
        };
        let (client, port) = (client.ip(), client.port());
        Key { client: octets(client), local: octets(local), zone, port }
    }

    /// Who sends.
    pub fn client(&self) -> SocketAddr {
        match Ipv6Addr::from(self.client).to_canonical() {
            IpAddr::V4(ip) => SocketAddr::from((ip, self.port)),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, self.port, 0, self.zone).into(),
        }
    }

    /// The address it sends to.
    pub fn local(&self) -> IpAddr {
        Ipv6Addr::from(self.local).to_canonical()
    }
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// In three words, which a hash takes faster than bytes.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from_ne_bytes(self.client));
        state.write_u128(u128::from_ne_bytes(self.local));
        state.write_u64(u64::from(self.zone) << 16 | u64::from(self.port));
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.client(), self.local())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(client: &str, local: &str) -> Key {
        Key::new(client.parse().unwrap(), local.parse().unwrap())
    }

    #[test]
    fn read_back() {
        for (client, local, read) in [
            ("10.0.0.1:53", "10.0.0.9", "10.0.0.1:53 to 10.0.0.9"),
            ("[::ffff:10.0.0.1]:53", "::ffff:10.0.0.9", "10.0.0.1:53 to 10.0.0.9"),
            ("[2001:db8::1]:0", "2001:db8::9", "[2001:db8::1]:0 to 2001:db8::9"),
            ("[fe80::1%3]:65535", "fe80::9", "[fe80::1%3]:65535 to fe80::9"),
            ("[::]:1", "::", "[::]:1 to ::"),
            ("0.0.0.0:1", "0.0.0.0", "0.0.0.0:1 to 0.0.0.0"),
        ] {
            let key = key(client, local);
            assert_eq!(format!("{key:?}"), read);
            assert_eq!(Key::new(key.client(), key.local()), key);
        }
    }

    #[test]
    fn each_part_counts() {
        let keys = [
            key("10.0.0.1:53", "10.0.0.9"),
            key("10.0.0.2:53", "10.0.0.9"),
            key("10.0.0.1:54", "10.0.0.9"),
            key("10.0.0.1:53", "10.0.0.8"),
            key("[::10.0.0.1]:53", "10.0.0.9"),
            key("[fe80::1%1]:53", "fe80::9"),
            key("[fe80::1%2]:53", "fe80::9"),
        ];
        let hasher = ahash::RandomState::with_seed(1);
        for (at, one) in keys.iter().enumerate() {
            for other in &keys[at + 1..] {
                assert_ne!(one, other);
                assert_ne!(hasher.hash_one(one), hasher.hash_one(other));
            }
        }
    }
}
