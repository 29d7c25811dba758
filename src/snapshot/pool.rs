//! A pool as workers see it: the policy's tables over backends whose state changes under way.

use std::sync::Arc;

use crate::balance::{Policy, Spec, View};
use crate::config::{Connect, HealthCheck, PanicThreshold};
use crate::health::State;
use crate::limits::ATTEMPTS_MAX;
use crate::state::{BackendState, PoolState};
use crate::sys::socket::TcpOptions;

/// A pool with its policy's tables.
#[derive(Debug)]
pub struct Pool {
    /// Its name.
    pub name: Arc<str>,
    /// The policy and its parameters.
    pub spec: Spec,
    /// The policy's tables, over `backends`.
    pub policy: Policy,
    /// Seed of the hash.
    pub hash_seed: u64,
    /// Ordered by canonical address, bytewise.
    pub backends: Vec<Backend>,
    /// How backends are connected to.
    pub connect: Connect,
    /// Active checks.
    pub health: Option<HealthCheck>,
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
    /// Its weight.
    pub weight: u16,
    /// Where it is, its state and its counters.
    pub state: Arc<BackendState>,
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

    /// How many.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    fn contains(&self, index: usize) -> bool {
        self.indices[..self.count()].iter().any(|&tried| usize::from(tried) == index)
    }
}

const _: () = assert!(crate::limits::BACKENDS_PER_POOL <= u16::MAX as usize);

impl Pool {
    /// Picks a backend that is not among those tried. `hash` is asked for only by the policies
    /// that use it.
    pub fn pick(
        &self,
        tried: &Tried,
        hash: impl FnOnce() -> u64,
        rng: &mut fastrand::Rng,
    ) -> Option<usize> {
        let hash = if self.spec.policy.hashes() { hash() } else { 0 };
        let candidates = Candidates { pool: self, tried, panic: self.state.panic() };
        self.policy.pick(&candidates, hash, self.state.tickets(), rng)
    }

    /// Whether the state of its backends is to be ignored, as it is now.
    pub fn should_panic(&self) -> bool {
        let threshold = match self.panic_threshold {
            PanicThreshold::Percent(percent) => Some(percent),
            PanicThreshold::Off => None,
        };
        let backends = self.backends.iter().map(|b| (b.weight, b.state.state()));
        crate::health::in_panic(threshold, backends)
    }
}

/// The options of sockets that a listener accepts and that its sessions open to backends.
impl From<&crate::config::Timeouts> for TcpOptions {
    fn from(timeouts: &crate::config::Timeouts) -> Self {
        TcpOptions { keepalive: timeouts.keepalive, user_timeout: timeouts.user_timeout }
    }
}

struct Candidates<'a> {
    pool: &'a Pool,
    tried: &'a Tried,
    panic: bool,
}

impl View for Candidates<'_> {
    fn len(&self) -> usize {
        self.pool.backends.len()
    }

    fn usable(&self, index: usize) -> bool {
        let backend = &self.pool.backends[index];
        backend.weight > 0
            && (self.panic || backend.state.state() == State::Up)
            && !self.tried.contains(index)
    }

    fn active(&self, index: usize) -> u32 {
        self.pool.backends[index].state.active()
    }

    fn weight(&self, index: usize) -> u16 {
        self.pool.backends[index].weight
    }
}
