//! Binding listeners: one socket a worker, exclusively ours.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::address::Address;
use crate::sys;
use crate::sys::socket_file::SocketFile;

/// A socket for each worker, all at one address. None listens yet: nobody can connect.
#[derive(Debug)]
pub struct Bound {
    /// The address as bound: the kernel chose the port where 0 was asked for.
    pub local: Address,
    /// One descriptor a worker.
    pub fds: Vec<OwnedFd>,
    /// Of a unix socket.
    pub file: Option<SocketFile>,
}

/// Binds `address`, with one socket a worker.
///
/// # Errors
///
/// The address is in use, also by a socket with SO_REUSEPORT of this or another process, or it
/// is not an address of this machine, or the privilege is missing.
pub fn bind(address: &Address, v6_only: bool, workers: usize) -> io::Result<Bound> {
    match address {
        Address::Ip(ip) => bind_tcp(*ip, v6_only, workers),
        Address::Unix(path) => bind_unix(path, workers),
    }
}

fn bind_tcp(address: SocketAddr, v6_only: bool, workers: usize) -> io::Result<Bound> {
    // The first socket is bound without SO_REUSEPORT, so that the kernel refuses an address that
    // anybody else listens on. The option is set afterwards, before listen(2), so that the other
    // workers' sockets may join it.
    let first = tcp_socket(address, v6_only)?;
    first.bind(&address.into())?;
    let local = first
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::other("the kernel returned no IP address"))?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets[0].set_reuse_port(true)?;
        let socket = tcp_socket(address, v6_only)?;
        socket.set_reuse_port(true)?;
        socket.bind(&local.into())?;
        sockets.push(socket);
    }
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    let fds = sockets.into_iter().map(OwnedFd::from).collect();
    Ok(Bound { local: Address::Ip(local), fds, file: None })
}

fn tcp_socket(address: SocketAddr, v6_only: bool) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(v6_only)?;
    }
    Ok(socket)
}

fn bind_unix(path: &Path, workers: usize) -> io::Result<Bound> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    let address = SockAddr::unix(path)?;
    SocketFile::replace_stale(path)?;
    socket.bind(&address)?;
    let file = SocketFile::of(path)?;
    // Unix sockets have no SO_REUSEPORT groups: the workers share one queue.
    let mut fds = vec![OwnedFd::from(socket)];
    for _ in 1..workers {
        let shared = fds[0].try_clone()?;
        fds.push(shared);
    }
    Ok(Bound { local: Address::Unix(path.to_owned()), fds, file: Some(file) })
}

/// Takes one connection; `local` is asked of the kernel only where the listener's own address
/// does not say it.
pub fn accept(
    listening: impl AsFd,
    bound: &Address,
) -> io::Result<(OwnedFd, Option<SocketAddr>, Address)> {
    let (fd, peer) = sys::socket::accept(listening)?;
    let local = match bound {
        Address::Ip(ip) if ip.ip().is_unspecified() => {
            sys::socket::local_address(&fd)?.map_or_else(|| bound.clone(), Address::Ip)
        }
        _ => bound.clone(),
    };
    Ok((fd, peer, local))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(address: &str, workers: usize) -> Bound {
        let bound = bind(&address.parse().unwrap(), false, workers).unwrap();
        for fd in &bound.fds {
            rustix::net::listen(fd, 64).unwrap();
        }
        bound
    }

    #[test]
    fn an_address_in_use_is_refused_even_with_reuseport() {
        let first = listening("127.0.0.1:0", 2);
        assert_eq!(first.fds.len(), 2);
        for workers in [1, 2] {
            let error = bind(&first.local, false, workers).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
        let local = first.local.clone();
        drop(first);
        bind(&local, false, 2).unwrap();
    }

    #[test]
    fn a_foreign_reuseport_listener_is_in_the_way() {
        let foreign = tcp_socket("127.0.0.1:0".parse().unwrap(), false).unwrap();
        foreign.set_reuse_port(true).unwrap();
        foreign.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        foreign.listen(1).unwrap();
        let address = Address::Ip(foreign.local_addr().unwrap().as_socket().unwrap());
        let error = bind(&address, false, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn connections_spread_over_the_sockets_of_one_address() {
        let bound = listening("127.0.0.1:0", 2);
        let address = bound.local.ip().unwrap();
        let clients: Vec<_> =
            (0..64).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let taken: Vec<usize> = bound
            .fds
            .iter()
            .map(|fd| std::iter::from_fn(|| accept(fd, &bound.local).ok()).count())
            .collect();
        assert_eq!(taken.iter().sum::<usize>(), clients.len());
        assert!(taken.iter().all(|&count| count > 0), "{taken:?}");
    }

    #[test]
    fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("pointsman-{}.sock", std::process::id()));
        let address = Address::Unix(path.clone());
        let live = listening(&address.to_string(), 2);
        assert_eq!(bind(&address, false, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(live);
        // As a crashed process leaves it.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(bind(&address, false, 1).unwrap());
        assert!(!path.exists());
    }
}
