//! A connected stream socket registered with tokio, whose readiness this code keeps itself.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

use crate::sys;

/// A stream socket and what is known of it.
///
/// Tokio's readiness is cleared as soon as it has been seen, and kept in these flags instead:
/// only so can a task wait for *news* of a socket (a reset, say) while it leaves received bytes
/// where they are because the other side is slow.
#[derive(Debug)]
pub struct Socket {
    fd: AsyncFd<OwnedFd>,
    /// A read may give something.
    pub readable: bool,
    /// A write may take something.
    pub writable: bool,
    /// The peer has sent FIN or RST, so reads will not come to rest before the end of stream,
    /// and no further readiness to read will be announced.
    hangup: bool,
    /// The peer has sent RST, or both sides have sent FIN.
    broken: bool,
    /// A short read means that nothing is left (true of TCP, not of unix sockets).
    short_is_drained: bool,
    /// The kernel may hold a small segment back while another is unacknowledged (Nagle).
    holds_back: bool,
    /// Something has been written.
    has_written: bool,
}

/// A first write up to this size is one segment on any path (RFC 9293, 3.7.1), and is not held
/// back: most short connections never need `TCP_NODELAY`.
const ONE_SEGMENT: usize = 536;

impl Socket {
    /// Registers a connected, non-blocking socket with the current runtime.
    pub fn new(fd: OwnedFd, tcp: bool) -> io::Result<Self> {
        let fd = sys::event::register(fd)?;
        // Nothing is read before an event says that there is something.
        let (readable, writable) = (false, true);
        Ok(Socket {
            fd,
            readable,
            writable,
            hangup: false,
            broken: false,
            short_is_drained: tcp,
            holds_back: false,
            has_written: false,
        })
    }

    /// As [`Socket::new`], of a TCP socket that has not inherited `TCP_NODELAY`: it is set when it
    /// makes a difference.
    pub fn new_to_backend(fd: OwnedFd, tcp: bool) -> io::Result<Self> {
        Ok(Socket { holds_back: tcp, ..Socket::new(fd, tcp)? })
    }

    /// Whether it is not a unix socket.
    pub fn is_tcp(&self) -> bool {
        self.short_is_drained
    }

    /// Waits until a connect has ended, well or not.
    pub fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut guard = ready!(self.fd.poll_write_ready(cx))?;
        let failed = guard.ready().is_write_closed() || guard.ready().is_error();
        guard.retain_ready();
        let error = if failed { sys::socket::take_error(&self.fd) } else { None };
        Poll::Ready(error.map_or(Ok(()), Err))
    }

    /// Reads into `buffer`; `Ok(None)` means not now, `Ok(Some(0))` the end of stream.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match sys::socket::read(&self.fd, buffer) {
            Ok(n) => {
                let drained = self.short_is_drained && n < buffer.len() && n > 0;
                self.readable = !drained || self.hangup;
                Ok(Some(n))
            }
            Err(error) => self.not_now(error, true),
        }
    }

    /// Writes what fits of `bytes`; `Ok(None)` means not now.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.let_go(bytes.len())?;
        self.wrote(sys::socket::write(&self.fd, bytes), bytes)
    }

    /// As [`Socket::write`], where the end of stream is expected to follow at once: it shares a
    /// packet with the last of `bytes`. If it does not come after all, [`Socket::push`] is needed.
    pub fn write_last(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.has_written = true;
        self.wrote(sys::socket::write_more(&self.fd, bytes), bytes)
    }

    /// Sends what [`Socket::write_last`] has held back.
    pub fn push(&mut self) -> io::Result<()> {
        self.holds_back = false;
        if self.is_tcp() { sys::socket::set_nodelay(&self.fd) } else { Ok(()) }
    }

    /// Whether the peer has sent FIN or RST, so that what can be read is all there will ever be.
    pub fn is_ending(&self) -> bool {
        self.hangup
    }

    fn wrote(&mut self, result: io::Result<usize>, bytes: &[u8]) -> io::Result<Option<usize>> {
        match result {
            Ok(n) => {
                self.writable = n == bytes.len();
                Ok(Some(n))
            }
            Err(error) => self.not_now(error, false),
        }
    }

    /// Moves received bytes into `pipe`; `Ok(None)` or `Ok(Some(0))` means that nothing came, which
    /// only [`Socket::read`] can explain.
    pub fn splice_in(&mut self, pipe: &mut sys::pipe::Pipe) -> io::Result<Option<usize>> {
        match pipe.fill(&self.fd) {
            Ok(n) => Ok(Some(n)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Moves bytes out of `pipe`; `Ok(None)` means not now.
    pub fn splice_out(&mut self, pipe: &mut sys::pipe::Pipe) -> io::Result<Option<usize>> {
        self.let_go(usize::MAX)?;
        match pipe.drain(&self.fd) {
            Ok(n) => Ok(Some(n)),
            Err(error) => self.not_now(error, false),
        }
    }

    /// Before a write of so many bytes: keeps the kernel from holding any of them back.
    fn let_go(&mut self, bytes: usize) -> io::Result<()> {
        if self.holds_back && (self.has_written || bytes > ONE_SEGMENT) {
            self.holds_back = false;
            sys::socket::set_nodelay(&self.fd)?;
        }
        self.has_written = true;
        Ok(())
    }

    fn not_now(&mut self, error: io::Error, reading: bool) -> io::Result<Option<usize>> {
        match error.kind() {
            io::ErrorKind::WouldBlock if reading => self.readable = false,
            io::ErrorKind::WouldBlock => self.writable = false,
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
        Ok(None)
    }

    /// Learns what has changed and arranges to be woken at the next change. True if there is
    /// something new to act on.
    pub fn watch(&mut self, cx: &mut Context<'_>) -> bool {
        let mut news = false;
        if !self.hangup {
            while let Poll::Ready(Ok(mut guard)) = self.fd.poll_read_ready(cx) {
                news |= !self.readable;
                self.readable = true;
                self.hangup = guard.ready().is_read_closed();
                if self.hangup {
                    break;
                }
                guard.clear_ready();
                if news {
                    // The caller acts and comes back, which is when the waker gets registered.
                    return true;
                }
            }
        }
        if self.hangup || !self.writable {
            while let Poll::Ready(Ok(mut guard)) = self.fd.poll_write_ready(cx) {
                news |= !self.writable;
                self.writable = true;
                if guard.ready().is_write_closed() {
                    news |= !self.broken;
                    self.broken = true;
                    break;
                }
                guard.clear_ready();
            }
        }
        news
    }

    /// Waits for bytes or the end of stream.
    pub async fn ready_to_read(&mut self) -> io::Result<()> {
        if !self.readable {
            let mut guard = self.fd.ready(Interest::READABLE).await?;
            self.readable = true;
            self.hangup = guard.ready().is_read_closed();
            guard.clear_ready_matching(Ready::READABLE);
        }
        Ok(())
    }

    /// Whether the peer has sent RST, or could not be reached any more; if not, the task is woken
    /// when that changes. What the peer sends meanwhile stays where it is.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> bool {
        // True as often as there is something new, which may be nothing but bytes.
        while self.watch(cx) {}
        self.silent_error()
    }

    /// Waits until a write may take something.
    pub async fn ready_to_write(&mut self) -> io::Result<()> {
        if !self.writable {
            self.fd.ready(Interest::WRITABLE).await?.clear_ready_matching(Ready::WRITABLE);
            self.writable = true;
        }
        Ok(())
    }

    /// Whether the socket has failed without a read or write telling: asked only after events
    /// that hint at it, since it costs a system call.
    pub fn silent_error(&self) -> bool {
        self.broken && sys::socket::take_error(&self.fd).is_some()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.get_ref().as_fd()
    }
}
