//! Binding datagram listeners: one socket a worker, among which the kernel spreads the clients.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, Socket, Type};

use crate::sys;

/// A socket for each worker, all at one address. The kernel picks by a hash of both addresses, so
/// a client's datagrams all arrive at one of them; what comes before a worker reads waits.
#[derive(Debug)]
pub struct Bound {
    /// The address as bound: the kernel chose the port where 0 was asked for.
    pub local: SocketAddr,
    /// One descriptor a worker, for [`super::Listening::new`].
    pub fds: Vec<OwnedFd>,
}

/// Binds `address`, with one socket a worker, each with `receive_buffer` bytes if that is given.
///
/// While the sockets are open, another process of the same user could join them with SO_REUSEPORT,
/// as with TCP; nobody else can.
///
/// # Errors
///
/// The address is in use, also by a socket with SO_REUSEPORT of this or another process, or it
/// is not an address of this machine, or the privilege is missing.
pub fn bind(
    address: SocketAddr,
    v6_only: bool,
    workers: usize,
    receive_buffer: Option<usize>,
) -> io::Result<Bound> {
    // The first socket is bound without SO_REUSEPORT, so that the kernel refuses an address that
    // anybody else has. The option is set afterwards: the group of sockets comes into being with
    // the second, and takes the first in (`reuseport_add_sock`). SO_REUSEADDR, which a restart
    // needs with TCP, would let others take a UDP port over.
    let first = socket(address, v6_only, receive_buffer)?;
    first.bind(&address.into())?;
    let local = first
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::other("the kernel returned no IP address"))?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets[0].set_reuse_port(true)?;
        let socket = socket(address, v6_only, receive_buffer)?;
        socket.set_reuse_port(true)?;
        socket.bind(&local.into())?;
        sockets.push(socket);
    }
    let fds = sockets.into_iter().map(OwnedFd::from).collect();
    Ok(Bound { local: canonical(local), fds })
}

fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip.is_ipv4() => SocketAddr::new(ip, address.port()),
        // With its scope.
        _ => address,
    }
}

/// A socket with all options set before it is bound: datagrams come from then on.
fn socket(address: SocketAddr, v6_only: bool, receive_buffer: Option<usize>) -> io::Result<Socket> {
    let ipv6 = address.is_ipv6();
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))?;
    if ipv6 {
        socket.set_only_v6(v6_only)?;
    }
    sys::datagram::allow_fragments(&socket, ipv6)?;
    if address.ip().is_unspecified() {
        sys::datagram::set_tell_local(&socket, ipv6)?;
    }
    // Without it a burst comes as single datagrams.
    let _ = sys::datagram::set_gro(&socket, true);
    if let Some(bytes) = receive_buffer {
        sys::datagram::set_receive_buffer(&socket, bytes)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::net::UdpSocket;

    use crate::net::datagram::{Batch, Listening};

    fn any(address: &str, workers: usize) -> Bound {
        bind(address.parse().unwrap(), false, workers, None).unwrap()
    }

    #[track_caller]
    fn check_in_use(address: SocketAddr) {
        for workers in [1, 2] {
            let error = bind(address, false, workers, None).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn an_address_in_use_is_refused_even_with_reuseport() {
        for workers in [1, 2] {
            let first = any("127.0.0.1:0", workers);
            assert_eq!(first.fds.len(), workers);
            check_in_use(first.local);
            let wildcard = SocketAddr::new("0.0.0.0".parse().unwrap(), first.local.port());
            check_in_use(wildcard);
            let local = first.local;
            drop(first);
            bind(local, false, 2, None).unwrap();
        }
    }

    #[test]
    fn a_foreign_socket_is_in_the_way_and_cannot_take_over() {
        for (reuse_port, reuse_address) in [(true, false), (false, true), (true, true)] {
            let foreign = || {
                let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
                socket.set_reuse_port(reuse_port).unwrap();
                socket.set_reuse_address(reuse_address).unwrap();
                socket
            };
            let first = foreign();
            first.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
            check_in_use(first.local_addr().unwrap().as_socket().unwrap());
            let ours = any("127.0.0.1:0", 1);
            foreign().bind(&ours.local.into()).unwrap_err();
        }
    }

    #[test]
    fn clients_are_spread_evenly_and_each_stays_with_one_socket() {
        const CLIENTS: usize = 600;
        for (address, workers) in [
            ("127.0.0.1:0", 1),
            ("127.0.0.1:0", 2),
            ("127.0.0.1:0", 3),
            ("127.0.0.1:0", 4),
            ("0.0.0.0:0", 4),
            ("[::]:0", 4),
        ] {
            let bound = any(address, workers);
            let port = bound.local.port();
            let mut sockets: Vec<_> =
                bound.fds.into_iter().map(|fd| Listening::new(fd).unwrap()).collect();
            let mut batch = Batch::default();
            let mut places = HashMap::new();
            let mut counts = vec![0; workers];
            for _ in 0..CLIENTS {
                let client = UdpSocket::bind("127.0.0.1:0").unwrap();
                client.connect(("127.0.0.1", port)).unwrap();
                for round in 0..3 {
                    client.send(b"a").unwrap();
                    let got: Vec<_> = (0..workers)
                        .filter(|&index| sockets[index].receive(&mut batch).is_ok())
                        .collect();
                    let [index] = got[..] else { panic!("{got:?}") };
                    counts[index] += usize::from(round == 0);
                    let address = client.local_addr().unwrap();
                    assert!(round == 0 || places[&address] == index, "it moved");
                    places.insert(address, index);
                }
            }
            let even = CLIENTS / workers;
            let fair = even * 7 / 10..=even * 13 / 10;
            assert!(counts.iter().all(|count| fair.contains(count)), "{address}: {counts:?}");
        }
    }

    #[test]
    fn the_receive_buffer_is_of_every_socket() {
        let bound = bind("127.0.0.1:0".parse().unwrap(), false, 2, Some(50_000)).unwrap();
        for fd in &bound.fds {
            assert_eq!(sys::datagram::receive_buffer(fd).unwrap(), 50_000);
        }
    }
}
