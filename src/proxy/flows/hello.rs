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
    counted: usize,
}

impl Hello {
    pub fn new(max_bytes: usize, process: &Arc<Process>) -> Self {
        let reader = InitialReader::new(max_bytes);
        Hello { reader, datagrams: Vec::new(), process: process.clone(), counted: 0 }
    }

    /// Reads one more datagram, and keeps it.
    pub fn read(&mut self, datagram: &[u8]) -> Answer {
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

    /// How many datagrams it keeps.
    pub fn count(&self) -> u32 {
        u32::try_from(self.datagrams.len()).unwrap_or(u32::MAX)
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
