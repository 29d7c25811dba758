//! What an error of a datagram socket means for the flow it came up on.

use std::io;

/// An error of sending or receiving. None of them is of the socket itself: it works on.
///
/// On a connected socket an error that ICMP has reported is told once, by the next operation,
/// which is then not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nobody listens there: the machine of the backend says so.
    Refused,
    /// No way leads there, or something on the way forbids it.
    Unreachable,
    /// Nothing to read; or on sending, no room in this machine's buffers: the datagram is lost,
    /// and nobody is to blame.
    TryAgain,
    /// The datagram is larger than IP can carry.
    TooLarge,
    /// Anything else, such as a local firewall's refusal (EPERM).
    Other,
}

impl Trouble {
    /// What an error of [`super::Listening`] or [`super::Upstream`] means.
    pub fn of(error: &io::Error) -> Trouble {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => Trouble::Refused,
            // What ICMP and ICMPv6 messages become (`icmp_err_convert`, `icmpv6_err_convert`), and
            // what a look at the routes gives.
            Some(
                libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENETDOWN
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::EPROTO
                | libc::EACCES
                | libc::ENODEV,
            ) => Trouble::Unreachable,
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => Trouble::TryAgain,
            Some(libc::EMSGSIZE) => Trouble::TooLarge,
            _ => Trouble::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_means_something() {
        let check = |errno, expected| {
            assert_eq!(Trouble::of(&io::Error::from_raw_os_error(errno)), expected, "{errno}");
        };
        check(libc::ECONNREFUSED, Trouble::Refused);
        check(libc::EHOSTUNREACH, Trouble::Unreachable);
        check(libc::ENETUNREACH, Trouble::Unreachable);
        check(libc::EWOULDBLOCK, Trouble::TryAgain);
        check(libc::ENOBUFS, Trouble::TryAgain);
        check(libc::EMSGSIZE, Trouble::TooLarge);
        check(libc::EPERM, Trouble::Other);
        check(libc::EBADF, Trouble::Other);
        assert_eq!(Trouble::of(&io::Error::other("no errno")), Trouble::Other);
    }
}
