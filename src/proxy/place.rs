//! What a session holds of its pool: a place on a backend, and to whom it reports.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{HedgeAfter, Outlier};
use crate::health::outlier::{Failure, Thresholds};
use crate::snapshot::Pool;
use crate::state::{BackendState, Lease, PoolState, Process};

/// A place on a backend.
pub(super) struct Place {
    pub lease: Lease,
    pub pool: Arc<PoolState>,
    /// Whether the pool balances by latency.
    measures: bool,
    /// Whether the pool hedges by how long connects take.
    times_connects: bool,
    /// While it is not known yet whether the backend has done well by this connection; boxed,
    /// since most pools look no further than to the connect.
    pending: Cell<Option<Box<Thresholds>>>,
}

impl Place {
    pub fn new(lease: Lease, pool: &Pool) -> Self {
        Place {
            lease,
            pool: pool.state.clone(),
            measures: pool.spec.policy.measures(),
            times_connects: pool.connect.hedge_after == HedgeAfter::Auto,
            pending: Cell::default(),
        }
    }

    /// The backend has accepted the connection, `now`.
    pub fn connected(
        &self,
        now: Instant,
        took: Duration,
        outlier: Option<&Outlier>,
        process: &Process,
    ) {
        self.took(now, took);
        if self.times_connects {
            self.pool.connect_times().record(took);
        }
        match outlier {
            Some(outlier) if outlier.early_close => {
                self.pending.set(Some(Box::new(outlier.thresholds)));
            }
            Some(outlier) => self.tell(Ok(()), &outlier.thresholds, process),
            None => {}
        }
    }

    /// It got a connection that had been kept ready. How long that had taken and that it went well
    /// was told at the time: see [`connected_ahead`].
    pub fn got_ready(&self, outlier: Option<&Outlier>) {
        if let Some(outlier) = outlier.filter(|outlier| outlier.early_close) {
            self.pending.set(Some(Box::new(outlier.thresholds)));
        }
    }

    /// It is a flow's, whose backend has not done well by it before it answers.
    pub fn awaits_answer(&self, outlier: Option<&Outlier>) {
        self.pending.set(outlier.map(|outlier| Box::new(outlier.thresholds)));
    }

    /// The attempt has failed, or taken too long.
    pub fn failed(&self, failure: Failure, outlier: Option<&Outlier>, process: &Process) {
        if let Some(outlier) = outlier {
            self.tell(Err(failure), &outlier.thresholds, process);
        }
    }

    /// The backend's first byte came `now`, or it did not send one before it ended the connection
    /// although the client had sent something.
    pub fn answered(&self, answer: Result<(), Failure>, process: &Process) {
        if let Some(thresholds) = self.pending.take() {
            self.tell(answer, &thresholds, process);
        }
    }

    /// Tells a policy that balances by latency how long something took that came `now`.
    pub fn took(&self, now: Instant, took: Duration) {
        if self.measures {
            self.lease.backend().took(now, took);
            self.pool.took(now, took);
        }
    }

    fn tell(&self, outcome: Result<(), Failure>, thresholds: &Thresholds, process: &Process) {
        if self.lease.report(outcome, thresholds) {
            alarm(self.lease.backend(), process);
        }
    }
}

/// A connection to `backend` was established, `now`, for a session to come.
pub(super) fn connected_ahead(
    pool: &Pool,
    backend: &Arc<BackendState>,
    now: Instant,
    took: Duration,
    process: &Process,
) {
    if pool.spec.policy.measures() {
        backend.took(now, took);
        pool.state.took(now, took);
    }
    if pool.connect.hedge_after == HedgeAfter::Auto {
        pool.state.connect_times().record(took);
    }
    if pool.outlier.is_some_and(|outlier| !outlier.early_close) {
        met_ahead(pool, backend, Ok(()), process);
    }
}

/// What a connection to `backend` has met that no session has asked for.
pub(super) fn met_ahead(
    pool: &Pool,
    backend: &Arc<BackendState>,
    outcome: Result<(), Failure>,
    process: &Process,
) {
    if let Some(outlier) = &pool.outlier
        && backend.report(outcome, &outlier.thresholds)
    {
        alarm(backend, process);
    }
}

fn alarm(backend: &Arc<BackendState>, process: &Process) {
    // While control has not caught up it has been told enough.
    let _full = process.alarms.try_send(backend.clone());
}
