//! Where access log lines go: a file, stdout or stderr, written without ever ending the process.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::config::LogTarget;

/// How long a full pipe may take to have room again before lines are given up.
const ROOM: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// An open target.
#[derive(Debug)]
pub(super) struct Sink {
    file: File,
    /// A write stopped inside a line; the next one must not continue it.
    torn: bool,
}

/// A write that did not get everything out.
#[derive(Debug)]
pub(super) struct Lost {
    /// Lines that were not written, or not to their end.
    pub lines: u64,
    pub error: io::Error,
}

impl Sink {
    /// Opens a file to append to, or takes a duplicate of the stream's descriptor: what std wraps
    /// around stdout would keep the rest of a failed write and repeat it.
    pub fn open(target: &LogTarget) -> io::Result<Sink> {
        let file = match target {
            LogTarget::Stdout => io::stdout().as_fd().try_clone_to_owned()?.into(),
            LogTarget::Stderr => io::stderr().as_fd().try_clone_to_owned()?.into(),
            LogTarget::File(path) => OpenOptions::new()
                .append(true)
                .create(true)
                // Of a FIFO that nobody reads we want an error, not to wait for a reader.
                .custom_flags(libc::O_NONBLOCK)
                .open(path)?,
        };
        Ok(Sink { file, torn: false })
    }

    /// Whether it is a file that somebody has removed.
    pub fn is_nameless(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.is_file() && file.nlink() == 0)
    }

    /// Writes whole lines.
    pub fn write(&mut self, lines: &[u8]) -> Result<(), Lost> {
        if self.torn {
            self.write_all(b"\n").map_err(|(_, error)| Lost { lines: count(lines), error })?;
            self.torn = false;
        }
        self.write_all(lines).map_err(|(written, error)| {
            self.torn = written > 0 && lines.get(written - 1) != Some(&b'\n');
            Lost { lines: count(lines.get(written..).unwrap_or_default()), error }
        })
    }

    /// On an error also says how many bytes got out.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
                Ok(n) => written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(&self.file, PollFlags::OUT)];
                    if !matches!(poll(&mut fds, Some(&ROOM)), Ok(1..)) {
                        return Err((written, error));
                    }
                }
                Err(error) => return Err((written, error)),
            }
        }
        Ok(())
    }
}

/// Each line ends in the only newline it has.
fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn pipe() -> (File, Sink) {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        (reader.into(), Sink { file: writer.into(), torn: false })
    }

    #[test]
    fn closed_pipe_loses_every_line() {
        let (reader, mut sink) = pipe();
        drop(reader);
        let lost = sink.write(b"one\ntwo\n").unwrap_err();
        assert_eq!((lost.lines, lost.error.kind()), (2, io::ErrorKind::BrokenPipe));
    }

    #[test]
    fn full_disk_is_an_error() {
        let mut sink = Sink::open(&LogTarget::File("/dev/full".into())).unwrap();
        let lost = sink.write(b"one\n").unwrap_err();
        assert_eq!((lost.lines, lost.error.kind()), (1, io::ErrorKind::StorageFull));
    }

    #[test]
    fn torn_line_is_ended_before_the_next() {
        let (mut reader, mut sink) = pipe();
        let long = [vec![b'x'; 4 << 20], b"\n".to_vec()].concat();
        assert_eq!(sink.write(&long).unwrap_err().lines, 1);
        assert!(sink.torn);
        let mut read = Vec::new();
        let error = reader.read_to_end(&mut read).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        sink.write(b"next\n").unwrap();
        drop(sink);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "\nnext\n");
    }
}
