//! Picking a backend and connecting to it: up to `connect.attempts` different ones, at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::account::Account;
use super::worker::Worker;
use crate::balance::key::Tuple;
use crate::net::Socket;
use crate::net::connect::connect;
use crate::snapshot::{Pick, Pool, Tried};
use crate::state::{ConnectError, ConnectFailure, Lease, PoolState, Termination};
use crate::sys::socket::TcpOptions;

/// An established connection to a backend.
pub(super) struct Connected {
    pub socket: Socket,
    pub place: Place,
}

/// What a session holds of its pool.
pub(super) struct Place {
    pub lease: Lease,
    pub pool: Arc<PoolState>,
    /// Whether the pool balances by latency.
    measures: bool,
}

impl Place {
    /// Tells a policy that balances by latency how long something took that came `now`.
    pub fn took(&self, now: Instant, took: Duration) {
        if self.measures {
            self.lease.backend().took(now, took);
            self.pool.took(now, took);
        }
    }
}

/// Connects to a backend of `pool`.
///
/// # Errors
///
/// [`Termination::NoBackend`] if nothing could be picked at all, [`Termination::Overload`] if the
/// pool has as many connections as it may, [`Termination::ConnectFailed`] if every attempt failed.
pub(super) async fn connect_any(
    pool: &Pool,
    connection: &Tuple<'_>,
    options: &TcpOptions,
    account: &mut Account,
) -> Result<Connected, Termination> {
    let worker = account.worker().clone();
    let begun = Instant::now();
    let mut tried = Tried::default();
    while tried.count() < pool.connect.attempts {
        let picked = match place(pool, connection, &tried, &worker).await {
            // No other has room: what has failed decides.
            Pick::PoolFull if tried.count() == 0 => return Err(Termination::Overload),
            picked => picked,
        };
        let Pick::Backend(index, lease) = picked else { break };
        if tried.count() > 0 {
            pool.state.retried(worker.index);
        }
        let backend = &pool.backends[index];
        let attempt_begun = Instant::now();
        let result = connect(&backend.state.address, options, pool.connect.timeout).await;
        let took = attempt_begun.elapsed();
        account.attempted(&backend.name, result.as_ref().map(|_| ()).map_err(|e| e.reason), took);
        match result {
            Ok(socket) => {
                backend.state.connected(worker.index);
                pool.state.connect_seconds.record(worker.index, took);
                account.connected(begun.elapsed());
                let measures = pool.spec.policy.measures();
                let place = Place { lease, pool: pool.state.clone(), measures };
                place.took(attempt_begun + took, took);
                return Ok(Connected { socket, place });
            }
            Err(error) => {
                backend.state.connect_failed(worker.index, error.reason);
                tracing::debug!(
                    pool = %pool.name, backend = %backend.name, reason = error.reason.name(),
                    ms = millis(took), "connect failed"
                );
                tried.add(index);
                if hopeless(error) {
                    break;
                }
            }
        }
    }
    if tried.count() > 0 {
        return Err(Termination::ConnectFailed);
    }
    pool.state.no_backend(worker.index);
    Err(Termination::NoBackend)
}

/// A place on a backend; waited for if all are full and the pool has a queue. Whoever finds others
/// waiting waits behind them. A connection that has failed somewhere already does not wait: it has
/// had its turn.
async fn place(pool: &Pool, connection: &Tuple<'_>, tried: &Tried, worker: &Worker) -> Pick {
    let pick = || {
        let hash = || pool.spec.key.hash(connection, pool.hash_seed);
        worker.with_rng(|rng| pool.pick(tried, hash, rng))
    };
    let queue = pool.state.queue();
    let queues = pool.queue.max > 0 && tried.count() == 0;
    if !queues || queue.waiting() == 0 {
        let picked = pick();
        if !queues || !matches!(picked, Pick::BackendsFull) {
            return picked;
        }
    }
    let Some(turn) = queue.join(pool.queue.max) else { return Pick::BackendsFull };
    let wait = async {
        loop {
            if turn.is_first() {
                match pick() {
                    Pick::BackendsFull => {}
                    picked => return picked,
                }
            }
            turn.news().await;
        }
    };
    tokio::time::timeout(pool.queue.timeout, wait).await.unwrap_or(Pick::BackendsFull)
}

/// A shortage of our own descriptors or memory meets every backend alike: trying the others only
/// makes it worse. Local ports are short towards one address only, so another may do.
fn hopeless(error: ConnectError) -> bool {
    error.ours && error.reason != ConnectFailure::LocalPorts
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
