//! Which addresses are taken: each is bound once for each protocol, in whatever spelling.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::Protocol;
use super::error::{Place, Problem, Quoted};
use crate::address::Address;

/// The addresses bound so far.
#[derive(Debug, Default)]
pub(super) struct Binds {
    taken: HashMap<(Protocol, Address), Place>,
    /// What the kernel would find in the way of others at the same port.
    ports: HashMap<(Protocol, u16), Families>,
}

/// The first address bound for each family: an unspecified one is in the way of all the others
/// of its family, and they are in its way.
#[derive(Debug, Default)]
struct Families {
    v4: Family,
    v6: Family,
}

#[derive(Debug, Default)]
struct Family {
    unspecified: Option<(SocketAddr, Place)>,
    specific: Option<(SocketAddr, Place)>,
}

impl Binds {
    /// Takes `address`, or says who has it. Port 0 is another port each time.
    pub(super) fn add(
        &mut self,
        protocol: Protocol,
        address: &Address,
        v6_only: bool,
        place: Place,
    ) -> Result<(), Problem> {
        if address.ip().is_some_and(|ip| ip.port() == 0) {
            return Ok(());
        }
        let key = (protocol, address.clone());
        if let Some(first) = self.taken.get(&key) {
            let address = Quoted::new(&address.to_string());
            return Err(Problem::BindTwice { address, first: *first });
        }
        if let Some(ip) = address.ip() {
            let port = self.ports.entry((protocol, ip.port())).or_default();
            if let Some((other, first)) = port.in_the_way(ip, v6_only) {
                let (address, other) = (ip.to_string(), other.to_string());
                let (address, other) = (Quoted::new(&address), Quoted::new(&other));
                return Err(Problem::BindOverlap { address, other, first });
            }
            port.take(ip, v6_only, place);
        }
        self.taken.insert(key, place);
        Ok(())
    }
}

impl Families {
    fn in_the_way(&self, address: SocketAddr, v6_only: bool) -> Option<(SocketAddr, Place)> {
        let unspecified = address.ip().is_unspecified();
        let of = |family: &Family| {
            family.unspecified.or(if unspecified { family.specific } else { None })
        };
        match address {
            SocketAddr::V4(_) => of(&self.v4),
            SocketAddr::V6(_) if unspecified && !v6_only => of(&self.v6).or(of(&self.v4)),
            SocketAddr::V6(_) => of(&self.v6),
        }
    }

    fn take(&mut self, address: SocketAddr, v6_only: bool, place: Place) {
        let unspecified = address.ip().is_unspecified();
        let note = |family: &mut Family| {
            let slot = if unspecified { &mut family.unspecified } else { &mut family.specific };
            slot.get_or_insert((address, place));
        };
        if address.is_ipv4() || unspecified && !v6_only {
            note(&mut self.v4);
        }
        if address.is_ipv6() {
            note(&mut self.v6);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts() {
        for (first, first_v6_only, second, second_v6_only, free) in [
            ("10.0.0.1:80", false, "10.0.0.1:80", false, false),
            ("10.0.0.1:80", false, "[::ffff:10.0.0.1]:80", false, false),
            ("10.0.0.1:80", false, "10.0.0.1:81", false, true),
            ("10.0.0.1:80", false, "10.0.0.2:80", false, true),
            ("[2001:db8::1]:80", false, "[2001:DB8:0:0::1]:80", false, false),
            ("127.0.0.1:0", false, "127.0.0.1:0", false, true),
            ("[::]:80", false, "0.0.0.0:80", false, false),
            ("[::]:80", true, "0.0.0.0:80", false, true),
            ("0.0.0.0:80", false, "[::]:80", false, false),
            ("0.0.0.0:80", true, "[::]:80", false, false),
            ("0.0.0.0:80", false, "[::]:80", true, true),
            ("[::]:80", true, "[::]:80", true, false),
            ("[::]:80", false, "[::ffff:0.0.0.0]:80", false, false),
            ("[::]:0", false, "0.0.0.0:0", false, true),
            ("0.0.0.0:80", false, "10.0.0.1:80", false, false),
            ("10.0.0.1:80", false, "0.0.0.0:80", false, false),
            ("0.0.0.0:80", false, "10.0.0.1:81", false, true),
            ("[::]:80", false, "10.0.0.1:80", false, false),
            ("10.0.0.1:80", false, "[::]:80", false, false),
            ("[::]:80", true, "10.0.0.1:80", false, true),
            ("[::]:80", true, "[2001:db8::1]:80", false, false),
            ("[2001:db8::1]:80", false, "[::]:80", true, false),
            ("0.0.0.0:80", false, "[2001:db8::1]:80", false, true),
            ("unix:/a/b", false, "unix:/a//b", false, false),
            ("unix:/a/b", false, "unix:/a/./b", false, false),
            ("unix:/a/b", false, "unix:/a/c", false, true),
        ] {
            let (first, second) = (first.parse().unwrap(), second.parse().unwrap());
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let mut binds = Binds::default();
                binds.add(protocol, &first, first_v6_only, Place::Line(1)).unwrap();
                let result = binds.add(protocol, &second, second_v6_only, Place::Line(2));
                assert_eq!(result.is_ok(), free, "{first} {second}: {result:?}");
            }
            let mut binds = Binds::default();
            binds.add(Protocol::Tcp, &first, first_v6_only, Place::Line(1)).unwrap();
            binds.add(Protocol::Udp, &second, second_v6_only, Place::Line(2)).unwrap();
        }
    }
}
