//! Receiving: many datagrams by one recvmmsg(2), or one by recv(2).

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::net::RecvFlags;
use socket2::{SockAddr, SockAddrStorage};

use super::control::{Control, told};
use crate::limits::DATAGRAM_BATCH;

/// Bytes of a slot: the largest datagram, and the most that the kernel puts together.
const SLOT: usize = 64 * 1024;

/// From one slot to the next. A multiple of the page size would send the beginnings of all slots
/// to the same few lines of the processor's cache.
const STRIDE: usize = SLOT + 5 * 64;

/// Received datagrams and the room for them; one serves all sockets of a worker. Memory is touched
/// only as far as data has come.
#[derive(Debug)]
pub struct Batch {
    bytes: Box<[u8]>,
    names: Box<[SockAddrStorage; DATAGRAM_BATCH]>,
    controls: Box<[Control; DATAGRAM_BATCH]>,
    /// Of the last receive.
    messages: Vec<Message>,
}

/// What one slot holds: a datagram, or several that the kernel has put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender, an IPv4-mapped address as IPv4; unspecified on a connected socket.
    pub from: SocketAddr,
    /// The local address to answer from, where the socket has been asked to tell it
    /// ([`super::set_tell_local`]).
    pub local: Option<IpAddr>,
    /// Bytes, 0 too.
    pub len: usize,
    /// Bytes of each datagram but the last, which may be shorter; `len` for a single one.
    pub segment: usize,
}

const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Default for Batch {
    fn default() -> Self {
        Batch {
            // Zeroed pages come from the kernel when they are first written to.
            bytes: vec![0; DATAGRAM_BATCH * STRIDE].into_boxed_slice(),
            names: Box::new(std::array::from_fn(|_| SockAddrStorage::zeroed())),
            controls: Box::default(),
            messages: Vec::with_capacity(DATAGRAM_BATCH),
        }
    }
}

impl Batch {
    /// What the last receive brought; slot by slot.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The bytes of the message of this index.
    pub fn bytes(&self, index: usize) -> &[u8] {
        &self.bytes[index * STRIDE..][..self.messages[index].len]
    }

    /// Forgets what the last receive brought.
    pub fn clear(&mut self) {
        self.messages.clear();
    }

    /// No slot is left for [`Batch::receive`].
    pub fn is_full(&self) -> bool {
        self.messages.len() == DATAGRAM_BATCH
    }

    /// Takes one datagram off a connected socket without `UDP_GRO`, into the slot behind what is
    /// there. The batch must not be full.
    ///
    /// # Errors
    ///
    /// `WouldBlock`, or an error that ICMP has reported, which is told once.
    pub fn receive(&mut self, socket: impl AsFd) -> io::Result<()> {
        let slot = &mut self.bytes[self.messages.len() * STRIDE..][..SLOT];
        let (len, _) = rustix::net::recv(socket, slot, RecvFlags::DONTWAIT)?;
        self.messages.push(Message { from: NOBODY, local: None, len, segment: len });
        Ok(())
    }

    /// Takes as many datagrams as there are, up to `most` and what there is room for. `named` is
    /// whether their senders matter, as on a socket that is not connected.
    ///
    /// # Errors
    ///
    /// As of [`Batch::receive`].
    #[allow(unsafe_code)]
    pub fn receive_many(&mut self, socket: impl AsFd, named: bool, most: usize) -> io::Result<()> {
        self.messages.clear();
        let socket = socket.as_fd().as_raw_fd();
        let empty = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut slots = [empty; DATAGRAM_BATCH];
        // SAFETY: all zeroes is a header without name, data and control messages.
        let mut headers: [libc::mmsghdr; DATAGRAM_BATCH] = unsafe { std::mem::zeroed() };
        let names = self.names.iter_mut().zip(self.controls.iter_mut());
        let bytes = self.bytes.chunks_exact_mut(STRIDE);
        let rooms = names.zip(bytes).zip(slots.iter_mut());
        let most = most.clamp(1, DATAGRAM_BATCH);
        for (message, (((name, control), bytes), slot)) in headers.iter_mut().zip(rooms).take(most)
        {
            let header = &mut message.msg_hdr;
            *slot = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: SLOT };
            header.msg_iov = slot;
            header.msg_iovlen = 1;
            if named {
                header.msg_name = ptr::from_mut(name).cast();
                header.msg_namelen = name.size_of();
            }
            control.receive(header);
        }
        // SAFETY: each of the `most` headers points to a name, a slot and a control buffer of its
        // own, all alive and of the lengths said, and to nothing else.
        let count = unsafe {
            libc::recvmmsg(
                socket,
                headers.as_mut_ptr(),
                most as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for (message, name) in headers.iter().zip(self.names.iter()).take(count) {
            let header = &message.msg_hdr;
            // SAFETY: the kernel has just filled the header, whose control buffer is `self`'s.
            let told = unsafe { told(header) };
            let from = if named { sender(name, header.msg_namelen) } else { NOBODY };
            let len = (message.msg_len as usize).min(SLOT);
            // A last datagram that is shorter than the others comes without company too.
            let segment = told.segment.map_or(len, |size| size.min(len));
            self.messages.push(Message { from, local: told.local, len, segment });
        }
        Ok(())
    }
}

#[allow(unsafe_code)]
fn sender(name: &SockAddrStorage, len: libc::socklen_t) -> SocketAddr {
    // SAFETY: a copy of plain bytes, initialised as zeroes and then written by the kernel.
    let name = unsafe { ptr::read(name) };
    // SAFETY: the kernel has written an address of this length.
    let name = unsafe { SockAddr::new(name, len) };
    match name.as_socket() {
        Some(SocketAddr::V6(v6)) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(IpAddr::V4(ip), v6.port()),
            // The scope tells which link a link-local address is of.
            None => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
        Some(v4) => v4,
        None => NOBODY,
    }
}

/// How many datagrams to ask for: room that is not used costs time, and so does asking again.
#[derive(Clone, Copy, Debug)]
pub struct Expected(u8);

impl Default for Expected {
    fn default() -> Self {
        Expected(1)
    }
}

impl Expected {
    /// The number.
    pub fn most(self) -> usize {
        usize::from(self.0)
    }

    /// Learns that so many have come.
    pub fn learn(&mut self, came: usize) {
        // Twice what came is enough, unless more may have waited.
        let next = if came >= self.most() { came * 4 } else { came * 2 };
        self.0 = next.clamp(1, DATAGRAM_BATCH) as u8;
    }
}

const _: () = assert!(DATAGRAM_BATCH <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_as_much_is_expected_as_came() {
        let mut expected = Expected::default();
        let mut check = |came: usize, next| {
            expected.learn(came.min(expected.most()));
            assert_eq!(expected.most(), next);
        };
        for next in [4, 16, 32, 32] {
            check(100, next);
        }
        check(7, 14);
        check(1, 2);
        check(1, 2);
        check(0, 1);
        check(0, 1);
    }
}
