//! Active health checks: one probe an address for the whole process, whatever the number of
//! workers, and of pools that check it in the same way.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ahash::{AHashMap, AHashSet};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::address::Address;
use crate::config::HealthCheck;
use crate::health::{Check, Schedule, State};
use crate::limits::{CHECKS_CLOSING, CHECKS_IN_FLIGHT};
use crate::net::connect::connect;
use crate::net::{Socket, close};
use crate::snapshot::{Pool, Snapshot};
use crate::state::{AdminState, BackendState, CheckReport, ConnectError};
use crate::sys::socket::TcpOptions;

/// All checks of the process.
#[derive(Debug)]
pub struct Checks {
    probes: AHashMap<ProbeKey, Probe>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    in_flight: Semaphore,
    closing: Arc<Semaphore>,
    /// Wakes whoever waits for first results.
    reported: Notify,
}

/// What makes two checks the same probe. Rise and fall are each pool's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ProbeKey {
    address: Address,
    interval: Duration,
    timeout: Duration,
}

/// A running probe, ended when dropped.
#[derive(Debug)]
struct Probe {
    subjects: Arc<Mutex<Vec<Subject>>>,
    task: JoinHandle<()>,
}

/// One backend that a probe's results are about.
#[derive(Debug)]
struct Subject {
    pool: Arc<Pool>,
    backend: Arc<BackendState>,
    check: Check,
}

impl Default for Checks {
    fn default() -> Self {
        let in_flight = Semaphore::new(CHECKS_IN_FLIGHT);
        let closing = Arc::new(Semaphore::new(CHECKS_CLOSING));
        Checks {
            probes: AHashMap::new(),
            shared: Arc::new(Shared { in_flight, closing, reported: Notify::new() }),
        }
    }
}

impl Checks {
    /// Checks what `snapshot` says from now on. What is known of a backend stays known.
    pub fn follow(&mut self, snapshot: &Snapshot) {
        let mut before = self.take_machines();
        let mut wanted: AHashMap<ProbeKey, Vec<Subject>> = AHashMap::new();
        // Probes about a backend that is new here, which must not wait for their next turn.
        let mut urgent: AHashSet<ProbeKey> = AHashSet::new();
        for pool in &snapshot.pools {
            let Some(HealthCheck { interval, timeout, rise, fall }) = pool.health else { continue };
            for state in pool.backends.iter().map(|backend| &backend.state) {
                if state.admin() == AdminState::Maintenance {
                    continue;
                }
                let known = before.remove(&(Arc::as_ptr(state).addr()));
                let key = ProbeKey { address: state.address.clone(), interval, timeout };
                if known.is_none() && state.state() == State::Unknown {
                    urgent.insert(key.clone());
                }
                let mut check =
                    known.unwrap_or_else(|| Check::with_state(state.state(), rise, fall));
                check.set_thresholds(rise, fall);
                let subject = Subject { pool: pool.clone(), backend: state.clone(), check };
                wanted.entry(key).or_default().push(subject);
            }
        }
        self.probes.retain(|key, _| wanted.contains_key(key));
        let count = wanted.len();
        for (index, (key, subjects)) in wanted.into_iter().enumerate() {
            if let Some(probe) = self.probes.get(&key).filter(|_| !urgent.contains(&key)) {
                *lock(&probe.subjects) = subjects;
                continue;
            }
            let subjects = Arc::new(Mutex::new(subjects));
            let schedule = Schedule::new(key.interval, index, count, Duration::ZERO);
            let task = run(key.clone(), schedule, subjects.clone(), self.shared.clone());
            self.probes.insert(key, Probe { subjects, task: tokio::spawn(task) });
        }
    }

    /// Waits until every checked backend of `pools` has had a result, or until `patience` is
    /// over.
    pub async fn first_round(&self, pools: &[Arc<Pool>], patience: Duration) {
        let deadline = Instant::now() + patience;
        loop {
            let reported = self.shared.reported.notified();
            let known = pools.iter().flat_map(|pool| &pool.backends);
            if known.into_iter().all(|backend| is_decided(&backend.state)) {
                return;
            }
            if timeout_at(deadline, reported).await.is_err() {
                return;
            }
        }
    }

    /// Takes what is known away from the running probes. A result that comes before they get it
    /// back is about nobody: it cannot change one copy of what is known and not the other.
    fn take_machines(&mut self) -> AHashMap<usize, Check> {
        let mut machines = AHashMap::new();
        for probe in self.probes.values() {
            for subject in std::mem::take(&mut *lock(&probe.subjects)) {
                machines.insert(Arc::as_ptr(&subject.backend).addr(), subject.check);
            }
        }
        machines
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(subjects: &Mutex<Vec<Subject>>) -> std::sync::MutexGuard<'_, Vec<Subject>> {
    subjects.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn run(
    key: ProbeKey,
    mut schedule: Schedule,
    subjects: Arc<Mutex<Vec<Subject>>>,
    shared: Arc<Shared>,
) {
    let origin = Instant::now();
    let mut rng = fastrand::Rng::new();
    loop {
        sleep_until(origin + schedule.due()).await;
        let Ok(permit) = shared.in_flight.acquire().await else { return };
        schedule.advance(origin.elapsed(), &mut rng);
        let begun = Instant::now();
        let result = probe(&key.address, key.timeout).await;
        drop(permit);
        let result = result.map(|socket| end(socket, &shared.closing));
        let report = CheckReport {
            time: SystemTime::now(),
            took: begun.elapsed(),
            result: result.map_err(|error| error.reason),
        };
        // Our own shortage is reported, but says nothing of the backend.
        let verdict = !result.is_err_and(|error| error.ours);
        for subject in lock(&subjects).iter_mut() {
            subject.backend.checked(report.clone());
            if verdict {
                take_verdict(subject, &report);
            }
        }
        shared.reported.notify_waiters();
    }
}

async fn probe(address: &Address, timeout: Duration) -> Result<Socket, ConnectError> {
    let options = TcpOptions { keepalive: None, user_timeout: None };
    connect(address, &options, timeout).await
}

/// Closes by FIN, which a backend sees as a client that had second thoughts. One that speaks first
/// would be reset if its greeting was not waited for.
fn end(socket: Socket, closing: &Arc<Semaphore>) {
    let Ok(permit) = closing.clone().try_acquire_owned() else { return };
    tokio::spawn(async move {
        close::by_fin(socket).await;
        drop(permit);
    });
}

fn take_verdict(subject: &mut Subject, report: &CheckReport) {
    let Some(state) = subject.check.on_result(report.result.is_ok()) else { return };
    subject.pool.set_state(&subject.backend, state);
    let (pool, backend) = (&subject.pool, subject.backend.name());
    let ms = (report.took.as_secs_f64() * 1e6).round() / 1e3;
    match report.result {
        Ok(()) => tracing::info!(pool = %pool.name, %backend, %state, ms, "backend changed"),
        Err(failure) => {
            let reason = failure.name();
            tracing::warn!(pool = %pool.name, %backend, %state, reason, ms, "backend changed");
        }
    }
    consider_panic(pool);
}

/// As [`update_panic`], but while first results are still to come, what is not up yet is no reason
/// to panic: the last of them decides, or the end of the first round.
pub(super) fn consider_panic(pool: &Pool) {
    if pool.state.panic() || pool.backends.iter().all(|b| is_decided(&b.state)) {
        update_panic(pool);
    }
}

/// Whether a first result is not to be waited for any more, or never to come.
fn is_decided(backend: &BackendState) -> bool {
    backend.state() != State::Unknown || backend.admin() == AdminState::Maintenance
}

/// Sets or ends panic as the states of the pool's backends ask for.
pub(super) fn update_panic(pool: &Pool) {
    let panic = pool.should_panic();
    if !pool.state.set_panic(panic) {
        return;
    }
    if panic {
        tracing::error!(pool = %pool.name, "panic: the state of its backends is ignored");
    } else {
        tracing::info!(pool = %pool.name, "panic is over");
    }
}
