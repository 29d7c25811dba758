//! Reading what a client asks for before it is routed: the TLS hello, never more than is needed
//! to know it, and all of it is passed on.
//!
//! A client that sends nothing costs no buffer. What unfinished hellos hold is bounded for the
//! process: beyond `preread.total_bytes` the oldest one is closed, by the worker that has it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::time::{Instant, timeout_at};

use super::roll::Entry;
use super::worker::Worker;
use crate::config::OnTimeout;
use crate::limits::hello_cost;
use crate::net::Socket;
use crate::snapshot::Listener;
use crate::state::Termination;
use crate::wire::ClientHello;
use crate::wire::client_hello::{Answer, Reader};

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Everything received so far, which the backend gets first.
    pub bytes: Vec<u8>,
    /// What it asks for; `None` where it is not TLS, or nothing was read.
    pub hello: Option<ClientHello>,
    /// There is a hello, and nothing came after it.
    pub alone: bool,
}

/// Reads until the hello is complete, or is none. `begun` is when the connection was accepted.
///
/// # Errors
///
/// Why the connection ends here: a hello that is late, malformed, too large or cut short never
/// reaches a route.
pub(super) async fn preread(
    client: &mut Socket,
    listener: &Listener,
    from: Option<SocketAddr>,
    begun: Instant,
    worker: &Worker,
    entry: &Rc<Entry>,
) -> Result<Read, Termination> {
    let Listener { name: listener, preread: limits, .. } = listener;
    let deadline = begun + limits.timeout;
    let mut read = Read::default();
    let mut reader = Reader::new(limits.max_bytes);
    let mut unfinished: Option<Unfinished<'_>> = None;
    loop {
        let ready = tokio::select! {
            biased;
            reason = entry.order.received() => return Err(reason),
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
        if !receive(client, &mut read.bytes, room, limits.max_bytes + 1, worker)? {
            continue;
        }
        match reader.advance(&read.bytes) {
            Answer::NeedMore => {
                let held = hello_cost(read.bytes.capacity());
                unfinished.get_or_insert_with(|| worker.hellos.enter(worker, entry)).holds(held);
                worker.hellos.keep_bound(worker);
            }
            Answer::Hello(hello) => {
                read.hello = Some(hello);
                read.alone = reader.end() == read.bytes.len();
                return Ok(read);
            }
            Answer::NotTls => return Ok(read),
            Answer::Reject(reason) => {
                tracing::debug!(%listener, ?from, %reason, "hello rejected");
                return Err(Termination::PrereadInvalid);
            }
            Answer::TooLarge => return Err(Termination::PrereadTooLarge),
        }
    }
}

/// Appends what has been received, at most `room` bytes to make `limit` in all; false if nothing was
/// there after all.
fn receive(
    client: &mut Socket,
    bytes: &mut Vec<u8>,
    room: usize,
    limit: usize,
    worker: &Worker,
) -> Result<bool, Termination> {
    worker.scratch.with_buffer(|buffer| {
        let room = room.min(buffer.len());
        match client.read(&mut buffer[..room]) {
            Ok(None) => Ok(false),
            Ok(Some(0)) => Err(Termination::PrereadClosed),
            Ok(Some(n)) => {
                // To twice its size as usual, but not beyond what a hello may have: what is held
                // counts, and one hello must always fit.
                let needed = bytes.len() + n;
                if needed > bytes.capacity() {
                    let grown = needed.max(2 * bytes.capacity()).min(limit.max(needed));
                    bytes.reserve_exact(grown - bytes.len());
                }
                bytes.extend_from_slice(&buffer[..n]);
                Ok(true)
            }
            Err(_) => Err(Termination::ClientReset),
        }
    })
}

/// Part of the bound that hellos may hold beyond it while another worker closes the oldest one.
const OVERSHOOT: usize = 32;

/// The unfinished hellos of a worker, oldest first, by when they began in nanoseconds of the
/// process and a number that tells those of one moment apart.
#[derive(Debug, Default)]
pub(super) struct Hellos {
    hellos: RefCell<BTreeMap<(u64, u64), Rc<Hello>>>,
    next: Cell<u64>,
}

#[derive(Debug)]
struct Hello {
    session: Rc<Entry>,
    bytes: Cell<usize>,
}

impl Hellos {
    fn enter<'w>(&'w self, worker: &'w Worker, session: &Rc<Entry>) -> Unfinished<'w> {
        let began = worker.process.started.elapsed().as_nanos();
        let key = (u64::try_from(began).unwrap_or(u64::MAX), self.next.get());
        self.next.set(key.1 + 1);
        let hello = Rc::new(Hello { session: session.clone(), bytes: Cell::new(0) });
        self.hellos.borrow_mut().insert(key, hello.clone());
        self.show_oldest(worker);
        Unfinished { worker, key, hello }
    }

    /// Closes the oldest hello of the process until all of them hold no more than they may. If
    /// another worker has it, that one is told; only if it is so busy that they go on growing, the
    /// oldest one here has to do. Bytes count as free at once, since their session ends before this
    /// worker reads on.
    pub fn keep_bound(&self, worker: &Worker) {
        let process = &worker.process;
        let bound = process.max_hello_bytes.load(Relaxed);
        loop {
            let held = process.hello_bytes.0.load(Relaxed);
            if held <= bound {
                return;
            }
            let ages = process.workers.iter().map(|state| state.oldest_hello.load(Relaxed));
            let Some((_, holder)) = ages.zip(0..).min().filter(|(age, _)| *age < u64::MAX) else {
                return;
            };
            if holder != worker.index {
                process.workers.shard(holder).close_oldest.notify_one();
                if held <= bound + bound / OVERSHOOT {
                    return;
                }
            }
            let Some((_, oldest)) = self.hellos.borrow_mut().pop_first() else { return };
            self.show_oldest(worker);
            process.hello_bytes.0.fetch_sub(oldest.bytes.take(), Relaxed);
            oldest.session.order.give(Termination::Overload);
        }
    }

    /// Lets the other workers know how old the oldest one here is.
    fn show_oldest(&self, worker: &Worker) {
        let oldest = self.hellos.borrow().first_key_value().map_or(u64::MAX, |(key, _)| key.0);
        worker.process.workers.shard(worker.index).oldest_hello.store(oldest, Relaxed);
    }
}

/// An unfinished hello's place in the list, given up when dropped.
struct Unfinished<'w> {
    worker: &'w Worker,
    key: (u64, u64),
    hello: Rc<Hello>,
}

impl Unfinished<'_> {
    fn holds(&self, bytes: usize) {
        let before = self.hello.bytes.replace(bytes);
        let counted = &self.worker.process.hello_bytes.0;
        counted.fetch_add(bytes, Relaxed);
        counted.fetch_sub(before, Relaxed);
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let hellos = &self.worker.hellos;
        hellos.hellos.borrow_mut().remove(&self.key);
        hellos.show_oldest(self.worker);
        self.worker.process.hello_bytes.0.fetch_sub(self.hello.bytes.take(), Relaxed);
    }
}
