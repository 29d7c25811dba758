//! Counters of one pool. Identity: its name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::closing::{Closing, Closings};
use super::counter::{Counter, Padded, Sharded};
use super::histogram::Histogram;
use super::queue::Queue;
use super::standing::Board;
use super::{BackendState, ReadyCounts};
use crate::balance::latency::Latency;
use crate::health::budget::RetryBudget;
use crate::health::hedge::ConnectTimes;

/// Counts of a pool, kept over reloads.
#[derive(Debug)]
pub struct PoolState {
    /// The pool's name.
    pub name: Arc<str>,
    /// Time to connect, successful attempts only.
    pub connect_seconds: Histogram,
    /// From connected to the backend's first byte.
    pub first_byte_seconds: Histogram,
    /// The state of backends is ignored. Control writes, workers read at each pick.
    panic: AtomicBool,
    /// Tickets of `round_robin`: shared by all workers, so that the rotation is exact across
    /// them, and kept over reloads.
    tickets: Padded<AtomicU64>,
    shared: Arc<Shared>,
    /// Attempts beyond the first. Any worker writes.
    budget: Padded<RetryBudget>,
    /// How long connects took. Any worker writes, in pools that hedge by it.
    connect_times: ConnectTimes,
    /// To the workers, of backends whose sessions are to be closed.
    closings: Arc<Closings>,
    /// Connections kept ready. Any worker writes, through a guard.
    ready: Padded<AtomicU32>,
    /// Backends that warm up. Control writes, picks read.
    warming: AtomicU32,
    /// Backends that are ejected and may be tried. Control writes, picks read.
    trying: AtomicU32,
    /// The beginning of time for `latency`.
    created: Instant,
    /// The mean over its backends. Any worker writes, in pools that balance by latency.
    latency: Padded<Latency>,
    shards: Sharded<Shard>,
}

/// What the backends of a pool share, who hold it too.
#[derive(Debug)]
pub(super) struct Shared {
    /// Sessions and attempts of all of them. Any worker writes, through [`Lease`](super::Lease)
    /// alone; picks with a bounded load read it.
    active: Padded<AtomicU32>,
    /// The most of them; `u32::MAX` is no bound. Control writes.
    max: AtomicU32,
    /// Connections that wait for a place.
    queue: Arc<Queue>,
    /// Their words.
    pub board: Arc<Board>,
}

impl Shared {
    /// Takes a place if there is one.
    pub fn enter(&self) -> bool {
        let max = self.max.load(Relaxed);
        if max == u32::MAX {
            self.active.0.fetch_add(1, Relaxed);
            return true;
        }
        let enter = |active: u32| (active < max).then_some(active + 1);
        self.active.0.fetch_update(Relaxed, Relaxed, enter).is_ok()
    }

    /// Gives a place back.
    pub fn leave(&self) {
        self.active.0.fetch_sub(1, SeqCst);
    }

    /// Tells who waits for a place that there may be one.
    pub fn nudge(&self) {
        self.queue.nudge();
    }
}

#[derive(Debug, Default)]
struct Shard {
    retries: Counter,
    hedges: Counter,
    budget_exhausted: Counter,
    no_backend: Counter,
    replays: Counter,
    ready_used: Counter,
    ready_missed: Counter,
    ready_lost: Counter,
}

impl PoolState {
    /// All zero, not in panic.
    pub fn new(name: Arc<str>, workers: usize, closings: Arc<Closings>) -> Self {
        PoolState {
            name,
            connect_seconds: Histogram::new(workers),
            first_byte_seconds: Histogram::new(workers),
            panic: AtomicBool::new(false),
            tickets: Padded::default(),
            shared: Arc::new(Shared {
                active: Padded::default(),
                max: AtomicU32::new(u32::MAX),
                queue: Arc::default(),
                board: Arc::default(),
            }),
            budget: Padded(RetryBudget::new(Duration::ZERO)),
            connect_times: ConnectTimes::default(),
            closings,
            ready: Padded::default(),
            warming: AtomicU32::new(0),
            trying: AtomicU32::new(0),
            created: Instant::now(),
            latency: Padded::default(),
            shards: Sharded::new(workers),
        }
    }

    /// The shared ticket counter of `round_robin`.
    pub fn tickets(&self) -> &AtomicU64 {
        &self.tickets.0
    }

    /// Sessions and attempts at the moment, of all its backends.
    pub fn active(&self) -> u32 {
        self.shared.active.0.load(Relaxed)
    }

    /// What its backends share.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Sets the most sessions and attempts of all its backends; `u32::MAX` is no bound. Control
    /// only.
    pub fn set_max_connections(&self, max: u32) {
        self.shared.max.store(max, Relaxed);
    }

    /// Connections that wait for a place.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.shared.queue
    }

    /// Whether any of its backends gets less than its share, to warm up.
    pub fn warming(&self) -> bool {
        self.warming.load(Relaxed) > 0
    }

    /// Sets how many of its backends warm up. Control only.
    pub fn set_warming(&self, count: u32) {
        self.warming.store(count, Relaxed);
    }

    /// Whether any of its backends is ejected and may be tried by a few connections.
    pub fn trying(&self) -> bool {
        self.trying.load(Relaxed) > 0
    }

    /// Sets how many of its backends may be tried. Control only.
    pub fn set_trying(&self, count: u32) {
        self.trying.store(count, Relaxed);
    }

    /// Has the sessions of a backend closed, one after the other, the last one after this time.
    /// Control only.
    pub fn close_sessions(&self, backend: &Arc<BackendState>, within: Duration) {
        let since = Instant::now();
        let closing = Closing { backend: backend.clone(), since, until: since + within };
        self.closings.tell(&closing);
    }

    /// Nanoseconds that its backends take on average; 0 if none was measured.
    pub fn latency(&self) -> u64 {
        self.latency.0.average()
    }

    /// Notes how long a connect or a first byte took that came `now`.
    pub fn took(&self, now: Instant, took: Duration) {
        self.latency.0.record_mean(now.saturating_duration_since(self.created), took);
    }

    /// Whether the state of backends is ignored.
    pub fn panic(&self) -> bool {
        self.panic.load(Relaxed)
    }

    /// Sets or ends panic; true if that was a change. Control only.
    pub fn set_panic(&self, panic: bool) -> bool {
        self.panic.swap(panic, Relaxed) != panic
    }

    /// Earns a share of an attempt for a connection that came `now`, in percent.
    pub fn earn_retries(&self, now: Instant, percent: u8) {
        self.budget.0.earn(now.saturating_duration_since(self.created), percent);
    }

    /// Spends an attempt beyond a connection's first; false if none is left.
    pub fn spend_retry(&self, now: Instant) -> bool {
        self.budget.0.spend(now.saturating_duration_since(self.created))
    }

    /// How long connects took lately.
    pub fn connect_times(&self) -> &ConnectTimes {
        &self.connect_times
    }

    /// Connections kept ready, for the guard that counts them.
    pub(super) fn ready(&self) -> &AtomicU32 {
        &self.ready.0
    }

    /// Counts an attempt beside one that is pending. Called by the thread of `worker`, as all
    /// below.
    pub fn hedged(&self, worker: usize) {
        self.shards.shard(worker).hedges.add(1);
    }

    /// Counts an attempt that the budget did not allow.
    pub fn budget_exhausted(&self, worker: usize) {
        self.shards.shard(worker).budget_exhausted.add(1);
    }

    /// Counts an attempt after a failed one.
    pub fn retried(&self, worker: usize) {
        self.shards.shard(worker).retries.add(1);
    }

    /// Counts a connection that found nothing to go to.
    pub fn no_backend(&self, worker: usize) {
        self.shards.shard(worker).no_backend.add(1);
    }

    /// Counts a hello that goes to another backend.
    pub fn replayed(&self, worker: usize) {
        self.shards.shard(worker).replays.add(1);
    }

    /// Counts a connection that was handed to a session.
    pub fn ready_used(&self, worker: usize) {
        self.shards.shard(worker).ready_used.add(1);
    }

    /// Counts a session that found none.
    pub fn ready_missed(&self, worker: usize) {
        self.shards.shard(worker).ready_missed.add(1);
    }

    /// Counts a connection that its backend closed before anybody used it.
    pub fn ready_lost(&self, worker: usize) {
        self.shards.shard(worker).ready_lost.add(1);
    }

    /// Reads what was counted of connections kept ready.
    pub fn ready_counts(&self) -> ReadyCounts {
        ReadyCounts {
            kept: self.ready.0.load(Relaxed),
            used: self.shards.sum(|shard| shard.ready_used.get()),
            missed: self.shards.sum(|shard| shard.ready_missed.get()),
            lost: self.shards.sum(|shard| shard.ready_lost.get()),
        }
    }

    /// Hellos that went to another backend.
    pub fn replays_total(&self) -> u64 {
        self.shards.sum(|shard| shard.replays.get())
    }

    /// Attempts beside one that was pending.
    pub fn hedges_total(&self) -> u64 {
        self.shards.sum(|shard| shard.hedges.get())
    }

    /// Attempts that the budget did not allow.
    pub fn budget_exhausted_total(&self) -> u64 {
        self.shards.sum(|shard| shard.budget_exhausted.get())
    }

    /// Attempts after a failed one.
    pub fn retries_total(&self) -> u64 {
        self.shards.sum(|shard| shard.retries.get())
    }

    /// Connections that found nothing to go to.
    pub fn no_backend_total(&self) -> u64 {
        self.shards.sum(|shard| shard.no_backend.get())
    }
}
