//! A flow's socket towards its backend.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::{Batch, Train, Trains};
use crate::sys;
use crate::sys::datagram::receive::Expected;
use crate::sys::datagram::send::{How, send};

/// A connected socket: the kernel keeps the route, and tells what ICMP says of it.
#[derive(Debug)]
pub struct Upstream {
    fd: OwnedFd,
    /// `UDP_GRO` is set, if the kernel has it.
    bursts: bool,
    expected: Expected,
}

impl Upstream {
    /// A socket to a backend, with a local port of its own. Nothing is sent.
    ///
    /// # Errors
    ///
    /// No descriptor is left; no local port is left (`AddrNotAvailable`); no route leads there.
    pub fn connect(backend: SocketAddr) -> io::Result<Upstream> {
        let ipv6 = backend.is_ipv6();
        let family = if ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        sys::datagram::allow_fragments(&fd, ipv6)?;
        sys::datagram::tell_errors(&fd, ipv6)?;
        rustix::net::connect(&fd, &backend).map_err(|errno| match errno {
            // Nothing that waiting for the socket would help.
            rustix::io::Errno::AGAIN => rustix::io::Errno::ADDRNOTAVAIL,
            errno => errno,
        })?;
        Ok(Upstream { fd, bursts: false, expected: Expected::default() })
    }

    /// Makes [`Upstream::receive`] take many datagrams at a time from now on, which costs more
    /// where there is but one: for a flow that comes in bursts. There is no way back: what the
    /// kernel has put together by then could no longer be told apart.
    pub fn expect_bursts(&mut self) {
        if !self.bursts {
            // Without it a burst comes as single datagrams.
            let _ = sys::datagram::set_gro(&self.fd, true);
            self.bursts = true;
        }
    }

    /// Takes what the backend has sent: one datagram, or many if it [expects](Upstream::expect_bursts)
    /// them.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing has come; others as of [`super::Trouble`].
    pub fn receive<'a>(
        &mut self,
        batch: &'a mut Batch,
    ) -> io::Result<impl Iterator<Item = Train<'a>> + use<'a>> {
        if self.bursts {
            self.heard(batch.receive_many(&self.fd, false, self.expected.most()))?;
            self.expected.learn(batch.messages().len());
        } else {
            batch.clear();
            self.receive_single(batch)?;
        }
        Ok(Trains::of(batch).map(|(_, train)| train))
    }

    /// Whether [`Upstream::receive_single`] may be used.
    pub fn expects_singles(&self) -> bool {
        !self.bursts
    }

    /// Takes one datagram into the slot of `batch` behind what is there, which must not be full.
    /// Not for a socket that expects bursts.
    ///
    /// # Errors
    ///
    /// As of [`Upstream::receive`].
    pub fn receive_single(&self, batch: &mut Batch) -> io::Result<()> {
        self.heard(batch.receive(&self.fd))
    }

    /// Sends one datagram.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket's buffer is full; others as of [`super::Trouble`].
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.heard(send(&self.fd, &[IoSlice::new(bytes)], How::default()))
    }

    /// Sends a train.
    ///
    /// # Errors
    ///
    /// As of [`Upstream::send`]: nothing was sent. [`super::Trouble::TooLarge`] and
    /// [`super::Trouble::Other`] may be of the train alone.
    pub fn send_train(&self, train: &Train<'_>) -> io::Result<()> {
        let send = |parts: &[IoSlice<'_>], segment| {
            self.heard(send(&self.fd, parts, How { segment, ..How::default() }))
        };
        train.send(send)
    }

    /// An error has been told by the result itself, or before.
    fn heard<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|_| sys::datagram::forget_errors(&self.fd))
    }
}

impl AsFd for Upstream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
