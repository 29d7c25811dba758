//! Status and counters of one backend. Identity: (pool, address).

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::check::CheckReport;
use super::counter::{Counter, Padded, Sharded};
use super::outcome::{ConnectFailure, Direction};
use super::pool::PoolState;
use crate::address::Address;
use crate::balance::latency::Latency;
use crate::health::State;

/// What is known and counted of a backend, kept over reloads.
#[derive(Debug)]
pub struct BackendState {
    /// The pool's name.
    pub pool: Arc<str>,
    /// Where it is.
    pub address: Address,
    /// Its name, which a reload may change. Control writes, observe reads.
    name: Mutex<Arc<str>>,
    /// The beginning of time for `picked`.
    created: Instant,
    /// What picks look at, on one cache line.
    picked: Padded<Picked>,
    /// Sessions and attempts of the whole pool; see [`PoolState::active`](super::PoolState).
    pool_active: Arc<Padded<AtomicU32>>,
    /// Checks that passed and failed. Control writes.
    checks: [AtomicU64; 2],
    /// The latest check. Control writes, observe reads; never on the data path.
    last_check: Mutex<Option<CheckReport>>,
    shards: Sharded<Shard>,
}

#[derive(Debug)]
struct Picked {
    /// A [`State`]. Control writes, workers read at each pick.
    state: AtomicU8,
    /// Sessions and attempts at the moment. Any worker writes, through [`Lease`] alone.
    active: AtomicU32,
    /// Of connects and first bytes. Any worker writes, in pools that balance by it.
    latency: Latency,
}

#[derive(Debug, Default)]
struct Shard {
    connections: Counter,
    failures: [Counter; ConnectFailure::ALL.len()],
    bytes_in: Counter,
    bytes_out: Counter,
}

/// What a backend has counted, summed over workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendCounts {
    /// Sessions and attempts at the moment.
    pub active: u32,
    /// Connections that were established.
    pub connections: u64,
    /// Failed attempts, by [`ConnectFailure`] as index.
    pub failures: [u64; ConnectFailure::ALL.len()],
    /// Bytes passed on to it.
    pub bytes_in: u64,
    /// Bytes passed on from it.
    pub bytes_out: u64,
    /// Checks that passed.
    pub checks_passed: u64,
    /// Checks that failed.
    pub checks_failed: u64,
}

impl BackendState {
    /// Nothing counted, `state` as given; in `pool`, by whose name it is known.
    pub fn new(
        pool: &PoolState,
        name: Arc<str>,
        address: Address,
        state: State,
        workers: usize,
    ) -> Self {
        BackendState {
            pool: pool.name.clone(),
            address,
            name: Mutex::new(name),
            created: Instant::now(),
            picked: Padded(Picked {
                state: AtomicU8::new(state as u8),
                active: AtomicU32::new(0),
                latency: Latency::default(),
            }),
            pool_active: pool.shared_active(),
            checks: Default::default(),
            last_check: Mutex::new(None),
            shards: Sharded::new(workers),
        }
    }

    /// Its name in the current configuration.
    pub fn name(&self) -> Arc<str> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Renames it. Control only.
    pub fn set_name(&self, name: Arc<str>) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// Its state.
    pub fn state(&self) -> State {
        let value = self.picked.0.state.load(Relaxed);
        State::ALL.into_iter().find(|&state| state as u8 == value).unwrap_or(State::Unknown)
    }

    /// Sets its state. Control only.
    pub fn set_state(&self, state: State) {
        self.picked.0.state.store(state as u8, Relaxed);
    }

    /// Whether its state is [`State::Up`].
    pub fn is_up(&self) -> bool {
        self.picked.0.state.load(Relaxed) == State::Up as u8
    }

    /// Sessions and attempts at the moment.
    pub fn active(&self) -> u32 {
        self.picked.0.active.load(Relaxed)
    }

    /// Nanoseconds it is expected to take, where `prior` is what the pool is.
    pub fn latency(&self, now: Instant, prior: u64) -> u64 {
        self.picked.0.latency.estimate(now.saturating_duration_since(self.created), prior)
    }

    /// Notes how long a connect or a first byte took that came `now`.
    pub fn took(&self, now: Instant, took: Duration) {
        self.picked.0.latency.record_peak(now.saturating_duration_since(self.created), took);
    }

    /// Takes one place on this backend.
    pub fn lease(self: &Arc<Self>) -> Lease {
        self.picked.0.active.fetch_add(1, Relaxed);
        self.pool_active.0.fetch_add(1, Relaxed);
        Lease { backend: self.clone() }
    }

    /// Notes a finished check. Control only.
    pub fn checked(&self, report: CheckReport) {
        self.checks[usize::from(report.result.is_err())].fetch_add(1, Relaxed);
        *self.last_check.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    /// The latest check.
    pub fn last_check(&self) -> Option<CheckReport> {
        self.last_check.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts an established connection. Called by the thread of `worker`, as all below.
    pub fn connected(&self, worker: usize) {
        self.shards.shard(worker).connections.add(1);
    }

    /// Counts a failed attempt.
    pub fn connect_failed(&self, worker: usize, failure: ConnectFailure) {
        self.shards.shard(worker).failures[failure as usize].add(1);
    }

    /// Counts bytes that were passed on.
    pub fn passed(&self, worker: usize, direction: Direction, bytes: u64) {
        let shard = self.shards.shard(worker);
        match direction {
            Direction::In => shard.bytes_in.add(bytes),
            Direction::Out => shard.bytes_out.add(bytes),
        }
    }

    /// Reads everything.
    pub fn counts(&self) -> BackendCounts {
        let mut failures = [0; ConnectFailure::ALL.len()];
        for (index, count) in failures.iter_mut().enumerate() {
            *count = self.shards.sum(|shard| shard.failures[index].get());
        }
        BackendCounts {
            active: self.active(),
            connections: self.shards.sum(|shard| shard.connections.get()),
            failures,
            bytes_in: self.shards.sum(|shard| shard.bytes_in.get()),
            bytes_out: self.shards.sum(|shard| shard.bytes_out.get()),
            checks_passed: self.checks[0].load(Relaxed),
            checks_failed: self.checks[1].load(Relaxed),
        }
    }
}

/// One place on a backend, given back when dropped.
#[derive(Debug)]
pub struct Lease {
    backend: Arc<BackendState>,
}

impl Lease {
    /// The backend it is a place on.
    pub fn backend(&self) -> &Arc<BackendState> {
        &self.backend
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.backend.picked.0.active.fetch_sub(1, Relaxed);
        self.backend.pool_active.0.fetch_sub(1, Relaxed);
    }
}
