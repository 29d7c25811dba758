//! Sending: one datagram, or a train of equal ones that the kernel takes apart (`UDP_SEGMENT`).

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::SendFlags;
use socket2::SockAddr;

use super::control::Control;

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

#[allow(unsafe_code)]
fn send_message(socket: impl AsFd, parts: &[IoSlice<'_>], how: How) -> io::Result<()> {
    // SAFETY: all zeroes is a header without name, data and control messages.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    let name = how.to.map(SockAddr::from);
    if let Some(name) = &name {
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = name.len();
    }
    // `IoSlice` is an iovec on Unix, and the kernel only reads what it points to.
    header.msg_iov = parts.as_ptr().cast_mut().cast();
    header.msg_iovlen = parts.len();
    let mut control = Control::default();
    control.send(&mut header, how.from, how.segment);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header points to a name, iovecs and a control buffer that are alive and of the
    // lengths said; sendmsg(2) only reads them.
    let result = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, flags) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
