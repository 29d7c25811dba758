//! Control messages (cmsg(3)) that go with datagrams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use libc::{c_int, c_uint};

/// Room for the largest set of control messages on either way: an address and a segment size.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct Control([u8; CONTROL]);

const CONTROL: usize =
    space::<libc::in_pktinfo>() + space::<libc::in6_pktinfo>() + space::<c_int>();

// `Control` is aligned as the headers within it.
const _: () = assert!(align_of::<Control>() >= align_of::<libc::cmsghdr>());

#[allow(unsafe_code)]
const fn space<T>() -> usize {
    // SAFETY: arithmetic only.
    unsafe { libc::CMSG_SPACE(size_of::<T>() as c_uint) as usize }
}

impl Default for Control {
    fn default() -> Self {
        Control([0; CONTROL])
    }
}

/// What the control messages of a received datagram say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The local address to answer from.
    pub local: Option<IpAddr>,
    /// The size of each datagram but the last, where the kernel has put several together.
    pub segment: Option<usize>,
}

impl Control {
    /// Attaches this to `header`, for the kernel to write to.
    pub fn receive(&mut self, header: &mut libc::msghdr) {
        header.msg_control = self.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL;
    }

    /// Attaches this to `header`, with a source address and a segment size as far as given. An
    /// IPv6 socket takes an IPv4 address as mapped.
    pub fn send(
        &mut self,
        header: &mut libc::msghdr,
        source: Option<IpAddr>,
        segment: Option<u16>,
    ) {
        let mut used = 0;
        match source {
            Some(IpAddr::V4(ip)) => {
                let ipi_spec_dst = libc::in_addr { s_addr: u32::from(ip).to_be() };
                let ipi_addr = libc::in_addr { s_addr: 0 };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst, ipi_addr };
                self.push(&mut used, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            Some(IpAddr::V6(ip)) => {
                let ipi6_addr = libc::in6_addr { s6_addr: ip.octets() };
                let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
                self.push(&mut used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
            None => {}
        }
        if let Some(segment) = segment {
            self.push(&mut used, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
        }
        if used > 0 {
            header.msg_control = self.0.as_mut_ptr().cast();
            header.msg_controllen = used;
        }
    }

    #[allow(unsafe_code)]
    fn push<T: Copy>(&mut self, used: &mut usize, level: c_int, kind: c_int, value: T) {
        let room = &mut self.0[*used..*used + space::<T>()];
        // SAFETY: `room` holds a header, padding and a `T` (CMSG_SPACE), of which CMSG_LEN(0) is
        // the offset of the `T`; it begins at a multiple of CMSG_SPACE's alignment within an
        // aligned array, and the value is written without regard to alignment.
        unsafe {
            let header = libc::cmsghdr {
                cmsg_len: libc::CMSG_LEN(size_of::<T>() as c_uint) as usize,
                cmsg_level: level,
                cmsg_type: kind,
            };
            let at = room.as_mut_ptr();
            ptr::write(at.cast(), header);
            ptr::write_unaligned(at.add(libc::CMSG_LEN(0) as usize).cast(), value);
        }
        *used += space::<T>();
    }
}

/// Reads the control messages that the kernel has attached.
///
/// # Safety
///
/// `header` is as recvmsg(2) or recvmmsg(2) has left it, and its control buffer is alive.
#[allow(unsafe_code)]
pub unsafe fn told(header: &libc::msghdr) -> Told {
    let mut told = Told::default();
    // SAFETY: by the contract above the macros walk over whole messages written by the kernel,
    // each with the value that its level and type stand for (ip(7), ipv6(7), udp(7)).
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = at.as_ref() {
            let data = libc::CMSG_DATA(at);
            match (message.cmsg_level, message.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    // `ipi_spec_dst`, since `ipi_addr` may be a broadcast address.
                    let info: libc::in_pktinfo = ptr::read_unaligned(data.cast());
                    let ip = Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr));
                    told.local = Some(IpAddr::V4(ip));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info: libc::in6_pktinfo = ptr::read_unaligned(data.cast());
                    let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr).to_canonical();
                    told.local = (!ip.is_multicast()).then_some(ip);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size: c_int = ptr::read_unaligned(data.cast());
                    told.segment = usize::try_from(size).ok().filter(|&size| size > 0);
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn what_is_attached_can_be_read() {
        let check = |source: Option<&str>, segment| {
            let source = source.map(|ip| ip.parse::<IpAddr>().unwrap());
            let mut control = Control::default();
            // SAFETY: all zeroes is a header without name, data and control messages.
            let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
            control.send(&mut header, source, segment);
            assert!(header.msg_controllen <= CONTROL);
            // SAFETY: `header` and its control buffer are as the kernel would leave them.
            let told = unsafe { told(&header) };
            let local = source.map(|ip| ip.to_canonical());
            // UDP_SEGMENT is another number than UDP_GRO.
            assert_eq!(told, Told { local, segment: None });
        };
        check(None, None);
        check(None, Some(1200));
        check(Some("192.0.2.1"), None);
        check(Some("192.0.2.1"), Some(1200));
        check(Some("2001:db8::1"), Some(1200));
        check(Some("::ffff:192.0.2.1"), Some(1200));
    }
}
