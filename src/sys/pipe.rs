//! Pipes for splice(2), which moves bytes between sockets without copying them to user space.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags};

use crate::limits::{PIPE_MIN, PIPE_SIZE};

/// A kernel pipe and what is in it.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
}

impl Pipe {
    /// A pipe of [`PIPE_SIZE`] bytes, or at least [`PIPE_MIN`].
    ///
    /// # Errors
    ///
    /// No descriptor left, or the user's share of pipe memory (`pipe-user-pages-soft`) is used
    /// up and the pipe could not be grown.
    pub fn new() -> io::Result<Pipe> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if rustix::pipe::fcntl_setpipe_size(&write, PIPE_SIZE).is_err() {
            rustix::pipe::fcntl_setpipe_size(&write, PIPE_MIN)?;
        }
        Ok(Pipe { read, write, held: 0 })
    }

    /// Bytes in the pipe.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Moves bytes that a socket has received into the pipe; 0 means end of stream.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing was received *or the pipe is full*: a pipe runs out of slots long
    /// before it runs out of bytes when segments are small, so only an empty pipe tells that the
    /// socket is drained.
    pub fn fill(&mut self, from: impl AsFd) -> io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let moved = rustix::pipe::splice(from, None, &self.write, None, PIPE_SIZE, flags)?;
        self.held += moved;
        Ok(moved)
    }

    /// Moves bytes from the pipe to a socket.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket takes nothing at the moment; the socket's error otherwise.
    pub fn drain(&mut self, to: impl AsFd) -> io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let moved = rustix::pipe::splice(&self.read, None, to, None, self.held, flags)?;
        self.held -= moved;
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_pass_through() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let (c, mut d) = UnixStream::pair().unwrap();
        a.write_all(b"hello").unwrap();
        let mut pipe = Pipe::new().unwrap();
        assert_eq!(pipe.fill(&b).unwrap(), 5);
        assert_eq!(pipe.held(), 5);
        assert_eq!(pipe.drain(&c).unwrap(), 5);
        assert_eq!(pipe.held(), 0);
        let mut got = [0; 5];
        d.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello");
        drop(a);
        assert_eq!(pipe.fill(&b).unwrap(), 0);
    }
}
