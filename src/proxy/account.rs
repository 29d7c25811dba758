//! The account of one connection: opened when it is accepted, closed exactly once, by `Drop`.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use super::worker::Worker;
use crate::address::Address;
use crate::limits::LOGGED_ALPN;
use crate::state::{
    Asked, Attempt, AttemptOutcome, Direction, ListenerState, LogMessage, Process, Record,
    Termination,
};
use crate::wire::ClientHello;

/// What a connection adds to counters, histograms and the access log.
pub(super) struct Account {
    worker: Rc<Worker>,
    listener: Arc<ListenerState>,
    started: Instant,
    /// How it ended, and after how long; [`Termination::Error`] until somebody says otherwise.
    ended: Cell<Option<(Termination, Duration)>>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
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
    ) -> Self {
        listener.opened(worker.index);
        let record = worker.logs_access().then(|| {
            Box::new(Record {
                started: SystemTime::now(),
                id: worker.next_id(),
                listener: listener.name.clone(),
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
        Account {
            worker: worker.clone(),
            listener: listener.clone(),
            started: Instant::now(),
            ended: Cell::new(None),
            bytes_in: Cell::new(0),
            bytes_out: Cell::new(0),
            record,
        }
    }

    /// When the connection was accepted.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The worker it is on.
    pub fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    /// Notes the end of preread, and the hello if there was a complete one.
    pub fn preread(&mut self, hello: Option<&ClientHello>) {
        let took = self.started.elapsed();
        if let Some(hello) = hello {
            self.listener.preread_seconds.record(self.worker.index, took);
            if hello.ech {
                self.listener.ech(self.worker.index);
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

    /// Notes the pool it was routed to.
    pub fn routed(&mut self, pool: &Arc<str>) {
        if let Some(record) = &mut self.record {
            record.pool = Some(pool.clone());
        }
    }

    /// Notes an attempt to connect.
    pub fn attempted(&mut self, backend: &Arc<str>, outcome: AttemptOutcome, took: Duration) {
        if let Some(record) = &mut self.record {
            if outcome == AttemptOutcome::Connected {
                record.backend = Some(backend.clone());
            }
            record.attempts.push(Attempt { backend: backend.clone(), outcome, took });
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
        self.listener.passed(self.worker.index, direction, bytes);
        let count = match direction {
            Direction::In => &self.bytes_in,
            Direction::Out => &self.bytes_out,
        };
        count.set(count.get() + bytes);
    }

    /// Bytes passed on to the backend so far.
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.get()
    }

    /// Says how the connection ends, now. It counts when the account is dropped, which is after,
    /// or in the middle of, a lingering close. The first word on it is the last.
    pub fn ends(&self, termination: Termination) {
        if self.ended.get().is_none() {
            self.ended.set(Some((termination, self.started.elapsed())));
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let unsaid = || (Termination::Error, self.started.elapsed());
        let (termination, duration) = self.ended.get().unwrap_or_else(unsaid);
        self.listener.closed(self.worker.index, termination, duration);
        if let Some(mut record) = self.record.take() {
            record.duration = duration;
            record.bytes_in = self.bytes_in.get();
            record.bytes_out = self.bytes_out.get();
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
