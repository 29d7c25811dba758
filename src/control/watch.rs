//! What control knows of each backend, from checks and from real connections, and what follows:
//! its state, the panic of its pool, and how much it gets while it warms up.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ahash::AHashMap;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep_until;

use crate::balance::FULL_PULL;
use crate::config::Probe;
use crate::health::outlier::{Failures, has_room};
use crate::health::standing::{Change, CheckResult, Reason};
use crate::health::{Check, Standing, State, slow_start};
use crate::snapshot::{Pool, Snapshot};
use crate::state::{AdminState, BackendState, CheckReport, Process};

/// The only writer of backends' states.
#[derive(Debug)]
pub struct Watch {
    process: Arc<Process>,
    inner: Mutex<Inner>,
    /// Wakes [`Watch::run`] when something is due earlier than it knew.
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// By the address of their state in memory.
    entries: AHashMap<usize, Entry>,
    /// When each is to be looked at next.
    agenda: BTreeSet<(Duration, usize)>,
}

/// A backend of the newest configuration.
#[derive(Debug)]
struct Entry {
    pool: Arc<Pool>,
    backend: Arc<BackendState>,
    standing: Standing,
    /// Since when it warms up.
    warms_since: Option<Duration>,
    /// Whether a few connections may try it.
    tried: bool,
    /// Its place on the agenda.
    due: Option<Duration>,
}

impl Watch {
    /// Of nothing yet.
    pub fn new(process: Arc<Process>) -> Self {
        Watch { process, inner: Mutex::default(), earlier: Notify::new() }
    }

    /// Watches the backends of `snapshot` as well, which is to be in force soon.
    pub fn add(&self, snapshot: &Snapshot) {
        let now = self.now();
        let mut inner = self.lock();
        for pool in &snapshot.pools {
            for backend in &pool.backends {
                let new = !inner.entries.contains_key(&key(&backend.state));
                if new && !is_left_alone(pool, &backend.state) {
                    if pool.health.is_some() {
                        // One that was removed and kept by old sessions is checked like a new one.
                        backend.state.set_state(State::Unknown);
                    }
                    let entry = Entry::new(pool, &backend.state);
                    inner.put(now, entry);
                }
            }
        }
    }

    /// Watches the backends of `snapshot` from now on, and no others. What is known of one stays
    /// known.
    pub fn follow(&self, snapshot: &Snapshot) {
        let now = self.now();
        let mut inner = self.lock();
        let mut before = std::mem::take(&mut inner.entries);
        inner.agenda.clear();
        for pool in &snapshot.pools {
            for backend in &pool.backends {
                if is_left_alone(pool, &backend.state) {
                    continue;
                }
                let known = before.remove(&key(&backend.state));
                let mut entry = known.unwrap_or_else(|| Entry::new(pool, &backend.state));
                entry.pool = pool.clone();
                entry.due = None;
                let change = entry.configure(now);
                if let Some(change) = change {
                    self.publish(now, &mut entry, change, None);
                }
                if entry.pool.slow_start.is_none() {
                    entry.cool();
                }
                inner.put(now, entry);
            }
            count_warming(pool);
            count_tried(pool);
        }
        before.values_mut().for_each(Entry::cool);
        drop(inner);
        self.earlier.notify_one();
    }

    /// Whether it is one of those that are watched.
    pub fn knows(&self, backend: &Arc<BackendState>) -> bool {
        self.lock().entries.contains_key(&key(backend))
    }

    /// Takes a check of a backend that began at `began`; whether its state is in doubt now. Of
    /// one that is not watched any more there is no doubt.
    pub fn on_check(
        &self,
        backend: &Arc<BackendState>,
        began: Instant,
        report: &CheckReport,
    ) -> bool {
        backend.checked(report.clone());
        let now = self.now();
        let mut inner = self.lock();
        let Some(mut entry) = inner.take(key(backend)) else { return false };
        // Our own shortage is reported, but says nothing of the backend.
        if !report.result.is_err_and(|failure| failure.is_ours()) {
            let began = began.saturating_duration_since(self.process.started);
            let finds = entry.pool.health.as_ref().map_or(Failures::NONE, |h| finds(&h.probe));
            let result = CheckResult { began, passed: report.result.is_ok(), finds };
            let change = entry.standing.on_check(now, result, entry.backend.passive());
            if let Some(change) = change {
                self.publish(now, &mut entry, change, Some(report));
            }
        }
        let in_doubt = entry.standing.in_doubt();
        if inner.put(now, entry) {
            self.earlier.notify_one();
        }
        in_doubt
    }

    /// Looks at backends when workers ask for it and when their time has come, until nobody can
    /// ask any more.
    pub async fn run(self: Arc<Self>, mut alarms: mpsc::Receiver<Arc<BackendState>>) {
        loop {
            let due = self.lock().agenda.first().map(|&(due, _)| self.process.started + due);
            let wait = async {
                match due {
                    Some(due) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                alarm = alarms.recv() => match alarm {
                    Some(backend) => self.look(key(&backend)),
                    None => return,
                },
                () = self.earlier.notified() => {}
                () = wait => self.look_at_due(),
            }
        }
    }

    fn look_at_due(&self) {
        let now = self.now();
        let due: Vec<usize> = {
            let inner = self.lock();
            let due = inner.agenda.iter().take_while(|&&(due, _)| due <= now);
            due.map(|&(_, key)| key).collect()
        };
        due.into_iter().for_each(|key| self.look(key));
    }

    fn look(&self, key: usize) {
        let now = self.now();
        let mut inner = self.lock();
        let Some(mut entry) = inner.take(key) else { return };
        if let Some(outlier) = entry.pool.outlier {
            let pool = entry.pool.clone();
            let others = || {
                let other = |b: &crate::snapshot::Backend| {
                    let entry = inner.entries.get(&self::key(&b.state))?;
                    let in_force = entry.standing.ejection().in_force();
                    // What the operator has taken out is no help.
                    let weight = if b.state.standing().is_ready() { b.weight } else { 0 };
                    Some((weight, entry.standing.state(), in_force))
                };
                has_room(outlier.max_ejected_percent, pool.backends.iter().filter_map(other))
            };
            let passive = entry.backend.clone();
            let change = entry.standing.look(now, &outlier.terms, passive.passive(), others);
            if let Some(change) = change {
                self.publish(now, &mut entry, change, None);
            }
        }
        entry.warm(now);
        inner.put(now, entry);
    }

    /// Makes a change known: to picks, to the log, to whoever counts.
    fn publish(
        &self,
        now: Duration,
        entry: &mut Entry,
        change: Change,
        report: Option<&CheckReport>,
    ) {
        log(entry, &change, report);
        if let Reason::Ejected { .. } = change.reason {
            entry.backend.ejected();
        }
        if change.from == change.to {
            return;
        }
        // Who comes up as the process starts does not come back from anywhere.
        let warms = change.to == State::Up && self.process.serving.load(Relaxed);
        if warms && entry.pool.slow_start.is_some() {
            entry.warms_since = Some(now);
            entry.warm(now);
        } else {
            entry.cool();
        }
        // Panic begins before a state that asks for it is seen, and ends after one that does not.
        if change.from == State::Up {
            expect(&entry.pool, &entry.backend, Some(change.to));
        }
        entry.pool.set_state(&entry.backend, change.to);
        consider_panic(&entry.pool);
    }

    fn now(&self) -> Duration {
        self.process.started.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Takes one out, to be put back.
    fn take(&mut self, key: usize) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        if let Some(due) = entry.due {
            self.agenda.remove(&(due, key));
        }
        Some(entry)
    }

    /// Puts one back; true if it is due before all others.
    fn put(&mut self, now: Duration, mut entry: Entry) -> bool {
        let key = key(&entry.backend);
        let tried = entry.backend.passive().trials.is_open();
        if tried != entry.tried {
            entry.tried = tried;
            count_tried(&entry.pool);
        }
        entry.due = [entry.standing.due(), entry.next_step(now)].into_iter().flatten().min();
        let first = self.agenda.first().map(|&(due, _)| due);
        if let Some(due) = entry.due {
            self.agenda.insert((due, key));
        }
        let earlier = entry.due.is_some_and(|due| first.is_none_or(|first| due < first));
        self.entries.insert(key, entry);
        earlier
    }
}

impl Entry {
    fn new(pool: &Arc<Pool>, backend: &Arc<BackendState>) -> Self {
        let (rise, fall) = pool.health.as_ref().map_or((1, 1), |h| (h.rise, h.fall));
        let check = Check::with_state(backend.state(), rise, fall);
        let standing = Standing::new(check);
        let (pool, backend) = (pool.clone(), backend.clone());
        Entry { pool, backend, standing, warms_since: None, tried: false, due: None }
    }

    /// Follows what its pool says now.
    fn configure(&mut self, now: Duration) -> Option<Change> {
        let passive = self.backend.passive();
        let pardoned = match self.pool.outlier {
            None => self.standing.pardon(now, passive),
            Some(_) => None,
        };
        let checked = match &self.pool.health {
            Some(health) => {
                self.standing.set_thresholds(health.rise, health.fall);
                None
            }
            // What is not checked counts as up.
            None => self.standing.set_check(now, Check::with_state(State::Up, 1, 1), passive),
        };
        let from = pardoned.or(checked)?.from;
        checked.or(pardoned).map(|change| Change { from, ..change })
    }

    fn next_step(&self, now: Duration) -> Option<Duration> {
        let (since, ramp) = (self.warms_since?, self.pool.slow_start?);
        slow_start::next_step(now.saturating_sub(since), ramp).map(|step| since + step)
    }

    /// Gives it the pull of this moment.
    fn warm(&mut self, now: Duration) {
        let (Some(since), Some(ramp)) = (self.warms_since, self.pool.slow_start) else { return };
        let level = slow_start::level(now.saturating_sub(since), ramp);
        self.backend.set_pull(level * slow_start::PERCENT_PER_LEVEL);
        if level == slow_start::LEVELS {
            self.warms_since = None;
        }
        count_warming(&self.pool);
    }

    /// Gives it its full share, or none: it does not warm up.
    fn cool(&mut self) {
        if self.warms_since.take().is_some() {
            self.backend.set_pull(FULL_PULL);
            count_warming(&self.pool);
        }
    }
}

/// In maintenance nobody looks, and what was known says nothing afterwards.
fn is_left_alone(pool: &Pool, backend: &BackendState) -> bool {
    pool.health.is_some() && backend.admin() == AdminState::Maintenance
}

fn key(backend: &Arc<BackendState>) -> usize {
    Arc::as_ptr(backend).addr()
}

fn count_warming(pool: &Pool) {
    let warms = |b: &&crate::snapshot::Backend| b.state.standing().pull() < FULL_PULL;
    let count = pool.backends.iter().filter(warms).count();
    pool.state.set_warming(u32::try_from(count).unwrap_or(u32::MAX));
}

/// Picks look closer while a backend is to be tried that they would pass over.
fn count_tried(pool: &Pool) {
    let count = pool.backends.iter().filter(|b| b.state.passive().trials.is_open()).count();
    pool.state.set_trying(u32::try_from(count).unwrap_or(u32::MAX));
    // Somebody in line may be the one to try.
    pool.state.queue().nudge();
}

/// Failures of connections that a check of this kind would have found.
fn finds(probe: &Probe) -> Failures {
    match probe {
        Probe::Tls(_) | Probe::Http(_) => Failures::FOUND_BY_ANSWER,
        Probe::Tcp(exchange) if exchange.expect.is_some() => Failures::FOUND_BY_ANSWER,
        Probe::Tcp(_) => Failures::FOUND_BY_CONNECT,
        Probe::Udp(exchange) if exchange.expect.is_some() => Failures::FOUND_BY_ANSWER,
        Probe::Udp(_) => Failures::NONE,
    }
}

fn log(entry: &Entry, change: &Change, report: Option<&CheckReport>) {
    let (pool, backend, state) = (&entry.pool.name, entry.backend.name(), change.to);
    match (change.reason, report) {
        (Reason::Ejected { causes, in_a_row, lasts }, _) => {
            let seconds = lasts.as_secs_f64();
            tracing::warn!(%pool, %backend, %state, failures = %causes, in_a_row, seconds, "backend ejected");
        }
        (Reason::Checks, Some(CheckReport { took, result, .. })) => {
            let ms = (took.as_secs_f64() * 1e6).round() / 1e3;
            match result {
                Ok(()) => tracing::info!(%pool, %backend, %state, ms, "backend changed"),
                Err(failure) => {
                    let (reason, code) = (failure.name(), failure.code());
                    tracing::warn!(%pool, %backend, %state, reason, code, ms, "backend changed");
                }
            }
        }
        (reason, _) => {
            let why = match reason {
                Reason::Tried => "trial connections succeeded",
                Reason::Disproved => "a check passed that covers why it was ejected",
                Reason::Pardoned => "nothing is ejected here any more",
                Reason::Checks | Reason::Ejected { .. } => "it is not checked any more",
            };
            tracing::info!(%pool, %backend, %state, why, "backend changed");
        }
    }
}

/// As [`update_panic`], but while first results are still to come, what is not up yet is no reason
/// to panic: the last of them decides, or the end of the first round.
pub(super) fn consider_panic(pool: &Pool) {
    if pool.state.panic() || pool.backends.iter().all(|b| is_decided(&b.state)) {
        update_panic(pool);
    }
}

/// As [`consider_panic`], where a backend is about to have this state; `None`: to be taken out.
pub(super) fn expect(pool: &Pool, backend: &BackendState, state: Option<State>) {
    if pool.backends.iter().all(|b| is_decided(&b.state)) && pool.would_panic(backend, state) {
        put_panic(pool, true);
    }
}

/// Whether a first result is not to be waited for any more, or never to come.
pub(super) fn is_decided(backend: &BackendState) -> bool {
    backend.state() != State::Unknown || backend.admin() == AdminState::Maintenance
}

/// Sets or ends panic as the states of the pool's backends ask for.
pub(super) fn update_panic(pool: &Pool) {
    put_panic(pool, pool.should_panic());
}

fn put_panic(pool: &Pool, panic: bool) {
    if !pool.state.set_panic(panic) {
        return;
    }
    // Somebody in line may be let in by it.
    pool.state.queue().nudge();
    if panic {
        tracing::error!(pool = %pool.name, "panic: the state of its backends is ignored");
    } else {
        tracing::info!(pool = %pool.name, "panic is over");
    }
}
