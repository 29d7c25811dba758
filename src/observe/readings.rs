//! What a scrape reads, each thing once, so that the series made of it agree with each other.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ahash::{AHashMap, AHashSet};
use metrics::Label;
use rustix::process::{Resource, getrlimit};

use super::metrics::{Reading, label};
use crate::config::Protocol;
use crate::health::State;
use crate::snapshot::{self, Snapshot};
use crate::state::backend::BackendCounts;
use crate::state::listener::ListenerCounts;
use crate::state::{AdminState, BackendState, ListenerState, PoolState, Process, ReadyCounts};

/// A listener.
pub(super) struct Listener {
    name: Arc<str>,
    /// Of a UDP listener, as long as it is in the configuration, the flows that it may have.
    pub flows: Option<u32>,
    pub counts: ListenerCounts,
}

/// A backend.
pub(super) struct Backend {
    pool: Arc<str>,
    name: Arc<str>,
    pub state: State,
    pub admin: AdminState,
    /// `None` once it is out of the configuration.
    pub weight: Option<u16>,
    pub counts: BackendCounts,
}

/// A pool.
pub(super) struct Pool {
    name: Arc<str>,
    pub retries: u64,
    pub hedges: u64,
    pub replays: u64,
    pub budget_exhausted: u64,
    pub no_backend: u64,
    pub waiting: u32,
    pub panic: bool,
    /// `None` where none are kept, and once the pool is out of the configuration.
    pub ready: Option<ReadyCounts>,
    /// `None` where nothing is hashed, and once the pool is out of the configuration.
    pub digest: Option<u64>,
}

/// A worker.
pub(super) struct Worker {
    index: usize,
    pub active: u32,
    pub busy_permille: u32,
}

/// The process as pointsman sees itself.
pub(super) struct Whole {
    pub generation: u64,
    pub reloads: [u64; 2],
    pub last_reload_ok: bool,
    pub access_log_dropped: u64,
}

/// The process as the kernel sees it; what cannot be read is left out.
#[derive(Default)]
pub(super) struct Machine {
    pub cpu_seconds: Option<f64>,
    pub open_fds: Option<u64>,
    pub max_fds: Option<u64>,
    pub resident_bytes: Option<u64>,
    pub virtual_bytes: Option<u64>,
    pub start_seconds: Option<f64>,
    pub threads: Option<u64>,
}

pub(super) fn listeners(process: &Process, snapshot: &Snapshot) -> Vec<Listener> {
    let listeners = snapshot.listeners.iter().map(|entrance| &entrance.listener);
    let udp = listeners.filter(|listener| listener.protocol == Protocol::Udp);
    let udp: AHashMap<_, u32> =
        udp.map(|listener| (Arc::as_ptr(&listener.state), listener.limits.flows)).collect();
    let flows = |listener: &Arc<ListenerState>| udp.get(&Arc::as_ptr(listener)).copied();
    let listeners = process.registry.listeners();
    listeners
        .iter()
        .map(|l| Listener { name: l.name.clone(), flows: flows(l), counts: l.counts() })
        .collect()
}

pub(super) fn pools(process: &Process, snapshot: &Snapshot) -> Vec<Pool> {
    let configured: AHashMap<*const PoolState, &snapshot::Pool> =
        snapshot.pools.iter().map(|pool| (Arc::as_ptr(&pool.state), &**pool)).collect();
    let configured = |state: &Arc<PoolState>| configured.get(&Arc::as_ptr(state)).copied();
    let keeps_ready = |state: &Arc<PoolState>| configured(state).is_some_and(|p| p.ready.count > 0);
    let pools = process.registry.pools();
    pools
        .iter()
        .map(|pool| Pool {
            name: pool.name.clone(),
            retries: pool.retries_total(),
            hedges: pool.hedges_total(),
            replays: pool.replays_total(),
            budget_exhausted: pool.budget_exhausted_total(),
            no_backend: pool.no_backend_total(),
            waiting: pool.queue().waiting(),
            panic: pool.panic(),
            ready: keeps_ready(pool).then(|| pool.ready_counts()),
            digest: configured(pool).and_then(|pool| pool.digest),
        })
        .collect()
}

pub(super) fn backends(process: &Process, snapshot: &Snapshot) -> Vec<Backend> {
    let configured: AHashMap<*const BackendState, u16> = snapshot
        .pools
        .iter()
        .flat_map(|pool| &pool.backends)
        .map(|backend| (Arc::as_ptr(&backend.state), backend.weight))
        .collect();
    let weight = |state: &Arc<BackendState>| configured.get(&Arc::as_ptr(state)).copied();
    let mut states = process.registry.backends();
    // The configured ones first: a name is theirs before it is that of a removed one.
    states.sort_by_key(|state| weight(state).is_none());
    let mut taken = AHashSet::with_capacity(states.len());
    states
        .iter()
        .map(|state| {
            let mut name = state.name();
            while !taken.insert((state.pool.clone(), name.clone())) {
                name = format!("{name}@{}", state.address).into();
            }
            Backend {
                pool: state.pool.clone(),
                name,
                state: state.state(),
                admin: state.admin(),
                weight: weight(state),
                counts: state.counts(),
            }
        })
        .collect()
}

pub(super) fn workers(process: &Process) -> Vec<Worker> {
    let read = |(index, worker): (usize, &crate::state::process::WorkerState)| Worker {
        index,
        active: worker.active.load(Relaxed),
        busy_permille: worker.busy_permille.load(Relaxed),
    };
    process.workers.iter().enumerate().map(read).collect()
}

pub(super) fn process(process: &Process) -> Whole {
    Whole {
        generation: process.generation.load(Relaxed),
        reloads: [process.reloads[0].load(Relaxed), process.reloads[1].load(Relaxed)],
        last_reload_ok: process.last_reload_ok.load(Relaxed),
        access_log_dropped: process.access_log_dropped.load(Relaxed),
    }
}

pub(super) fn machine() -> Machine {
    let mut machine = Machine {
        open_fds: open_fds(),
        max_fds: getrlimit(Resource::Nofile).current,
        ..Machine::default()
    };
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return machine };
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    // proc_pid_stat(5) counts fields from 1. The second is the program's name in parentheses and
    // may hold spaces, so we count from the third.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return machine };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    machine.cpu_seconds =
        field(14).zip(field(15)).map(|(user, system)| (user + system) as f64 / ticks);
    machine.threads = field(20);
    machine.start_seconds =
        field(22).zip(boot_seconds()).map(|(start, boot)| boot as f64 + start as f64 / ticks);
    machine.virtual_bytes = field(23);
    machine.resident_bytes = field(24).map(|pages| pages * rustix::param::page_size() as u64);
    machine
}

fn boot_seconds() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Since Linux 6.2 the size of this directory is their number, which spares us a listing that
/// takes long with hundreds of thousands of them.
fn open_fds() -> Option<u64> {
    let size = std::fs::metadata("/proc/self/fd").ok()?.len();
    if size > 0 {
        return Some(size);
    }
    // The listing itself holds one more.
    Some((std::fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

impl Reading for Listener {
    fn labels(&self) -> Vec<Label> {
        vec![label("listener", &self.name)]
    }
}

impl Reading for Backend {
    fn labels(&self) -> Vec<Label> {
        vec![label("pool", &self.pool), label("backend", &self.name)]
    }
}

impl Reading for Pool {
    fn labels(&self) -> Vec<Label> {
        vec![label("pool", &self.name)]
    }
}

impl Reading for Worker {
    fn labels(&self) -> Vec<Label> {
        vec![Label::new("worker", self.index.to_string())]
    }
}

impl Reading for Whole {
    fn labels(&self) -> Vec<Label> {
        Vec::new()
    }
}

impl Reading for Machine {
    fn labels(&self) -> Vec<Label> {
        Vec::new()
    }
}
