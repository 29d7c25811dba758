//! Sessions as they are shown to whoever asks, and how a worker is asked for them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::{BackendState, ListenerState, PoolState};
use crate::config::Protocol;
use crate::limits::QUERIES;

/// How far a session has come.
#[derive(Clone, Debug)]
pub enum Stage {
    /// Not routed yet.
    Preread,
    /// Waiting for a place in this pool, or for a backend of it to answer.
    Connecting(Arc<PoolState>),
    /// Connected to this backend.
    Relaying(Arc<BackendState>),
}

/// A session as it was when its worker was asked.
#[derive(Debug)]
pub struct SessionReport {
    /// As in the access log.
    pub id: u64,
    /// The listener it came by.
    pub listener: Arc<ListenerState>,
    /// What the client speaks: of UDP it is a flow.
    pub protocol: Protocol,
    /// The client; `None` on a unix listener.
    pub client: Option<SocketAddr>,
    /// The host name in its hello, where one was read.
    pub sni: Option<Box<str>>,
    /// How far it has come.
    pub stage: Stage,
    /// It is over; its peers are being told.
    pub ended: bool,
    /// Since it was accepted.
    pub age: Duration,
    /// Bytes passed on to the backend.
    pub bytes_in: u64,
    /// Bytes passed on to the client.
    pub bytes_out: u64,
}

/// Sessions of one worker, or of several.
#[derive(Debug, Default)]
pub struct SessionReports {
    /// How many there are.
    pub total: usize,
    /// The largest, by the bytes of both directions; in no order.
    pub largest: Vec<SessionReport>,
}

/// What a worker is asked.
#[derive(Debug)]
pub enum Query {
    /// Its largest sessions.
    Largest {
        /// At most so many.
        limit: usize,
        /// Gets them.
        answer: oneshot::Sender<SessionReports>,
    },
    /// To end a session.
    End {
        /// Which one.
        id: u64,
        /// Gets whether the worker has it.
        answer: oneshot::Sender<bool>,
    },
}

/// The way to ask a worker: bounded, and whoever finds it full goes away.
#[derive(Debug)]
pub struct Queries {
    sender: mpsc::Sender<Query>,
    /// For the worker, until it has taken it.
    receiver: Mutex<Option<mpsc::Receiver<Query>>>,
}

impl Default for Queries {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(QUERIES);
        Queries { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Queries {
    /// Asks; false if too many wait for an answer already. A worker that has ended drops the query.
    pub fn ask(&self, query: Query) -> bool {
        !matches!(self.sender.try_send(query), Err(TrySendError::Full(_)))
    }

    /// Hands the worker its end, once.
    pub fn take(&self) -> Option<mpsc::Receiver<Query>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
