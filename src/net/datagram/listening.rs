//! A worker's socket towards the clients of a listener.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use socket2::SockRef;

use super::{Batch, Train, Trains};
use crate::sys;
use crate::sys::datagram::receive::Expected;
use crate::sys::datagram::send::How;

/// A socket of [`super::bind::Bound`].
#[derive(Debug)]
pub struct Listening {
    fd: OwnedFd,
    ipv6: bool,
    /// Bound to all addresses: a reply has to say which it leaves from.
    wildcard: bool,
    expected: Expected,
}

/// What came from one client in a row.
#[derive(Clone, Copy)]
pub struct Arrival<'a> {
    /// The client; an IPv4-mapped address as IPv4.
    pub client: SocketAddr,
    /// The address it used, to be named in [`Listening::send_to`]; `None` where that is the
    /// listener's own.
    pub local: Option<IpAddr>,
    /// The datagrams.
    pub train: Train<'a>,
}

/// A datagram for a client.
#[derive(Clone, Copy)]
pub struct Reply<'a> {
    /// The client.
    pub client: SocketAddr,
    /// The address that it has used, as of [`Arrival::local`].
    pub local: Option<IpAddr>,
    /// The payload.
    pub datagram: &'a [u8],
}

impl Listening {
    /// Takes a bound socket over, whose options are as [`super::bind::bind`] sets them.
    ///
    /// # Errors
    ///
    /// It is not bound to an IP address.
    pub fn new(fd: OwnedFd) -> io::Result<Listening> {
        let local = SockRef::from(&fd).local_addr()?;
        let local = local.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
        let (ipv6, wildcard) = (local.is_ipv6(), local.ip().is_unspecified());
        Ok(Listening { fd, ipv6, wildcard, expected: Expected::default() })
    }

    /// Takes what has come, as much as `batch` has room for.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing has come. Others pass, as all on datagram sockets
    /// ([`super::Trouble`]).
    pub fn receive<'a>(
        &mut self,
        batch: &'a mut Batch,
    ) -> io::Result<impl Iterator<Item = Arrival<'a>> + use<'a>> {
        batch.receive_many(&self.fd, true, self.expected.most())?;
        self.expected.learn(batch.messages().len());
        let trains = Trains::of(batch);
        Ok(trains.map(|(head, train)| Arrival { client: head.from, local: head.local, train }))
    }

    /// Sends one datagram to a client, from the address that it has used.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket's buffer is full; others as of [`super::Trouble`].
    pub fn send_to(
        &self,
        client: SocketAddr,
        local: Option<IpAddr>,
        bytes: &[u8],
    ) -> io::Result<()> {
        self.send(self.name(client), local, &[IoSlice::new(bytes)], None)
    }

    /// Sends a train to a client, from the address that it has used.
    ///
    /// # Errors
    ///
    /// As of [`super::Upstream::send_train`].
    pub fn send_train(
        &self,
        client: SocketAddr,
        local: Option<IpAddr>,
        train: &Train<'_>,
    ) -> io::Result<()> {
        let name = self.name(client);
        train.send(|parts, segment| self.send(name, local, parts, segment))
    }

    /// Sends datagrams of one client each, in this order, by as few system calls as it takes.
    /// Returns what came of each, with errors as of [`Listening::send_to`].
    pub fn send_many(&self, replies: &[Reply<'_>]) -> Vec<io::Result<()>> {
        let datagrams: Vec<_> = replies
            .iter()
            .map(|reply| {
                let how = self.how(self.name(reply.client), reply.local, None);
                (IoSlice::new(reply.datagram), how)
            })
            .collect();
        sys::datagram::send::send_many(&self.fd, &datagrams)
    }

    fn send(
        &self,
        to: SocketAddr,
        local: Option<IpAddr>,
        parts: &[IoSlice<'_>],
        segment: Option<u16>,
    ) -> io::Result<()> {
        sys::datagram::send::send(&self.fd, parts, self.how(to, local, segment))
    }

    fn how(&self, to: SocketAddr, local: Option<IpAddr>, segment: Option<u16>) -> How {
        // A specific address needs no naming, which costs the kernel a look at it.
        let from = local.filter(|_| self.wildcard).map(|ip| self.of_family(ip));
        How { to: Some(to), from, segment }
    }

    /// As the socket's family has it: on IPv6 sockets, IPv4 is mapped.
    fn of_family(&self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V4(v4) if self.ipv6 => v4.to_ipv6_mapped().into(),
            ip => ip,
        }
    }

    fn name(&self, client: SocketAddr) -> SocketAddr {
        match client {
            SocketAddr::V4(v4) if self.ipv6 => {
                SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into()
            }
            client => client,
        }
    }

    /// Datagrams dropped by the kernel because this worker was too slow; wraps around.
    pub fn drops(&self) -> io::Result<u32> {
        sys::datagram::drops(&self.fd)
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
