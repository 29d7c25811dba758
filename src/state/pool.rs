//! Counters of one pool. Identity: its name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::counter::{Counter, Padded, Sharded};
use super::histogram::Histogram;
use crate::balance::latency::Latency;

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
    /// Sessions and attempts of all its backends, which hold it too. Any worker writes, through
    /// [`Lease`](super::Lease) alone; picks with a bounded load read it.
    active: Arc<Padded<AtomicU32>>,
    /// The beginning of time for `latency`.
    created: Instant,
    /// The mean over its backends. Any worker writes, in pools that balance by latency.
    latency: Padded<Latency>,
    shards: Sharded<Shard>,
}

#[derive(Debug, Default)]
struct Shard {
    retries: Counter,
    no_backend: Counter,
}

impl PoolState {
    /// All zero, not in panic.
    pub fn new(name: Arc<str>, workers: usize) -> Self {
        PoolState {
            name,
            connect_seconds: Histogram::new(workers),
            first_byte_seconds: Histogram::new(workers),
            panic: AtomicBool::new(false),
            tickets: Padded::default(),
            active: Arc::default(),
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
        self.active.0.load(Relaxed)
    }

    /// The count that the leases of a backend keep.
    pub(super) fn shared_active(&self) -> Arc<Padded<AtomicU32>> {
        self.active.clone()
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

    /// Counts an attempt after a failed one. Called by the thread of `worker`, as all below.
    pub fn retried(&self, worker: usize) {
        self.shards.shard(worker).retries.add(1);
    }

    /// Counts a connection that found nothing to go to.
    pub fn no_backend(&self, worker: usize) {
        self.shards.shard(worker).no_backend.add(1);
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
