//! Reading what a client asks for before it is routed: the TLS hello, never more than is needed
//! to know it, and all of it is passed on.
//!
//! A client that sends nothing costs no buffer. What unfinished hellos hold is bounded for the
//! process: beyond `preread.total_bytes` the oldest one of this worker is closed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::time::{Instant, timeout_at};

use super::order::Order;
use super::worker::Worker;
use crate::config::{OnTimeout, Preread};
use crate::net::Socket;
use crate::state::{Process, Termination};
use crate::wire::ClientHello;
use crate::wire::client_hello::{Answer, Reader};

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Everything received so far, which the backend gets first.
    pub bytes: Vec<u8>,
    /// What it asks for; `None` where it is not TLS, or nothing was read.
    pub hello: Option<ClientHello>,
}

/// Reads until the hello is complete, or is none. `begun` is when the connection was accepted.
///
/// # Errors
///
/// Why the connection ends here: a hello that is late, malformed, too large or cut short never
/// reaches a route.
pub(super) async fn preread(
    client: &mut Socket,
    limits: &Preread,
    begun: Instant,
    worker: &Worker,
    order: &Rc<Order>,
) -> Result<Read, Termination> {
    let deadline = begun + limits.timeout;
    let mut read = Read::default();
    let mut reader = Reader::new(limits.max_bytes);
    let mut unfinished: Option<Unfinished<'_>> = None;
    loop {
        let ready = tokio::select! {
            biased;
            reason = order.received() => return Err(reason),
            ready = timeout_at(deadline, client.ready_to_read()) => ready,
        };
        match ready {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Termination::Error),
            Err(_) if read.bytes.is_empty() && limits.on_timeout == OnTimeout::Default => {
                return Ok(read);
            }
            Err(_) => return Err(Termination::PrereadTimeout),
        }
        // One byte more than a hello may have tells that it is too large.
        let room = limits.max_bytes.saturating_sub(read.bytes.len()) + 1;
        if !receive(client, &mut read.bytes, room, worker)? {
            continue;
        }
        match reader.advance(&read.bytes) {
            Answer::NeedMore => {
                let held = read.bytes.capacity();
                unfinished.get_or_insert_with(|| worker.hellos.enter(worker, order)).holds(held);
                worker.hellos.keep_below(limits.total_bytes, &worker.process);
            }
            Answer::Hello(hello) => {
                read.hello = Some(hello);
                return Ok(read);
            }
            Answer::NotTls => return Ok(read),
            Answer::Reject(reason) => {
                tracing::debug!(%reason, "hello rejected");
                return Err(Termination::PrereadInvalid);
            }
            Answer::TooLarge => return Err(Termination::PrereadTooLarge),
        }
    }
}

/// Appends what has been received, at most `room` bytes; false if nothing was there after all.
fn receive(
    client: &mut Socket,
    bytes: &mut Vec<u8>,
    room: usize,
    worker: &Worker,
) -> Result<bool, Termination> {
    worker.scratch.with_buffer(|buffer| {
        let room = room.min(buffer.len());
        match client.read(&mut buffer[..room]) {
            Ok(None) => Ok(false),
            Ok(Some(0)) => Err(Termination::PrereadClosed),
            Ok(Some(n)) => {
                bytes.extend_from_slice(&buffer[..n]);
                Ok(true)
            }
            Err(_) => Err(Termination::ClientReset),
        }
    })
}

/// The unfinished hellos of a worker, oldest first.
#[derive(Debug, Default)]
pub(super) struct Hellos {
    entries: RefCell<BTreeMap<u64, Rc<Entry>>>,
    next: Cell<u64>,
}

#[derive(Debug)]
struct Entry {
    order: Rc<Order>,
    bytes: Cell<usize>,
}

impl Hellos {
    fn enter<'w>(&'w self, worker: &Worker, order: &Rc<Order>) -> Unfinished<'w> {
        let number = self.next.get();
        self.next.set(number + 1);
        let entry = Rc::new(Entry { order: order.clone(), bytes: Cell::new(0) });
        self.entries.borrow_mut().insert(number, entry.clone());
        Unfinished { hellos: self, number, entry, process: worker.process.clone() }
    }

    /// Closes the oldest until all of the process hold no more than `total` bytes. Their bytes
    /// count as free at once, since their sessions end before this worker reads on.
    fn keep_below(&self, total: usize, process: &Process) {
        while process.hello_bytes.0.load(Relaxed) > total {
            let Some((_, oldest)) = self.entries.borrow_mut().pop_first() else { return };
            process.hello_bytes.0.fetch_sub(oldest.bytes.take(), Relaxed);
            oldest.order.give(Termination::Overload);
        }
    }
}

/// An unfinished hello's place in the list, given up when dropped.
struct Unfinished<'w> {
    hellos: &'w Hellos,
    number: u64,
    entry: Rc<Entry>,
    process: Arc<Process>,
}

impl Unfinished<'_> {
    fn holds(&self, bytes: usize) {
        let before = self.entry.bytes.replace(bytes);
        let counted = &self.process.hello_bytes.0;
        counted.fetch_add(bytes, Relaxed);
        counted.fetch_sub(before, Relaxed);
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.hellos.entries.borrow_mut().remove(&self.number);
        self.process.hello_bytes.0.fetch_sub(self.entry.bytes.take(), Relaxed);
    }
}
