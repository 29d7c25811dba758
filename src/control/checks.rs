//! Active health checks: one probe an address for the whole process, whatever the number of
//! workers, and of pools that check it in the same way. What one check does is in
//! [`probe`](super::probe).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ahash::{AHashMap, AHashSet};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::probe::{Ending, Target, TlsClient, TlsClients};
use super::watch::{Watch, is_decided};
use crate::address::Address;
use crate::config::{Config, HealthCheck};
use crate::health::Schedule;
use crate::limits::{CHECKS_CLOSING, CHECKS_DESCRIPTORS_SHARE, CHECKS_IN_FLIGHT};
use crate::snapshot::{Pool, Snapshot};
use crate::state::{AdminState, BackendState, CheckReport};
use crate::sys;

/// All checks of the process.
#[derive(Debug)]
pub struct Checks {
    probes: AHashMap<ProbeKey, Probe>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    watch: Arc<Watch>,
    in_flight: Semaphore,
    closing: Arc<Semaphore>,
    /// Wakes whoever waits for first results.
    reported: Notify,
}

/// What makes two checks the same probe. Rise and fall are each pool's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ProbeKey {
    target: Target,
    interval: Duration,
    fast_interval: Duration,
    timeout: Duration,
}

/// A running probe. When this is dropped the check that is under way is the last one: it comes to
/// its clean end, and is about nobody.
#[derive(Debug)]
struct Probe {
    watched: Arc<Mutex<Watched>>,
    _running: oneshot::Sender<()>,
}

/// What a reload may change of a probe that goes on.
#[derive(Debug, Default)]
struct Watched {
    /// The backends that its results are about.
    subjects: Vec<Arc<BackendState>>,
    /// Of the first pool's reading of the same files.
    tls: Option<TlsClient>,
}

/// The TLS clients of a configuration's checks, one entry a pool.
#[derive(Debug)]
pub struct Clients(Vec<Option<TlsClient>>);

impl Clients {
    /// Reads what the checks of `config` need to shake hands.
    ///
    /// # Errors
    ///
    /// One line for each pool whose checks cannot.
    pub fn prepare(config: &Config) -> Result<Clients, Vec<String>> {
        let (mut known, mut clients, mut errors) = (TlsClients::default(), Vec::new(), Vec::new());
        for pool in &config.pools {
            match pool.health.as_ref().map(|health| known.client(&health.probe)).transpose() {
                Ok(client) => clients.push(client.flatten()),
                Err(fault) => errors.push(format!("pools.{}.health.{fault}", pool.name)),
            }
        }
        if errors.is_empty() { Ok(Clients(clients)) } else { Err(errors) }
    }
}

/// How many checks may be under way at once, with the descriptors that the process may have.
pub(super) fn most_in_flight() -> usize {
    let share = sys::process::descriptor_limit() / CHECKS_DESCRIPTORS_SHARE;
    usize::try_from(share).map_or(CHECKS_IN_FLIGHT, |share| share.clamp(1, CHECKS_IN_FLIGHT))
}

impl Checks {
    /// None yet; `watch` gets the results.
    pub fn new(watch: Arc<Watch>) -> Self {
        let in_flight = Semaphore::new(most_in_flight());
        let closing = Arc::new(Semaphore::new(CHECKS_CLOSING));
        let shared = Shared { watch, in_flight, closing, reported: Notify::new() };
        Checks { probes: AHashMap::new(), shared: Arc::new(shared) }
    }

    /// Checks what `snapshot` says as well, which is to be in force soon. Until it is, what is in
    /// force goes on being checked.
    pub fn add(&mut self, snapshot: &Snapshot, clients: &Clients) {
        let Wanted { mut probes, urgent } = self.wanted(snapshot, clients);
        self.shared.watch.add(snapshot);
        for (key, watched) in &mut probes {
            let Some(probe) = self.probes.get(key) else { continue };
            for subject in &lock(&probe.watched).subjects {
                if !watched.subjects.iter().any(|known| Arc::ptr_eq(known, subject)) {
                    watched.subjects.push(subject.clone());
                }
            }
        }
        self.run_all(probes, &urgent);
    }

    /// Checks what `snapshot` says from now on, with the `clients` of its configuration, and
    /// nothing else. What is known of a backend stays known.
    pub fn follow(&mut self, snapshot: &Snapshot, clients: &Clients) {
        let Wanted { probes, urgent } = self.wanted(snapshot, clients);
        self.shared.watch.follow(snapshot);
        self.probes.retain(|key, _| probes.contains_key(key));
        self.run_all(probes, &urgent);
    }

    fn wanted(&self, snapshot: &Snapshot, clients: &Clients) -> Wanted {
        let mut wanted = Wanted::default();
        for (pool, client) in snapshot.pools.iter().zip(&clients.0) {
            let Some(health) = &pool.health else { continue };
            let probe = Arc::new(health.probe.clone());
            for backend in &pool.backends {
                let state = &backend.state;
                if state.admin() == AdminState::Maintenance {
                    continue;
                }
                let address = checked_address(&state.address, health);
                let key = ProbeKey {
                    target: Target { address, probe: probe.clone() },
                    interval: health.interval,
                    fast_interval: health.fast_interval,
                    timeout: health.timeout,
                };
                if !self.shared.watch.knows(state) {
                    wanted.urgent.insert(key.clone());
                }
                let watched = wanted.probes.entry(key).or_default();
                watched.subjects.push(state.clone());
                watched.tls = watched.tls.take().or_else(|| client.clone());
            }
        }
        wanted
    }

    fn run_all(&mut self, wanted: AHashMap<ProbeKey, Watched>, urgent: &AHashSet<ProbeKey>) {
        let count = wanted.len();
        for (index, (key, watched)) in wanted.into_iter().enumerate() {
            if let Some(probe) = self.probes.get(&key).filter(|_| !urgent.contains(&key)) {
                *lock(&probe.watched) = watched;
                continue;
            }
            let (interval, fast) = (key.interval, key.fast_interval);
            let schedule = Schedule::new(interval, fast, index, count, Duration::ZERO);
            let watched = Arc::new(Mutex::new(watched));
            let (_running, stopped) = oneshot::channel();
            let shared = self.shared.clone();
            tokio::spawn(run(key.clone(), schedule, watched.clone(), stopped, shared));
            self.probes.insert(key, Probe { watched, _running });
        }
    }

    /// Waits until every checked backend of `pools` has had a result, or until `patience` is
    /// over.
    pub fn first_round(
        &self,
        pools: Vec<Arc<Pool>>,
        patience: Duration,
    ) -> impl Future<Output = ()> + use<> {
        let (shared, deadline) = (self.shared.clone(), Instant::now() + patience);
        async move {
            loop {
                let reported = shared.reported.notified();
                let known = pools.iter().flat_map(|pool| &pool.backends);
                if known.into_iter().all(|backend| is_decided(&backend.state)) {
                    return;
                }
                if timeout_at(deadline, reported).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The probes of a configuration.
#[derive(Default)]
struct Wanted {
    probes: AHashMap<ProbeKey, Watched>,
    /// About a backend that is new here, which must not wait for its next turn.
    urgent: AHashSet<ProbeKey>,
}

/// Where a backend is checked. A check with a port of its own has no backend without ports.
fn checked_address(backend: &Address, health: &HealthCheck) -> Address {
    match (health.port, backend.ip()) {
        (Some(port), Some(ip)) => Address::Ip(SocketAddr::new(ip.ip(), port.get())),
        _ => backend.clone(),
    }
}

fn lock(watched: &Mutex<Watched>) -> std::sync::MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn run(
    key: ProbeKey,
    mut schedule: Schedule,
    watched: Arc<Mutex<Watched>>,
    mut stopped: oneshot::Receiver<()>,
    shared: Arc<Shared>,
) {
    let origin = Instant::now();
    let mut rng = fastrand::Rng::new();
    loop {
        let turn = async {
            sleep_until(origin + schedule.due()).await;
            shared.in_flight.acquire().await
        };
        let permit = tokio::select! {
            permit = turn => permit,
            _ = &mut stopped => return,
        };
        let Ok(permit) = permit else { return };
        let begun = Instant::now();
        let tls = lock(&watched).tls.clone();
        let probed = key.target.check(tls.as_ref(), key.timeout).await;
        drop(permit);
        let ended = Instant::now();
        let report =
            CheckReport { ended: ended.into(), took: ended - begun, result: probed.result };
        let subjects = lock(&watched).subjects.clone();
        let take = |backend: &Arc<_>| shared.watch.on_check(backend, begun.into_std(), &report);
        let in_doubt = subjects.iter().map(take).fold(false, |any, doubt| any | doubt);
        shared.reported.notify_waiters();
        schedule.advance(begun - origin, in_doubt, &mut rng);
        if let Some(ending) = probed.ending {
            end(ending, &shared.closing);
        }
    }
}

/// Closes beside the next check, which must not wait for a backend that does not close.
fn end(ending: Ending, closing: &Arc<Semaphore>) {
    let Ok(permit) = closing.clone().try_acquire_owned() else { return };
    tokio::spawn(async move {
        ending.close().await;
        drop(permit);
    });
}
