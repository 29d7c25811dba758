//! Sending: one datagram, a train of equal ones that the kernel takes apart (`UDP_SEGMENT`), or
//! different ones by one sendmmsg(2).

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::slice;

use libc::{c_int, c_uint};
use rustix::net::SendFlags;
use socket2::SockAddr;

use super::control::Control;
use crate::limits::DATAGRAM_BATCH;

/// How a datagram is sent, where the socket does not say it.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// The receiver, on a socket that is not connected; of the socket's family.
    pub to: Option<SocketAddr>,
    /// The local address to send from; of the socket's family.
    pub from: Option<IpAddr>,
    /// Bytes of each datagram but the last, which may be shorter: the kernel makes several of one.
    pub segment: Option<u16>,
}

/// Sends all parts, as one datagram or as those that [`How::segment`] makes of it.
///
/// # Errors
///
/// `WouldBlock`; an error that ICMP has reported, which is told once; of segments, EINVAL, EIO or
/// EMSGSIZE if they do not fit the path or the device cannot do it, and nothing has been sent.
pub fn send(socket: impl AsFd, parts: &[IoSlice<'_>], how: How) -> io::Result<()> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match (parts, how) {
        // A tenth of the whole way cheaper than sendmsg(2), whose header the kernel has to fetch.
        ([datagram], How { to: None, from: None, segment: None }) => {
            rustix::net::send(socket, datagram, flags)?;
            Ok(())
        }
        ([datagram], How { to: Some(to), from: None, segment: None }) => {
            rustix::net::sendto(socket, datagram, flags, &to)?;
            Ok(())
        }
        _ => send_message(socket, parts, how),
    }
}

/// Sends datagrams in this order, by as few system calls as it takes. Returns what came of each;
/// that one could not be sent does not keep back those after it.
pub fn send_many(socket: impl AsFd, datagrams: &[(IoSlice<'_>, How)]) -> Vec<io::Result<()>> {
    let mut outcomes = Vec::with_capacity(datagrams.len());
    while let Some((datagram, how)) = datagrams.get(outcomes.len()) {
        let sent = match &datagrams[outcomes.len()..] {
            [_] => send(&socket, &[*datagram], *how).map(|()| 1),
            several => send_messages(&socket, several),
        };
        match sent {
            Ok(sent) => outcomes.extend((0..sent).map(|_| Ok(()))),
            Err(error) => outcomes.push(Err(error)),
        }
    }
    outcomes
}

const FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

#[allow(unsafe_code)]
fn send_message(socket: impl AsFd, parts: &[IoSlice<'_>], how: How) -> io::Result<()> {
    let mut room = Room::default();
    let header = room.header(parts, how);
    // SAFETY: the header points to a name, iovecs and a control buffer that are alive and of the
    // lengths said; sendmsg(2) only reads them.
    let result = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, FLAGS) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends the first of these, 1 at least and up to [`DATAGRAM_BATCH`]: returns how many.
#[allow(unsafe_code)]
fn send_messages(socket: impl AsFd, datagrams: &[(IoSlice<'_>, How)]) -> io::Result<usize> {
    let mut rooms: [Room; DATAGRAM_BATCH] = std::array::from_fn(|_| Room::default());
    // SAFETY: all zeroes is a header without name, data and control messages.
    let mut headers: [libc::mmsghdr; DATAGRAM_BATCH] = unsafe { std::mem::zeroed() };
    let messages = headers.iter_mut().zip(&mut rooms).zip(datagrams);
    for ((header, room), (datagram, how)) in messages {
        header.msg_hdr = room.header(slice::from_ref(datagram), *how);
    }
    let count = datagrams.len().min(DATAGRAM_BATCH);
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: each of the `count` headers points to a name, an iovec and a control buffer that are
    // alive and of the lengths said; sendmmsg(2) only reads them, and writes to the headers.
    let sent = unsafe { libc::sendmmsg(socket, headers.as_mut_ptr(), count as c_uint, FLAGS) };
    // It tells an error only of the first: of another, when it is asked to begin with that.
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// What a header points to, beside the data.
#[derive(Default)]
struct Room {
    name: Option<SockAddr>,
    control: Option<Control>,
}

impl Room {
    /// A header, to be used only as long as this and `parts` stay where they are.
    #[allow(unsafe_code)]
    fn header(&mut self, parts: &[IoSlice<'_>], how: How) -> libc::msghdr {
        // SAFETY: all zeroes is a header without name, data and control messages.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        if let Some(to) = how.to {
            let name = self.name.insert(to.into());
            header.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_namelen = name.len();
        }
        // `IoSlice` is an iovec on Unix, and the kernel only reads what it points to.
        header.msg_iov = parts.as_ptr().cast_mut().cast();
        header.msg_iovlen = parts.len();
        if how.from.is_some() || how.segment.is_some() {
            let control = self.control.insert(Control::default());
            control.send(&mut header, how.from, how.segment);
        }
        header
    }
}
