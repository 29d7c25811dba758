//! The pool under test: the data plane's policies, checks and latencies, on a clock that comes in
//! as an argument. What the world knows of them is a pick, a place taken and given back, and the
//! result of a check.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::draws::{Stream, stream};
use super::requests::Tried;
use super::scenario::{Scenario, ScenarioError};
use crate::balance::latency::Latency;
use crate::balance::{Member, Policy, Spec, View};
use crate::health::{Check, State, in_panic};

/// Keys of so many backends are in the order of their numbers, bytewise: three digits each.
const KEY_RADIX: usize = 100;

const _: () = assert!(crate::limits::BACKENDS_PER_POOL <= KEY_RADIX * KEY_RADIX);

/// The policy with its tables over the scenario's backends.
pub(super) fn build(spec: &Spec, scenario: &Scenario) -> Result<Policy, ScenarioError> {
    let key = |n: usize| format!("10.100.{}.{}:443", 100 + n / KEY_RADIX, 100 + n % KEY_RADIX);
    let keys: Vec<String> = (0..scenario.backends.len()).map(key).collect();
    let members = keys.iter().zip(&scenario.backends);
    let members = members.map(|(key, backend)| Member { key, weight: backend.weight });
    Ok(Policy::new(spec, &members.collect::<Vec<_>>())?)
}

/// A pool at work.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    spec: &'a Spec,
    policy: &'a Policy,
    tickets: AtomicU64,
    rng: fastrand::Rng,
    threshold: Option<u8>,
    standing: Standing,
}

/// What picks look at.
#[derive(Debug)]
struct Standing {
    backends: Vec<Backend>,
    /// Σ of the active.
    total_active: u32,
    /// Σ of the weights that are up.
    up_weight: u32,
    /// Whether states are ignored.
    panic: bool,
    /// Mean of the pool.
    latency: Latency,
}

#[derive(Debug)]
struct Backend {
    weight: u16,
    /// Requests and attempts at the moment.
    active: u32,
    check: Check,
    latency: Latency,
}

impl Backend {
    fn is_up(&self) -> bool {
        self.check.state() == State::Up
    }
}

impl<'a> Pool<'a> {
    /// All up: the first round of checks is over.
    pub fn new(scenario: &Scenario, spec: &'a Spec, policy: &'a Policy) -> Self {
        let (rise, fall) = scenario.checks.map_or((1, 1), |checks| (checks.rise, checks.fall));
        let check = Check::with_state(State::Up, rise, fall);
        let backends = scenario.backends.iter().map(|backend| Backend {
            weight: backend.weight,
            active: 0,
            check,
            latency: Latency::default(),
        });
        let standing = Standing {
            backends: backends.collect(),
            total_active: 0,
            up_weight: 0,
            panic: false,
            latency: Latency::default(),
        };
        let mut pool = Pool {
            spec,
            policy,
            tickets: AtomicU64::new(0),
            rng: stream(scenario.seed, Stream::Picks),
            threshold: scenario.panic_threshold,
            standing,
        };
        pool.weigh();
        pool
    }

    /// The backend for one attempt of a request.
    pub fn pick(&mut self, now: Duration, tried: &Tried, hash: u64) -> Option<usize> {
        let standing = &self.standing;
        // As in the data plane, only this policy asks.
        let measured = self.spec.policy.measures().then(|| (now, standing.latency.average()));
        let view = Candidates { standing, tried, measured };
        self.policy.pick(&view, hash, &self.tickets, &mut self.rng)
    }

    /// Where a hash policy would send a key if the pool was idle.
    pub fn home(&mut self, hash: u64) -> Option<usize> {
        self.policy.pick(&Idle(&self.standing), hash, &self.tickets, &mut self.rng)
    }

    /// Takes a place on a backend; how many there are now.
    pub fn take(&mut self, index: usize) -> u32 {
        self.standing.total_active += 1;
        let backend = &mut self.standing.backends[index];
        backend.active += 1;
        backend.active
    }

    /// Gives a place back; how many there are now.
    pub fn give_back(&mut self, index: usize) -> u32 {
        self.standing.total_active -= 1;
        let backend = &mut self.standing.backends[index];
        backend.active -= 1;
        backend.active
    }

    /// An answer came that took so long.
    pub fn took(&mut self, now: Duration, index: usize, took: Duration) {
        if self.spec.policy.measures() {
            self.standing.backends[index].latency.record_peak(now, took);
            self.standing.latency.record_mean(now, took);
        }
    }

    /// Takes the result of a check; the new state, if it changed.
    pub fn checked(&mut self, index: usize, passed: bool) -> Option<State> {
        let change = self.standing.backends[index].check.on_result(passed)?;
        self.weigh();
        Some(change)
    }

    /// Whether the next check of a backend may change its state.
    pub fn in_doubt(&self, index: usize) -> bool {
        self.standing.backends[index].check.in_doubt()
    }

    /// Whether states are ignored.
    pub fn in_panic(&self) -> bool {
        self.standing.panic
    }

    /// After each change of a state.
    fn weigh(&mut self) {
        let backends = &self.standing.backends;
        let up = backends.iter().filter(|backend| backend.is_up());
        let up_weight = up.map(|backend| u32::from(backend.weight)).sum();
        let states = backends.iter().map(|backend| (backend.weight, backend.check.state()));
        self.standing.panic = in_panic(self.threshold, states);
        self.standing.up_weight = up_weight;
    }
}

impl Standing {
    fn usable(&self, index: usize) -> bool {
        let backend = &self.backends[index];
        backend.weight > 0 && (self.panic || backend.is_up())
    }

    fn usable_weight(&self) -> u32 {
        if self.panic {
            return self.backends.iter().map(|backend| u32::from(backend.weight)).sum();
        }
        self.up_weight
    }
}

/// What a pick sees.
struct Candidates<'a> {
    standing: &'a Standing,
    tried: &'a Tried,
    /// The moment of the pick, and the latency of a backend that nothing is known of.
    measured: Option<(Duration, u64)>,
}

impl View for Candidates<'_> {
    fn len(&self) -> usize {
        self.standing.backends.len()
    }

    fn usable(&self, index: usize) -> bool {
        self.standing.usable(index) && !self.tried.iter().any(|tried| tried == index)
    }

    fn active(&self, index: usize) -> u32 {
        self.standing.backends[index].active
    }

    fn weight(&self, index: usize) -> u16 {
        self.standing.backends[index].weight
    }

    fn latency(&self, index: usize) -> u64 {
        let of = |(now, prior)| self.standing.backends[index].latency.estimate(now, prior);
        self.measured.map_or(0, of)
    }

    fn total_active(&self) -> u32 {
        self.standing.total_active
    }

    fn usable_weight(&self) -> u32 {
        let tried = self.tried.iter().filter(|&index| self.standing.usable(index));
        let gone = tried.map(|index| u32::from(self.standing.backends[index].weight)).sum();
        self.standing.usable_weight().saturating_sub(gone)
    }
}

/// The pool as if nothing was under way.
struct Idle<'a>(&'a Standing);

impl View for Idle<'_> {
    fn len(&self) -> usize {
        self.0.backends.len()
    }

    fn usable(&self, index: usize) -> bool {
        self.0.usable(index)
    }

    fn active(&self, _index: usize) -> u32 {
        0
    }

    fn weight(&self, index: usize) -> u16 {
        self.0.backends[index].weight
    }

    fn total_active(&self) -> u32 {
        0
    }

    fn usable_weight(&self) -> u32 {
        self.0.usable_weight()
    }
}
