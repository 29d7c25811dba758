//! A pool as workers see it: the policy's tables over backends whose state changes under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use super::server_ids::ServerIds;
use crate::balance::{Policy, Spec};
use crate::config::{Connect, HealthCheck, OnDown, Outlier, PanicThreshold, Queueing, Ready};
use crate::health::State;
use crate::limits::ATTEMPTS_MAX;
use crate::state::{BackendState, PoolState, Words};
use crate::sys::socket::TcpOptions;

/// A pool with its policy's tables.
#[derive(Debug)]
pub struct Pool {
    /// Its name.
    pub name: Arc<str>,
    /// The policy and its parameters.
    pub spec: Spec,
    /// The policy's tables, over `backends` without the backups.
    pub policy: Policy,
    /// The same over the backups alone, if there are any.
    pub backups: Option<Policy>,
    /// Of the policy's tables; `None` where nothing is hashed.
    pub digest: Option<u64>,
    /// Seed of the hash.
    pub hash_seed: u64,
    /// Ordered by canonical address, bytewise.
    pub backends: Vec<Backend>,
    /// What picks need of them, side by side.
    pub(super) members: Box<[Member]>,
    /// Their words, side by side.
    pub(super) words: Words,
    /// Whether any backend has a bound on its connections, so that some may be full.
    pub(super) capped: bool,
    /// Σ of the weights of backends that are up and ready, without backups, so that picks know without looking whether all
    /// are. Control writes, through [`Pool::weigh`]; workers read.
    pub(super) up_weight: AtomicU32,
    /// Whether all backends have the same weight and no bound, and none is a backup.
    pub(super) alike: bool,
    /// How backends are connected to.
    pub connect: Connect,
    /// What is connected to them before anybody needs it.
    pub ready: Ready,
    /// Whether a hello whose backend ends the connection without a byte goes to another one.
    pub replay_hello: bool,
    /// Which of them made a connection id of QUIC, where they say so in it.
    pub(super) server_ids: Option<ServerIds>,
    /// Active checks.
    pub health: Option<HealthCheck>,
    /// How long a backend that has come up gets less than its share.
    pub slow_start: Option<Duration>,
    /// What becomes of the sessions of a backend that goes down.
    pub on_down: OnDown,
    /// The time over which they are closed.
    pub close_spread: Duration,
    /// Sessions and attempts of all backends; `None` is no bound.
    pub max_connections: Option<u32>,
    /// Who may wait when all backends are full.
    pub queue: Queueing,
    /// What real connections say of backends.
    pub outlier: Option<Outlier>,
    /// When the state of backends is ignored.
    pub panic_threshold: PanicThreshold,
    /// Its counters.
    pub state: Arc<PoolState>,
}

/// A backend in its pool.
#[derive(Debug)]
pub struct Backend {
    /// Its name in this configuration.
    pub name: Arc<str>,
    /// Its weight: the configuration's, unless the operator has given it another.
    pub weight: u16,
    /// The configuration's.
    pub configured_weight: u16,
    /// Used only when no other can be.
    pub backup: bool,
    /// Sessions and attempts; `None` is no bound.
    pub max_connections: Option<u32>,
    /// Where it is, its state and its counters.
    pub state: Arc<BackendState>,
}

/// What picks need of a backend's configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub weight: u16,
    pub backup: bool,
}

/// The backends that one connection has been to, and failed at.
#[derive(Debug, Default)]
pub struct Tried {
    indices: [u16; ATTEMPTS_MAX],
    count: u8,
}

impl Tried {
    /// Adds one; beyond [`ATTEMPTS_MAX`] nothing is added, and no more attempts are made.
    pub fn add(&mut self, index: usize) {
        let (Ok(index), Some(slot)) =
            (u16::try_from(index), self.indices.get_mut(usize::from(self.count)))
        else {
            return;
        };
        *slot = index;
        self.count += 1;
    }

    /// Forgets all: they may be tried again.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// How many.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Which.
    pub fn indices(&self) -> impl Iterator<Item = usize> {
        self.indices[..self.count()].iter().map(|&index| usize::from(index))
    }

    pub(super) fn contains(&self, index: usize) -> bool {
        self.indices().any(|tried| tried == index)
    }
}

const _: () = assert!(crate::limits::BACKENDS_PER_POOL <= u16::MAX as usize);

impl Pool {
    /// Puts its bounds in force. Control calls this when it publishes the pool.
    pub fn set_bounds(&self) {
        self.state.set_max_connections(self.max_connections.unwrap_or(u32::MAX));
        for backend in &self.backends {
            backend.state.set_max_connections(backend.max_connections.unwrap_or(u32::MAX));
        }
    }

    /// Takes what checks have found out of one of its backends. Control only.
    pub fn set_state(&self, backend: &Arc<BackendState>, state: State) {
        backend.set_state(state);
        self.weigh();
        if state == State::Down && self.on_down == OnDown::Close {
            self.state.close_sessions(backend, self.close_spread);
        }
    }

    /// Adds up the weight that is usable. Control calls this after each change of a state; until
    /// then picks take a backend that is down for one to be passed over, and look further.
    pub fn weigh(&self) {
        let up = self.backends.iter().filter(|b| !b.backup && b.state.standing().is_usable());
        let weight = up.map(|backend| u32::from(backend.weight)).sum();
        let before = self.up_weight.swap(weight, Relaxed);
        if (before == 0) != (weight == 0) {
            let backups = self.backends.iter().filter(|backend| backend.backup);
            backups.for_each(|backend| backend.state.changed());
        }
        // Somebody may wait for one that has just come up.
        self.state.queue().nudge();
    }

    /// Whether connections are to be kept ready to the backend of this index: it is usable, and if
    /// it is a backup no other is. In panic none are: whoever is not up would most likely refuse.
    pub fn keeps_ready(&self, index: usize) -> bool {
        let backend = &self.backends[index];
        let usable = backend.weight > 0 && backend.state.standing().is_usable();
        let in_use = !backend.backup || self.up_weight.load(Relaxed) == 0;
        self.ready.count > 0 && usable && in_use
    }

    /// Whether the state of its backends is to be ignored, as it is now. With a backup that is
    /// usable it is not. What the operator has taken out does not count at all.
    pub fn should_panic(&self) -> bool {
        self.panics_if(|b| b.state.standing().is_ready().then(|| b.state.state()))
    }

    /// The same, were `changed` in this state; `None`: taken out by the operator.
    pub fn would_panic(&self, changed: &BackendState, state: Option<State>) -> bool {
        self.panics_if(|b| match b.state.standing().is_ready().then(|| b.state.state()) {
            Some(_) if std::ptr::eq(&*b.state, changed) => state,
            other => other,
        })
    }

    /// `state` gives the state of a backend, `None` for one that is taken out.
    fn panics_if(&self, state: impl Fn(&Backend) -> Option<State>) -> bool {
        let threshold = match self.panic_threshold {
            PanicThreshold::Percent(percent) => Some(percent),
            PanicThreshold::Off => None,
        };
        let helps = |b: &Backend| b.backup && b.weight > 0 && state(b) == Some(State::Up);
        if self.backends.iter().any(helps) {
            return false;
        }
        let backends = self.backends.iter().filter_map(|b| Some((b.weight, state(b)?)));
        crate::health::in_panic(threshold, backends)
    }
}

/// The options of sockets that a listener accepts and that its sessions open to backends.
impl From<&crate::config::Timeouts> for TcpOptions {
    fn from(timeouts: &crate::config::Timeouts) -> Self {
        TcpOptions { keepalive: timeouts.keepalive, user_timeout: timeouts.user_timeout }
    }
}
