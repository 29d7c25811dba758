//! Datagram sockets: their options, and one system call for many datagrams.

mod control;
pub mod receive;
pub mod send;

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;
use rustix::net::RecvFlags;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

use crate::limits::DATAGRAM_BATCH;

/// Lets datagrams larger than the path's MTU pass in fragments, and keeps an ICMP message about it
/// from failing the next operation. By default Linux sets "don't fragment" and drops what does not
/// fit until it has learned the MTU (`ip_no_pmtu_disc`, ip(7)).
pub fn allow_fragments(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    let socket = socket.as_fd();
    // An IPv6 socket may send IPv4 packets too.
    sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DONT)?;
    if ipv6 {
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DONT)?;
    }
    Ok(())
}

/// Lets a connected socket hear of every ICMP error (`IP_RECVERR`, ip(7)). By default Linux tells it
/// only of those that it takes for final, such as "port unreachable", but not that a host or a
/// network cannot be reached. What the kernel keeps of each is to be taken by [`forget_errors`].
pub fn tell_errors(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    match ipv6 {
        true => set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
        false => set_option(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1),
    }
}

/// Takes away what is kept of errors. Until then the socket is reported as broken.
pub fn forget_errors(socket: impl AsFd) {
    let socket = socket.as_fd();
    let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
    // Under a flood of errors the rest is for the next time.
    for _ in 0..DATAGRAM_BATCH {
        if rustix::net::recv(socket, &mut [0; 1], flags).is_err() {
            return;
        }
    }
}

/// Lets the kernel deliver datagrams of equal size as one (`UDP_GRO`, udp(7)). They must then be
/// received with [`receive::Batch::receive_many`], which tells them apart.
///
/// # Errors
///
/// The kernel is older than Linux 5.0.
pub fn set_gro(socket: impl AsFd, on: bool) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, libc::UDP_GRO, c_int::from(on))
}

/// Lets each received datagram tell which address it was sent to.
pub fn set_tell_local(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    match ipv6 {
        true => set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
        false => set_option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
    }
}

/// Asks for room for so many received bytes, beyond `net.core.rmem_max` where the process may
/// (`CAP_NET_ADMIN`). Returns what the kernel has granted.
pub fn set_receive_buffer(socket: impl AsFd, bytes: usize) -> io::Result<usize> {
    let socket = socket.as_fd();
    // The kernel takes an int, which it doubles.
    let bytes = bytes.min(i32::MAX as usize / 2);
    if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    }
    receive_buffer(socket)
}

/// Bytes of datagrams that the kernel makes room for. It counts its own overhead too, and doubles
/// what it is asked for on account of that; this is half of what it reports.
pub fn receive_buffer(socket: impl AsFd) -> io::Result<usize> {
    Ok(sockopt::socket_recv_buffer_size(socket)? / 2)
}

/// Datagrams that the kernel has dropped in front of this socket since it was opened: no room in
/// its receive buffer, mostly. Wraps around.
#[allow(unsafe_code)]
pub fn drops(socket: impl AsFd) -> io::Result<u32> {
    // The number of drops is the last of the values that there are.
    let mut values = [0_u32; libc::SK_MEMINFO_DROPS as usize + 1];
    let mut len = size_of_val(&values) as libc::socklen_t;
    // SAFETY: SO_MEMINFO (sock_diag) writes up to `len` bytes of u32s through the pointer, which
    // points to that many live bytes, and the number written to `len`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(values[libc::SK_MEMINFO_DROPS as usize])
}

#[allow(unsafe_code)]
fn set_option(socket: impl AsFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: every option this is called with takes an int, which the pointer points to; the
    // kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// The last column of the socket's line in `/proc/net/udp`.
    fn drops_by_proc(socket: &UdpSocket) -> u32 {
        let port = socket.local_addr().unwrap().port();
        let table = std::fs::read_to_string("/proc/net/udp").unwrap();
        let local = format!("0100007F:{port:04X}");
        let line = table.lines().find(|line| line.contains(&local)).unwrap();
        line.split_whitespace().next_back().unwrap().parse().unwrap()
    }

    #[test]
    fn drops_are_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let granted = set_receive_buffer(&receiver, 8192).unwrap();
        assert_eq!(drops(&receiver).unwrap(), 0);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sent = granted / 1000 * 2;
        for _ in 0..sent {
            sender.send_to(&[7; 1000], receiver.local_addr().unwrap()).unwrap();
        }
        receiver.set_nonblocking(true).unwrap();
        let received = (0..).take_while(|_| receiver.recv(&mut [0; 1000]).is_ok()).count();
        let dropped = drops(&receiver).unwrap();
        assert!(dropped > 0);
        assert_eq!(received + dropped as usize, sent);
        assert_eq!(dropped, drops_by_proc(&receiver));
    }

    #[test]
    fn the_granted_buffer_is_what_was_asked_for_or_the_most() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(set_receive_buffer(&socket, 50_000).unwrap(), 50_000);
        let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
        let most: usize = most.trim().parse().unwrap();
        let granted = set_receive_buffer(&socket, most + 10_000).unwrap();
        assert!([most, most + 10_000].contains(&granted), "{granted}");
        set_receive_buffer(&socket, usize::MAX).unwrap();
    }

    #[test]
    fn fragments_are_allowed_in_both_families() {
        let v4 = UdpSocket::bind("127.0.0.1:0").unwrap();
        allow_fragments(&v4, false).unwrap();
        assert_eq!(sockopt::ip_mtu_discover(&v4).unwrap(), Ipv4PathMtuDiscovery::DONT);
        let v6 = UdpSocket::bind("[::1]:0").unwrap();
        allow_fragments(&v6, true).unwrap();
        assert_eq!(sockopt::ip_mtu_discover(&v6).unwrap(), Ipv4PathMtuDiscovery::DONT);
        assert_eq!(sockopt::ipv6_mtu_discover(&v6).unwrap(), Ipv6PathMtuDiscovery::DONT);
    }
}
