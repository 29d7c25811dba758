//! Which addresses are taken: each is bound once, in whatever spelling.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::error::{Place, Problem, Quoted};
use crate::address::Address;

/// The addresses bound so far.
#[derive(Debug, Default)]
pub(super) struct Binds {
    taken: HashMap<Address, Bound>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    place: Place,
    v6_only: bool,
}

impl Binds {
    /// Takes `address`, or says who has it. Port 0 is another port each time.
    pub(super) fn add(
        &mut self,
        address: &Address,
        v6_only: bool,
        place: Place,
    ) -> Result<(), Problem> {
        if address.ip().is_some_and(|ip| ip.port() == 0) {
            return Ok(());
        }
        let quoted = || Quoted::new(&address.to_string());
        if let Some(other) = self.taken.get(address) {
            return Err(Problem::BindTwice { address: quoted(), first: other.place });
        }
        if let Some(twin) = twin(address) {
            let dual = |bound: &Bound| match twin.ip() {
                Some(SocketAddr::V6(_)) => !bound.v6_only,
                _ => !v6_only,
            };
            if let Some(other) = self.taken.get(&twin).filter(|bound| dual(bound)) {
                return Err(Problem::BindOverlap {
                    address: quoted(),
                    other: Quoted::new(&twin.to_string()),
                    first: other.place,
                });
            }
        }
        self.taken.insert(address.clone(), Bound { place, v6_only });
        Ok(())
    }
}

/// `[::]` for `0.0.0.0` and the other way round: without `v6_only`, the first takes both.
fn twin(address: &Address) -> Option<Address> {
    let address = address.ip().filter(|ip| ip.ip().is_unspecified())?;
    let other = match address.ip() {
        IpAddr::V4(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
    };
    Some(Address::Ip(SocketAddr::new(other, address.port())))
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
            ("unix:/a/b", false, "unix:/a//b", false, false),
            ("unix:/a/b", false, "unix:/a/./b", false, false),
            ("unix:/a/b", false, "unix:/a/c", false, true),
        ] {
            let mut binds = Binds::default();
            binds.add(&first.parse().unwrap(), first_v6_only, Place::Line(1)).unwrap();
            let result = binds.add(&second.parse().unwrap(), second_v6_only, Place::Line(2));
            assert_eq!(result.is_ok(), free, "{first} {second}: {result:?}");
        }
    }
}
