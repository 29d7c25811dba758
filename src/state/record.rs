//! The access log's records, and the bounded queue from workers to its writer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::outcome::{AttemptOutcome, Termination};
use crate::address::Address;
use crate::config::{AccessLog, Protocol};
use crate::wire::Alpn;

/// One accepted connection, complete when it has ended.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it was accepted.
    pub started: SystemTime,
    /// Unique in the process, and nearly so across restarts.
    pub id: u64,
    /// The listener's name.
    pub listener: Arc<str>,
    /// What the client speaks.
    pub protocol: Protocol,
    /// The client; `None` on a unix listener.
    pub client: Option<SocketAddr>,
    /// The address it connected to.
    pub local: Address,
    /// What its TLS hello asked for, where one was read.
    pub hello: Option<Asked>,
    /// From accepted to the end of preread, where there was one.
    pub preread: Option<Duration>,
    /// The pool it was routed to.
    pub pool: Option<Arc<str>>,
    /// The name of the backend it was connected to.
    pub backend: Option<Arc<str>>,
    /// Every attempt to connect, in order.
    pub attempts: Vec<Attempt>,
    /// From the pick to the established connection, failed attempts included.
    pub connect: Option<Duration>,
    /// From established to the backend's first byte.
    pub first_byte: Option<Duration>,
    /// From accepted to ended.
    pub duration: Duration,
    /// Bytes passed on to the backend.
    pub bytes_in: u64,
    /// Bytes passed on to the client.
    pub bytes_out: u64,
    /// Why it ended.
    pub termination: Termination,
}

impl Record {
    /// Whether its like comes in floods, since it costs a client nothing: the access log then has
    /// some of them, and how many were left out. A datagram from a forged address is enough for any
    /// refusal of a flow; whatever reached a backend is written.
    pub fn floods(&self) -> bool {
        let refused = self.protocol == Protocol::Udp && self.backend.is_none();
        let cheap = [Termination::Limit, Termination::Rate, Termination::Overload];
        refused || cheap.contains(&self.termination)
    }
}

/// What a TLS hello asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The host name as an A-label in lower case.
    pub sni: Option<Box<str>>,
    /// The application protocols.
    pub alpn: Alpn,
}

/// One attempt to connect to a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The backend's name.
    pub backend: Arc<str>,
    /// What became of it.
    pub outcome: AttemptOutcome,
    /// How long it took.
    pub took: Duration,
}

/// What the writer of the access log is told.
#[derive(Debug)]
pub enum LogMessage {
    /// Write this.
    Record(Box<Record>),
    /// Write there from now on; `None` ends the log.
    Configure(Option<AccessLog>),
    /// Open the file again: something has renamed it.
    Reopen,
    /// Write what is queued and end; the sender hears when that is done.
    Finish(std::sync::mpsc::Sender<()>),
}
