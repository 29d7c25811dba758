//! One attempt to connect to a backend.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Type};

use super::Socket;
use crate::address::Address;
use crate::state::{ConnectError, ConnectFailure};

/// A connection that is being established. Dropped, it is given up.
#[derive(Debug)]
pub struct Connecting {
    socket: Socket,
    /// Known to be established.
    established: bool,
}

impl Connecting {
    /// Sends the first packet.
    ///
    /// # Errors
    ///
    /// It failed at once: no route, or our own fault.
    pub fn start(address: &Address) -> Result<Connecting, ConnectError> {
        let (fd, tcp) = match address {
            Address::Ip(ip) => (start_tcp(*ip), true),
            Address::Unix(path) => (start_unix(path), false),
        };
        let socket = fd.and_then(|fd| Socket::new_to_backend(fd, tcp)).map_err(|e| classify(&e))?;
        Ok(Connecting { socket, established: false })
    }

    /// One that has been established before.
    pub fn established(socket: Socket) -> Connecting {
        Connecting { socket, established: true }
    }

    /// Waits for the answer.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        if self.established {
            return Poll::Ready(Ok(()));
        }
        self.socket.poll_connected(cx).map_err(|error| classify(&error))
    }

    /// The socket, once [`Connecting::poll`] has said that it is established.
    pub fn into_socket(self) -> Socket {
        self.socket
    }
}

/// What an attempt ends with that has not been answered in time.
pub const TIMED_OUT: ConnectError =
    ConnectError { reason: ConnectFailure::Timeout, ours: false, busy: false };

/// Connects within `timeout`.
///
/// # Errors
///
/// Why it failed, and whether it was our fault.
pub async fn connect(address: &Address, timeout: Duration) -> Result<Socket, ConnectError> {
    let mut connecting = Connecting::start(address)?;
    let answer = poll_fn(|cx| connecting.poll(cx));
    tokio::time::timeout(timeout, answer).await.unwrap_or(Err(TIMED_OUT))?;
    Ok(connecting.into_socket())
}

fn start_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let domain = Domain::for_address(address);
    let socket = socket2::Socket::new(domain, kind, Some(Protocol::TCP))?;
    start(socket, &address.into())
}

fn start_unix(path: &Path) -> io::Result<OwnedFd> {
    let kind = Type::STREAM.nonblocking().cloexec();
    start(socket2::Socket::new(Domain::UNIX, kind, None)?, &SockAddr::unix(path)?)
}

fn start(socket: socket2::Socket, address: &SockAddr) -> io::Result<OwnedFd> {
    match socket.connect(address) {
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
        other => other?,
    }
    Ok(socket.into())
}

/// Whose fault an error of a socket on its way to a backend is.
pub fn classify(error: &io::Error) -> ConnectError {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let (reason, ours) = match errno {
        // A unix path that is not there is as closed as a port nobody listens on.
        Some(Errno::CONNREFUSED | Errno::CONNRESET | Errno::NOENT) => {
            (ConnectFailure::Refused, false)
        }
        Some(Errno::TIMEDOUT) => (ConnectFailure::Timeout, false),
        Some(Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN) => {
            (ConnectFailure::Unreachable, false)
        }
        Some(Errno::ADDRNOTAVAIL) => (ConnectFailure::LocalPorts, true),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::NOSPC) => {
            (ConnectFailure::Other, true)
        }
        _ => (ConnectFailure::Other, false),
    };
    ConnectError { reason, ours, busy: errno == Some(Errno::AGAIN) }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn attempt(address: &str) -> Result<Socket, ConnectFailure> {
        let address = address.parse().unwrap();
        connect(&address, Duration::from_secs(5)).await.map_err(|e| e.reason)
    }

    #[tokio::test]
    async fn failures_are_told_apart() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert!(attempt(&address).await.is_ok());
        drop(listener);
        assert_eq!(attempt(&address).await.unwrap_err(), ConnectFailure::Refused);
        let missing = attempt("unix:/nonexistent/pointsman.sock").await.unwrap_err();
        assert_eq!(missing, ConnectFailure::Refused);
    }

    #[test]
    fn reason_and_fault_of_an_error() {
        for (errno, reason, ours) in [
            (Errno::CONNREFUSED, ConnectFailure::Refused, false),
            (Errno::TIMEDOUT, ConnectFailure::Timeout, false),
            (Errno::HOSTUNREACH, ConnectFailure::Unreachable, false),
            (Errno::NETUNREACH, ConnectFailure::Unreachable, false),
            (Errno::ADDRNOTAVAIL, ConnectFailure::LocalPorts, true),
            (Errno::MFILE, ConnectFailure::Other, true),
            (Errno::ACCESS, ConnectFailure::Other, false),
            (Errno::AGAIN, ConnectFailure::Other, false),
        ] {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            let busy = errno == Errno::AGAIN;
            assert_eq!(classify(&error), ConnectError { reason, ours, busy }, "{error}");
        }
    }

    #[tokio::test]
    async fn a_full_backlog_times_out() {
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        socket.listen(0).unwrap();
        let address = Address::Ip(socket.local_addr().unwrap().as_socket().unwrap());
        let mut held = Vec::new();
        let failure = loop {
            match connect(&address, Duration::from_millis(100)).await {
                Ok(socket) => held.push(socket),
                Err(failure) => break failure,
            }
            assert!(held.len() < 16, "the backlog never filled");
        };
        assert_eq!(failure, TIMED_OUT);
    }
}
