//! Stream sockets as plain descriptors: reading, writing, options, and how to end them.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, sockopt};

/// TCP options of both sides of a session; `None` leaves the kernel's default (off).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TcpOptions {
    /// Idle time before the first keepalive probe; probes follow at a third of it.
    pub keepalive: Option<Duration>,
    /// How long sent bytes may stay unacknowledged.
    pub user_timeout: Option<Duration>,
}

/// Unanswered keepalive probes that end a connection.
const KEEPALIVE_PROBES: u32 = 3;

/// Sets the options, and that nothing small is held back. On a listening socket they are inherited
/// by every connection it accepts, which saves setting them one by one.
pub fn set_tcp_options(fd: impl AsFd, options: &TcpOptions) -> io::Result<()> {
    set_nodelay(&fd)?;
    set_liveness(fd, options)
}

/// Holds nothing back that is small.
pub fn set_nodelay(fd: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(fd, true)?)
}

/// Sets the options alone.
pub fn set_liveness(fd: impl AsFd, options: &TcpOptions) -> io::Result<()> {
    let fd = fd.as_fd();
    sockopt::set_socket_keepalive(fd, options.keepalive.is_some())?;
    if let Some(idle) = options.keepalive {
        let idle = idle.clamp(Duration::from_secs(1), KEEPALIVE_MAX);
        let between = (idle / KEEPALIVE_PROBES).max(Duration::from_secs(1));
        sockopt::set_tcp_keepidle(fd, idle)?;
        sockopt::set_tcp_keepintvl(fd, between)?;
        if options.user_timeout.is_none() {
            // With TCP_USER_TIMEOUT it is the time that counts, not the number (tcp(7)).
            sockopt::set_tcp_keepcnt(fd, KEEPALIVE_PROBES)?;
        }
    }
    let millis = options.user_timeout.map_or(0, |t| u32::try_from(t.as_millis()).unwrap_or(0));
    sockopt::set_tcp_user_timeout(fd, millis)?;
    Ok(())
}

/// The kernel takes keepalive times up to 32,767 seconds.
const KEEPALIVE_MAX: Duration = Duration::from_secs(32_767);

/// Takes one connection off a listening socket: non-blocking, close-on-exec. The peer's address
/// is `None` on a unix socket.
pub fn accept(listening: impl AsFd) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (fd, peer) = rustix::net::acceptfrom_with(listening, flags)?;
    let peer = peer.and_then(|address| SocketAddr::try_from(address).ok());
    Ok((fd, peer.map(canonical)))
}

/// The local address; `None` on a unix socket.
pub fn local_address(fd: impl AsFd) -> io::Result<Option<SocketAddr>> {
    Ok(SocketAddr::try_from(rustix::net::getsockname(fd)?).ok().map(canonical))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Reads into `buffer`; 0 means end of stream.
pub fn read(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(fd, buffer, RecvFlags::DONTWAIT)?.0)
}

/// Reads and throws away what has been received; the number of bytes, 0 at the end of stream.
pub fn discard(fd: impl AsFd) -> io::Result<usize> {
    let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
    let (_, received) = rustix::net::recv(fd, &mut buffer[..], RecvFlags::DONTWAIT)?;
    Ok(received)
}

/// Writes what fits of `bytes`, never raising SIGPIPE.
pub fn write(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
}

/// As [`write()`], where more follows at once, or the end of stream: the last of it is held back so
/// that they share a packet.
pub fn write_more(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | SendFlags::MORE;
    Ok(rustix::net::send(fd, bytes, flags)?)
}

/// Sends FIN.
pub fn shut_write(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, Shutdown::Write)?)
}

/// Makes the coming close send RST and drop what is still queued.
pub fn reset_on_close(fd: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(fd, Some(Duration::ZERO))?)
}

/// The pending error of a socket, which this clears.
pub fn take_error(fd: impl AsFd) -> Option<io::Error> {
    match sockopt::socket_error(fd) {
        Ok(Ok(())) => None,
        Ok(Err(errno)) | Err(errno) => Some(errno.into()),
    }
}

/// Bytes that can be read at once. Unlike a look at them, this leaves an error for whoever reads.
pub fn waiting(fd: impl AsFd) -> u64 {
    // A socket that cannot be asked has nothing to give.
    rustix::io::ioctl_fionread(fd).unwrap_or(0)
}

/// Whether the peer has sent FIN or RST, asked of the kernel: an event of it may not have been
/// seen yet.
pub fn is_hung_up(fd: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::RDHUP)];
    // Who cannot be asked about is of no use either.
    poll(&mut fds, Some(&Timespec::default())) != Ok(0)
}

/// Bytes written to a TCP socket that its peer has not acknowledged yet (SIOCOUTQ, tcp(7)).
#[allow(unsafe_code)]
pub fn unacknowledged(fd: impl AsFd) -> io::Result<usize> {
    let mut queued: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (the same number as TIOCOUTQ) writes one int through the pointer, which
    // points to a live int; the descriptor is borrowed for the length of the call.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(queued).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn unacknowledged_counts_what_the_peer_has_not_got() {
        let (a, mut b) = pair();
        assert_eq!(unacknowledged(&a).unwrap(), 0);
        a.set_nonblocking(true).unwrap();
        let chunk = vec![7; 1 << 20];
        let mut sent = 0;
        while let Ok(n) = write(&a, &chunk) {
            sent += n;
        }
        assert!(unacknowledged(&a).unwrap() > 0);
        let mut got = vec![0; sent];
        b.read_exact(&mut got).unwrap();
        while unacknowledged(&a).unwrap() > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_hang_up_is_seen_behind_what_was_sent() {
        for reset in [false, true] {
            let (a, b) = pair();
            assert!(!is_hung_up(&a));
            write(&b, b"220 hello").unwrap();
            assert!(!is_hung_up(&a), "bytes are no end");
            if reset {
                reset_on_close(&b).unwrap();
            }
            drop(b);
            while !is_hung_up(&a) {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn bytes_wait_even_behind_an_end() {
        for (reset, sent) in [(false, 0), (false, 5), (true, 0), (true, 5)] {
            let (a, mut b) = pair();
            if sent > 0 {
                write(&a, b"hello").unwrap();
            }
            if reset {
                reset_on_close(&a).unwrap();
            }
            drop(a);
            while !is_hung_up(&b) {
                std::thread::yield_now();
            }
            assert_eq!(waiting(&b), sent, "reset: {reset}");
            let end = b.read(&mut [0; 5]).and_then(|_| b.read(&mut [0; 5]));
            assert_eq!(end.is_err(), reset, "the error is still there");
        }
    }

    #[test]
    fn reset_on_close_resets() {
        let (a, mut b) = pair();
        reset_on_close(&a).unwrap();
        drop(a);
        let error = b.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn options_are_inherited_by_accepted_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = TcpOptions {
            keepalive: Some(Duration::from_secs(30)),
            user_timeout: Some(Duration::from_secs(120)),
        };
        set_tcp_options(&listener, &options).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (fd, peer) = accept(&listener).unwrap();
        assert!(peer.is_some());
        assert!(sockopt::tcp_nodelay(&fd).unwrap());
        assert!(sockopt::socket_keepalive(&fd).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&fd).unwrap(), Duration::from_secs(30));
        assert_eq!(sockopt::tcp_keepintvl(&fd).unwrap(), Duration::from_secs(10));
        assert_eq!(sockopt::tcp_user_timeout(&fd).unwrap(), 120_000);
    }

    #[test]
    fn discard_tells_the_end() {
        let (a, b) = pair();
        write(&a, b"abc").unwrap();
        assert_eq!(discard(&b).unwrap(), 3);
        drop(a);
        while discard(&b).is_err() {
            std::thread::yield_now();
        }
        assert_eq!(discard(&b).unwrap(), 0);
    }
}
