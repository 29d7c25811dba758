//! The account of one connection: opened when it is accepted, closed exactly once, by `Drop`.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use super::roll::Entry;
use super::worker::Worker;
use crate::address::Address;
use crate::config::{Protocol, Timeouts};
use crate::limits::{LOGGED_ALPN, LOGGED_ATTEMPTS};
use crate::state::{
    Asked, Attempt, AttemptOutcome, Direction, ListenerState, LogMessage, PoolState, Process,
    Record, Stage, Termination,
};
use crate::wire::ClientHello;

/// What a connection adds to counters, histograms and the access log.
pub(super) struct Account {
    worker: Rc<Worker>,
    entry: Rc<Entry>,
    /// The record for the access log, where there is one.
    record: Option<Box<Record>>,
}

impl Account {
    /// Counts an accepted connection.
    pub fn open(
        worker: &Rc<Worker>,
        listener: &Arc<ListenerState>,
        client: Option<SocketAddr>,
        local: &Address,
        protocol: Protocol,
    ) -> Self {
        listener.opened(worker.index);
        let id = worker.next_id();
        let record = worker.logs_access().then(|| {
            Box::new(Record {
                started: SystemTime::now(),
                id,
                listener: listener.name.clone(),
                protocol,
                client,
                local: local.clone(),
                hello: None,
                preread: None,
                pool: None,
                backend: None,
                attempts: Vec::new(),
                connect: None,
                first_byte: None,
                duration: Duration::ZERO,
                bytes_in: 0,
                bytes_out: 0,
                termination: Termination::Error,
            })
        });
        let entry = Rc::new(Entry::new(id, listener.clone(), client, protocol));
        Account { worker: worker.clone(), entry, record }
    }

    /// What others may know of the connection while it is open.
    pub fn entry(&self) -> &Rc<Entry> {
        &self.entry
    }

    /// When the connection was accepted.
    pub fn started(&self) -> Instant {
        self.entry.started
    }

    /// When it will be too old.
    pub fn lifetime_ends(&self, timeouts: &Timeouts) -> Option<tokio::time::Instant> {
        timeouts.lifetime.map(|age| (self.entry.started + age).into())
    }

    /// The worker it is on.
    pub fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    /// Notes the end of preread, and the hello if there was a complete one.
    pub fn preread(&mut self, hello: Option<&ClientHello>) {
        let took = self.entry.started.elapsed();
        if let Some(hello) = hello {
            let listener = &self.entry.listener;
            listener.preread_seconds.record(self.worker.index, took);
            if hello.ech {
                listener.ech(self.worker.index);
            }
            if let Some(name) = &hello.sni {
                self.entry.asks_for(name);
            }
        }
        if let Some(record) = &mut self.record {
            record.preread = Some(took);
            record.hello = hello.map(|hello| Asked {
                sni: hello.sni.clone(),
                alpn: hello.alpn.at_most(LOGGED_ALPN),
            });
        }
    }

    /// Notes what the connection has asked for that it is the rest of.
    pub fn asked(&mut self, asked: &Asked) {
        if let Some(name) = &asked.sni {
            self.entry.asks_for(name);
        }
        if let Some(record) = &mut self.record {
            record.hello = Some(asked.clone());
        }
    }

    /// Notes the pool it was routed to.
    pub fn routed(&mut self, pool: &Arc<PoolState>) {
        self.entry.comes_to(Stage::Connecting(pool.clone()));
        if let Some(record) = &mut self.record {
            record.pool = Some(pool.name.clone());
        }
    }

    /// Notes an attempt to connect.
    pub fn attempted(&mut self, backend: &Arc<str>, outcome: AttemptOutcome, took: Duration) {
        if let Some(record) = &mut self.record {
            if matches!(outcome, AttemptOutcome::Connected | AttemptOutcome::Ready) {
                record.backend = Some(backend.clone());
            }
            // A flow can change its backend any number of times.
            if record.attempts.len() < LOGGED_ATTEMPTS {
                record.attempts.push(Attempt { backend: backend.clone(), outcome, took });
            }
        }
    }

    /// Notes that the connection in use has been ended by its backend before the first byte, `after`
    /// it was established.
    pub fn closed_early(&mut self, after: Duration) {
        let used = |a: &&mut Attempt| {
            matches!(a.outcome, AttemptOutcome::Connected | AttemptOutcome::Ready)
        };
        let attempts = self.record.iter_mut().flat_map(|record| &mut record.attempts);
        if let Some(attempt) = attempts.rev().find(used) {
            attempt.outcome = AttemptOutcome::EarlyClose;
            attempt.took += after;
        }
    }

    /// Notes how long it took to be connected, failed attempts included.
    pub fn connected(&mut self, took: Duration) {
        if let Some(record) = &mut self.record {
            record.connect = Some(took);
        }
    }

    /// Notes the backend's first byte.
    pub fn first_byte(&mut self, took: Option<Duration>) {
        if let Some(record) = &mut self.record {
            record.first_byte = took;
        }
    }

    /// Counts bytes that were passed on.
    pub fn passed(&self, direction: Direction, bytes: u64) {
        self.entry.listener.passed(self.worker.index, direction, bytes);
        self.entry.passed(direction, bytes);
    }

    /// Says how the connection ends, now. It counts when the account is dropped, which is after,
    /// or in the middle of, a lingering close. The first word on it is the last.
    pub fn ends(&self, termination: Termination) {
        self.entry.ends(termination);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let unsaid = || (Termination::Error, self.entry.started.elapsed());
        let (termination, duration) = self.entry.ended().unwrap_or_else(unsaid);
        self.entry.listener.closed(self.worker.index, termination, duration);
        if let Some(mut record) = self.record.take() {
            record.duration = duration;
            (record.bytes_in, record.bytes_out) = self.entry.bytes();
            record.termination = termination;
            write_record(&self.worker.process, record);
        }
    }
}

/// Hands a record to the writer, or counts it as dropped: a worker never waits for a disk.
fn write_record(process: &Process, record: Box<Record>) {
    if process.access_log.try_send(LogMessage::Record(record)).is_err() {
        process.access_log_dropped.fetch_add(1, Relaxed);
    }
}
