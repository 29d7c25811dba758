//! Status and counters of one backend. Identity: (pool, address).

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::AdminState;
use super::check::CheckReport;
use super::counter::{Counter, Sharded};
use super::outcome::{ConnectFailure, Direction};
use super::pool::{PoolState, Shared};
use super::standing::{Seat, Standing};
use crate::address::Address;
use crate::balance::latency::Latency;
use crate::health::State;
use crate::health::outlier::{Claim, Failure, Passive, Thresholds};

/// What is known and counted of a backend, kept over reloads.
#[derive(Debug)]
pub struct BackendState {
    /// The pool's name.
    pub pool: Arc<str>,
    /// Where it is.
    pub address: Address,
    /// Its name, which a reload may change. Control writes, observe reads.
    name: Mutex<Arc<str>>,
    /// The beginning of time for `latency`.
    created: Instant,
    /// Of connects and first bytes. Any worker writes, in pools that balance by it.
    latency: Latency,
    /// What real connections have met. Workers report, control draws conclusions.
    passive: Passive,
    /// Ejections. Control writes.
    ejections: AtomicU64,
    /// Where its word is: sessions and attempts, its state, and how much it is to get.
    seat: Seat,
    /// The weight that the operator has given it; [`CONFIGURED`] is the configuration's. Control
    /// writes and reads, when it builds tables.
    weight: AtomicU32,
    /// Wakes whoever keeps connections ready to it. Control notifies, after the change.
    changed: Notify,
    /// What it has in common with the backends of its pool.
    shared: Arc<Shared>,
    /// Checks that passed and failed. Control writes.
    checks: [AtomicU64; 2],
    /// The latest check. Control writes, observe reads; never on the data path.
    last_check: Mutex<Option<CheckReport>>,
    shards: Sharded<Shard>,
}

/// No weight.
const CONFIGURED: u32 = u32::MAX;

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
    /// Times that it was ejected.
    pub ejections: u64,
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
            latency: Latency::default(),
            passive: Passive::default(),
            ejections: AtomicU64::new(0),
            seat: pool.shared().board.seat(state),
            weight: AtomicU32::new(CONFIGURED),
            changed: Notify::new(),
            shared: pool.shared().clone(),
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

    /// Where its word is.
    pub fn seat(&self) -> &Seat {
        &self.seat
    }

    /// What picks see of it.
    pub fn standing(&self) -> Standing {
        self.seat.word().get()
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.standing().state()
    }

    /// Sets its state. Control only.
    pub fn set_state(&self, state: State) {
        self.seat.word().set_state(state);
        self.changed();
    }

    /// What the operator wants of it.
    pub fn admin(&self) -> AdminState {
        self.standing().admin()
    }

    /// Sets what the operator wants of it. From then on no lease is given unless it is ready.
    /// Control only.
    pub fn set_admin(&self, admin: AdminState) {
        self.seat.word().set_admin(admin);
        self.changed();
    }

    /// Waits until it may have become another answer whether connections are to be kept ready to
    /// it; no change after this call is missed.
    pub fn change(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Wakes whoever waits for a change. Control only.
    pub fn changed(&self) {
        self.changed.notify_waiters();
    }

    /// The weight that the operator has given it; `None` is the configuration's.
    pub fn weight(&self) -> Option<u16> {
        u16::try_from(self.weight.load(Relaxed)).ok()
    }

    /// Gives it another weight than the configuration's, which counts in the tables that are built
    /// from then on. Control only.
    pub fn set_weight(&self, weight: Option<u16>) {
        self.weight.store(weight.map_or(CONFIGURED, u32::from), Relaxed);
    }

    /// Sets how much of its share it gets, 1 to [`FULL_PULL`](crate::balance::FULL_PULL). Control only.
    pub fn set_pull(&self, pull: u8) {
        self.seat.word().set_pull(pull);
    }

    /// Sessions and attempts at the moment.
    pub fn active(&self) -> u32 {
        self.standing().active()
    }

    /// Nanoseconds it is expected to take, where `prior` is what the pool is.
    pub fn latency(&self, now: Instant, prior: u64) -> u64 {
        self.latency.estimate(now.saturating_duration_since(self.created), prior)
    }

    /// Notes how long a connect or a first byte took that came `now`.
    pub fn took(&self, now: Instant, took: Duration) {
        self.latency.record_peak(now.saturating_duration_since(self.created), took);
    }

    /// Sets the most sessions and attempts; `u32::MAX` is no bound. Control only.
    pub fn set_max_connections(&self, max: u32) {
        self.seat.word().set_max(max);
    }

    /// What real connections have met.
    pub fn passive(&self) -> &Passive {
        &self.passive
    }

    /// Counts an ejection. Control only.
    pub fn ejected(&self) {
        self.ejections.fetch_add(1, Relaxed);
    }

    /// Takes one place on this backend, if it and its pool have one. The counts are never above
    /// the bounds, however many workers try at once.
    pub fn lease(self: &Arc<Self>) -> Result<Lease, Full> {
        if !self.shared.enter() {
            return Err(Full::Pool);
        }
        if !self.seat.word().enter() {
            self.shared.leave();
            return Err(Full::Backend);
        }
        Ok(Lease { backend: self.clone(), trial: RefCell::default() })
    }

    /// As [`BackendState::lease`], for a connection that tries whether it may be let back from an
    /// ejection; refused beyond the number of trials.
    pub fn lease_for_trial(self: &Arc<Self>) -> Result<Lease, Full> {
        let lease = self.lease()?;
        lease.trial.replace(Some(self.passive.trials.claim().ok_or(Full::Backend)?));
        Ok(lease)
    }

    /// As [`BackendState::lease`]; if the backend may be tried at the moment, by this connection.
    pub fn lease_trying(self: &Arc<Self>) -> Result<Lease, Full> {
        let lease = self.lease()?;
        lease.trial.replace(self.passive.trials.claim());
        Ok(lease)
    }

    /// Reports what a connection has met that holds no place; true if control should look.
    #[must_use = "control has to be told"]
    pub fn report(&self, outcome: Result<(), Failure>, thresholds: &Thresholds) -> bool {
        self.passive.recorder.record(outcome, thresholds)
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
            ejections: self.ejections.load(Relaxed),
        }
    }
}

/// One place on a backend, given back when dropped.
#[derive(Debug)]
pub struct Lease {
    backend: Arc<BackendState>,
    /// Until the outcome of a trial is known.
    trial: RefCell<Option<Claim>>,
}

impl Lease {
    /// The backend it is a place on.
    pub fn backend(&self) -> &Arc<BackendState> {
        &self.backend
    }

    /// Reports what the connection has met; true if control should look at the backend.
    #[must_use = "control has to be told"]
    pub fn report(&self, outcome: Result<(), Failure>, thresholds: &Thresholds) -> bool {
        let passive = &self.backend.passive;
        match (self.trial.take(), outcome) {
            (None, outcome) => self.backend.report(outcome, thresholds),
            (Some(claim), Ok(())) => passive.trials.succeeded(claim),
            (Some(claim), Err(failure)) => passive.trials.failed(claim, failure),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(claim) = self.trial.take() {
            self.backend.passive.trials.cancelled(claim);
        }
        // The pool first: who finds a place on the backend finds one in the pool.
        self.backend.shared.leave();
        self.backend.seat.word().leave();
        self.backend.shared.nudge();
    }
}

/// What has no place left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The backend.
    Backend,
    /// All of its pool.
    Pool,
}
