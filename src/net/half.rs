//! One direction of a relay: reads from one socket, writes to the other, owns nothing while
//! there is nothing in between.
//!
//! Small and interactive traffic is copied through the worker's buffer. After a few full reads
//! the direction is bulk, and splices through a pooled pipe until reads become small again.
//! What the destination does not take at once is held back, in the pipe or in a spill of at most
//! [`COPY_BUFFER`] bytes, and the source is not read before that is gone.

use std::io;

use super::Socket;
use super::scratch::{PipeLoan, Scratch};
use crate::limits::COPY_BUFFER;

/// Full reads in a row that make a direction bulk.
const BULK_AFTER: u8 = 3;

/// A spliced round below this many bytes counts against bulk.
const SMALL_ROUND: usize = 16 * 1024;

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Half {
    held: Held,
    /// Everything up to the end of stream has been read from the source.
    ended: bool,
    /// FIN has been passed on, or nothing is passed on any more.
    finished: bool,
    /// Nothing is passed on any more, because the destination is gone.
    abandoned: bool,
    /// The last of what was written waits for the end of stream, to share a packet with it.
    withheld: bool,
    /// Full rounds in a row; from [`BULK_AFTER`] on the direction splices.
    full_rounds: u8,
}

/// Bytes between the sockets.
#[derive(Debug, Default)]
enum Held {
    #[default]
    Nothing,
    Spill {
        bytes: Box<[u8]>,
        written: usize,
    },
    Pipe(PipeLoan),
}

/// Whose socket failed.
#[derive(Debug)]
pub(super) enum Fault {
    Source,
    Destination,
}

/// What one call of [`Half::pump`] did.
#[derive(Debug, Default)]
pub(super) struct Pumped {
    /// Bytes passed on.
    pub bytes: u64,
    /// The end of stream was read just now.
    pub ended: bool,
    /// Whose socket failed, if one did.
    pub fault: Option<Fault>,
}

impl Half {
    /// Starts with bytes that were read from the source before.
    pub fn starting_with(first: Vec<u8>) -> Self {
        let held = if first.is_empty() {
            Held::Nothing
        } else {
            Held::Spill { bytes: first.into_boxed_slice(), written: 0 }
        };
        Half { held, ..Half::default() }
    }

    /// Whether the end of stream has been read.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Whether FIN has been passed on, or nothing is passed on any more.
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// Whether everything that was read has been written.
    pub fn empty(&self) -> bool {
        matches!(self.held, Held::Nothing)
    }

    /// Throws away what is held and passes nothing on any more: the destination is gone.
    pub fn abandon(&mut self) {
        self.held = Held::Nothing;
        self.finished = true;
        self.abandoned = true;
    }

    /// Whether the destination is gone.
    pub fn abandoned(&self) -> bool {
        self.abandoned
    }

    /// The source is gone, and everything it sent has been read.
    pub fn source_gone(&mut self) {
        self.ended = true;
    }

    /// Marks FIN as passed on.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Moves up to about `budget` bytes from `source` to `destination`.
    pub fn pump(
        &mut self,
        source: &mut Socket,
        destination: &mut Socket,
        scratch: &Scratch,
        budget: usize,
    ) -> Pumped {
        let mut pumped = Pumped::default();
        if self.finished {
            return pumped;
        }
        loop {
            if !self.empty() {
                if !destination.writable {
                    break;
                }
                if self.write_held(destination, &mut pumped).is_err() {
                    pumped.fault = Some(Fault::Destination);
                    break;
                }
                continue;
            }
            let spent = usize::try_from(pumped.bytes).unwrap_or(usize::MAX) >= budget;
            if self.ended || !source.readable || spent {
                break;
            }
            if let Err(fault) = self.round(source, destination, scratch, &mut pumped) {
                pumped.fault = Some(fault);
                break;
            }
        }
        pumped
    }

    /// Reads once with nothing held, and writes what can be written.
    fn round(
        &mut self,
        source: &mut Socket,
        destination: &mut Socket,
        scratch: &Scratch,
        pumped: &mut Pumped,
    ) -> Result<(), Fault> {
        let bulk = self.full_rounds >= BULK_AFTER;
        // Nothing, or the end, by the word of splice may be urgent data (tcp(7)) with bytes behind
        // it, which recv steps over: recv has the last word.
        if bulk
            && let Some(loan) = scratch.pipe()
            && self.splice(loan, source)?
        {
            return Ok(());
        }
        scratch.with_buffer(|buffer| self.copy(buffer, source, destination, pumped))
    }

    fn copy(
        &mut self,
        buffer: &mut [u8],
        source: &mut Socket,
        destination: &mut Socket,
        pumped: &mut Pumped,
    ) -> Result<(), Fault> {
        let read = match source.read(buffer) {
            Ok(Some(0)) => {
                self.end(pumped);
                return Ok(());
            }
            Ok(Some(read)) => read,
            // The end has not come, or it was a reset.
            other => {
                if std::mem::take(&mut self.withheld) {
                    destination.push().map_err(|_| Fault::Destination)?;
                }
                return other.map(|_not_now| ()).map_err(|_| Fault::Source);
            }
        };
        self.full_rounds = match read == buffer.len() {
            true if self.full_rounds < BULK_AFTER => self.full_rounds + 1,
            true => self.full_rounds,
            false => 0,
        };
        let bytes = &buffer[..read];
        // With nothing left to read but the end, the end comes next.
        let last = source.is_ending() && read < buffer.len();
        let written = match destination.writable {
            true if last => destination.write_last(bytes),
            true => destination.write(bytes),
            false => Ok(None),
        };
        self.withheld = last;
        // On a fault nobody is left to take what was read: the destination is gone.
        let written = written.map_err(|_| Fault::Destination)?.unwrap_or(0);
        pumped.bytes += written as u64;
        if written < read {
            self.held = Held::Spill { bytes: bytes[written..].into(), written: 0 };
        }
        Ok(())
    }

    /// Fills a pipe; false if nothing came.
    fn splice(&mut self, mut loan: PipeLoan, source: &mut Socket) -> Result<bool, Fault> {
        let moved = source.splice_in(loan.pipe()).map_err(|_| Fault::Source)?.unwrap_or(0);
        if moved == 0 {
            return Ok(false);
        }
        if moved < SMALL_ROUND {
            self.full_rounds -= 1;
        } else if moved >= COPY_BUFFER {
            self.full_rounds = (self.full_rounds + 1).min(BULK_AFTER * 2);
        }
        self.held = Held::Pipe(loan);
        Ok(true)
    }

    fn end(&mut self, pumped: &mut Pumped) {
        self.ended = true;
        pumped.ended = true;
    }

    /// Writes what is held until it is gone or the destination takes no more.
    fn write_held(&mut self, destination: &mut Socket, pumped: &mut Pumped) -> io::Result<()> {
        let (moved, left) = match &mut self.held {
            Held::Nothing => (None, 0),
            Held::Spill { bytes, written } => {
                let moved = destination.write(&bytes[*written..])?;
                *written += moved.unwrap_or(0);
                (moved, bytes.len() - *written)
            }
            Held::Pipe(loan) => {
                let moved = destination.splice_out(loan.pipe())?;
                (moved, loan.held())
            }
        };
        pumped.bytes += moved.unwrap_or(0) as u64;
        if left == 0 {
            self.held = Held::Nothing;
        }
        Ok(())
    }
}
