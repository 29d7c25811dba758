//! The QUIC hello of a flow, while it is not complete: the datagrams it came in are kept, and go to
//! the backend in the order in which they came.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::limits::{PREREAD_DATAGRAMS, hello_cost};
use crate::state::Process;
use crate::wire::quic::initial::Answer;
use crate::wire::quic::{ConnectionId, InitialReader};

/// An unfinished hello. What it holds counts in `preread.total_bytes`.
pub(super) struct Hello {
    reader: InitialReader,
    datagrams: Vec<Box<[u8]>>,
    process: Arc<Process>,
    /// Bytes of the process's that are its own.
    counted: usize,
    /// Datagrams that came, of which one too many is not kept.
    count: u32,
}

impl Hello {
    pub fn new(max_bytes: usize, process: &Arc<Process>) -> Self {
        let reader = InitialReader::new(max_bytes);
        Hello { reader, datagrams: Vec::new(), process: process.clone(), counted: 0, count: 0 }
    }

    /// Reads one more datagram, and keeps it.
    pub fn read(&mut self, datagram: &[u8]) -> Answer {
        self.count += 1;
        if self.datagrams.len() >= PREREAD_DATAGRAMS {
            return Answer::TooLarge;
        }
        let answer = self.reader.push(datagram);
        let cost = hello_cost(datagram.len());
        self.process.quic_hello_bytes.0.fetch_add(cost, Relaxed);
        self.counted += cost;
        self.datagrams.push(datagram.into());
        answer
    }

    /// How many datagrams came.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Gives back what it holds if all together hold more than they may; then it is to end. In one
    /// step, so that two workers never both make room for the same excess.
    pub fn gives_way(&mut self) -> bool {
        let (most, own) = (self.process.max_hello_bytes.load(Relaxed), self.counted);
        let less = |held: usize| (held > most).then(|| held.saturating_sub(own));
        let gives = self.process.quic_hello_bytes.0.fetch_update(Relaxed, Relaxed, less).is_ok();
        if gives {
            self.counted = 0;
        }
        gives
    }

    /// Those, the oldest first.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.datagrams.iter().map(|datagram| &**datagram)
    }

    /// The connection id that the client chose for the server, until the server chooses one.
    pub fn original_id(&self) -> Option<&[u8]> {
        self.reader.original_dcid().map(ConnectionId::as_slice)
    }
}

impl Drop for Hello {
    fn drop(&mut self) {
        self.process.quic_hello_bytes.0.fetch_sub(self.counted, Relaxed);
    }
}
