//! The pool under test: the data plane's policies and health machines, on a clock that comes in as
//! an argument. This half is what workers do with it: a pick, a place taken and given back, what
//! came of an attempt, a retry. `watch` is control's half.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::draws::{Stream, stream};
use super::requests::Tried;
use super::scenario::{Outlier, Scenario, ScenarioError};
use crate::balance::latency::Latency;
use crate::balance::{FULL_PULL, Member, Policy, Spec, Stage, View};
use crate::health::backoff::Backoff;
use crate::health::budget::RetryBudget;
use crate::health::connect::{Connect, HedgeAfter};
use crate::health::hedge::ConnectTimes;
use crate::health::outlier::{Claim, Failure, Passive};
use crate::health::{Standing, State};
use crate::limits::{BACKOFF_BASE, BACKOFF_CAP};

mod watch;

/// Keys of so many backends are in the order of their numbers, bytewise: three digits each.
const KEY_RADIX: usize = 100;

const _: () = assert!(crate::limits::BACKENDS_PER_POOL <= KEY_RADIX * KEY_RADIX);

/// When all backends have been tried, as in the data plane.
const BACKOFF: Backoff = Backoff { base: BACKOFF_BASE, cap: BACKOFF_CAP };

/// A policy with its tables over the scenario's backends.
#[derive(Debug)]
pub(super) struct Tables {
    proper: Policy,
    /// Over the backups alone, if there are any.
    backups: Option<Policy>,
}

impl Tables {
    pub fn new(spec: &Spec, scenario: &Scenario) -> Result<Tables, ScenarioError> {
        let key = |n: usize| format!("10.100.{}.{}:443", 100 + n / KEY_RADIX, 100 + n % KEY_RADIX);
        let keys: Vec<String> = (0..scenario.backends.len()).map(key).collect();
        // Each is over all indices; who is not its own takes no part, as weight 0.
        let tables = |backups| {
            let members = keys.iter().zip(&scenario.backends).map(|(key, backend)| Member {
                key,
                weight: if backend.backup == backups { backend.weight } else { 0 },
            });
            Policy::new(spec, &members.collect::<Vec<_>>())
        };
        let any = scenario.backends.iter().any(|backend| backend.backup);
        let backups = if any { Some(tables(true)?) } else { None };
        Ok(Tables { proper: tables(false)?, backups })
    }

    fn of(&self, stage: Stage) -> Option<&Policy> {
        if stage.backups { self.backups.as_ref() } else { Some(&self.proper) }
    }
}

/// A pool at work.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    spec: &'a Spec,
    tables: &'a Tables,
    tickets: AtomicU64,
    rng: fastrand::Rng,
    backoff_rng: fastrand::Rng,
    connect: Connect,
    budget: RetryBudget,
    times: ConnectTimes,
    threshold: Option<u8>,
    outlier: Option<Outlier>,
    slow_start: Option<Duration>,
    seen: Seen,
}

/// What picks look at.
#[derive(Debug)]
struct Seen {
    backends: Vec<Backend>,
    /// Requests and attempts that one backend may have.
    max: Option<u32>,
    /// Σ of the active.
    total_active: u32,
    /// Σ of the weights that are up, without backups.
    up_weight: u32,
    /// Whether states are ignored.
    panic: bool,
    /// Whether any backend gets less than its share.
    warming: bool,
    /// Mean of the pool.
    latency: Latency,
}

#[derive(Debug)]
struct Backend {
    weight: u16,
    backup: bool,
    /// Requests and attempts at the moment.
    active: u32,
    /// How much of its share it gets.
    pull: u8,
    standing: Standing,
    passive: Passive,
    /// Since when it warms up.
    warms_since: Option<Duration>,
    latency: Latency,
}

/// What came of a pick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picked {
    pub index: usize,
    /// It is ejected, and this may show whether it may come back; in panic as well.
    on_trial: bool,
}

impl Pool<'_> {
    /// The backend for one attempt of a request.
    pub fn pick(&mut self, now: Duration, tried: &Tried, hash: u64) -> Option<Picked> {
        let (seen, policy) = (&self.seen, self.spec.policy);
        let salt = if seen.warming && !policy.hashes() { self.rng.u64(..) } else { hash };
        // As in the data plane, only this policy asks.
        let measured = policy.measures().then(|| (now, seen.latency.average()));
        let passes_over = seen.warming && !policy.goes_by_load();
        for stage in Stage::order(seen.panic, passes_over) {
            let Some(policy) = self.tables.of(stage) else { continue };
            let view = Candidates { seen, tried, stage, salt, measured };
            if let Some(index) = policy.pick(&view, hash, &self.tickets, &mut self.rng) {
                let ejected = seen.backends[index].standing.state() == State::Ejected;
                return Some(Picked { index, on_trial: ejected });
            }
        }
        None
    }

    /// Where a hash policy would send a key if the pool was idle, and warm.
    pub fn home(&mut self, hash: u64) -> Option<usize> {
        let seen = &self.seen;
        Stage::order(seen.panic, false).find_map(|stage| {
            let policy = self.tables.of(stage)?;
            policy.pick(&Idle { seen, stage }, hash, &self.tickets, &mut self.rng)
        })
    }

    /// Takes a place on a backend: the claim of a trial, and how many there are now.
    pub fn take(&mut self, picked: Picked) -> (Option<Claim>, u32) {
        self.seen.total_active += 1;
        let backend = &mut self.seen.backends[picked.index];
        backend.active += 1;
        let claim = if picked.on_trial { backend.passive.trials.claim() } else { None };
        (claim, backend.active)
    }

    /// Gives a place back; how many there are now.
    pub fn give_back(&mut self, index: usize) -> u32 {
        self.seen.total_active -= 1;
        let backend = &mut self.seen.backends[index];
        backend.active -= 1;
        backend.active
    }

    /// An attempt has an outcome; whether control should look at the backend.
    pub fn report(&self, index: usize, claim: Option<Claim>, outcome: Result<(), Failure>) -> bool {
        let (Some(outlier), passive) = (&self.outlier, &self.seen.backends[index].passive) else {
            return false;
        };
        match (claim, outcome) {
            (None, outcome) => passive.recorder.record(outcome, &outlier.thresholds),
            (Some(claim), Ok(())) => passive.trials.succeeded(claim),
            (Some(claim), Err(failure)) => passive.trials.failed(claim, failure),
        }
    }

    /// An attempt ended without any outcome.
    pub fn cancel(&self, index: usize, claim: Option<Claim>) {
        if let Some(claim) = claim {
            self.seen.backends[index].passive.trials.cancelled(claim);
        }
    }

    /// A connect took so long.
    pub fn connected(&self, took: Duration) {
        if self.connect.hedge_after == HedgeAfter::Auto {
            self.times.record(took);
        }
    }

    /// An answer came that took so long.
    pub fn took(&mut self, now: Duration, index: usize, took: Duration) {
        if self.spec.policy.measures() {
            self.seen.backends[index].latency.record_peak(now, took);
            self.seen.latency.record_mean(now, took);
        }
    }

    /// After how long an attempt gets company.
    pub fn hedge_after(&self) -> Option<Duration> {
        self.connect.hedge_after.delay(&self.times)
    }

    /// How long to wait before round `round` of attempts is repeated.
    pub fn backoff(&mut self, round: u32) -> Duration {
        BACKOFF.wait(round, &mut self.backoff_rng)
    }

    /// A request comes, and earns a share of a retry.
    pub fn earn(&self, now: Duration) {
        if let Some(percent) = self.connect.retry_budget {
            self.budget.earn(now, percent);
        }
    }

    /// Whether an attempt beyond the first may be made.
    pub fn spend(&self, now: Duration) -> bool {
        self.connect.retry_budget.is_none() || self.budget.spend(now)
    }
}

impl Seen {
    /// Whether picks of this stage go to a backend, as far as its state says.
    fn serves(&self, index: usize, stage: Stage) -> bool {
        let backend = &self.backends[index];
        backend.weight > 0
            && backend.backup == stage.backups
            && (stage.panic || backend.standing.state() == State::Up)
    }

    fn weight_of(&self, usable: impl Fn(usize) -> bool) -> u32 {
        let usable = (0..self.backends.len()).filter(|&index| usable(index));
        usable.map(|index| u32::from(self.backends[index].weight)).sum()
    }
}

/// What a pick sees.
struct Candidates<'a> {
    seen: &'a Seen,
    tried: &'a Tried,
    stage: Stage,
    /// Decides which of those that warm up are passed over.
    salt: u64,
    /// The moment of the pick, and the latency of a backend that nothing is known of.
    measured: Option<(Duration, u64)>,
}

impl Candidates<'_> {
    /// Whether it is ejected, and its time is over: a few requests try it.
    fn may_try(&self, index: usize) -> bool {
        let Backend { weight, backup, standing, passive, .. } = &self.seen.backends[index];
        *weight > 0
            && *backup == self.stage.backups
            && standing.state() == State::Ejected
            && passive.trials.available()
    }
}

impl View for Candidates<'_> {
    fn len(&self) -> usize {
        self.seen.backends.len()
    }

    fn usable(&self, index: usize) -> bool {
        let Backend { active, pull, .. } = self.seen.backends[index];
        (self.seen.serves(index, self.stage) || self.may_try(index))
            && self.seen.max.is_none_or(|max| active < max)
            && !self.stage.passes_over(self.salt, index, pull)
            && !self.tried.iter().any(|tried| tried == index)
    }

    fn active(&self, index: usize) -> u32 {
        self.seen.backends[index].active
    }

    fn weight(&self, index: usize) -> u16 {
        self.seen.backends[index].weight
    }

    fn pull(&self, index: usize) -> u8 {
        self.seen.backends[index].pull
    }

    fn latency(&self, index: usize) -> u64 {
        let of = |(now, prior)| self.seen.backends[index].latency.estimate(now, prior);
        self.measured.map_or(0, of)
    }

    fn total_active(&self) -> u32 {
        self.seen.total_active
    }

    fn usable_weight(&self) -> u32 {
        if self.seen.max.is_some() || self.stage != Stage::PLAIN {
            return self.seen.weight_of(|index| self.usable(index));
        }
        let tried = self.tried.iter().filter(|&index| self.seen.serves(index, self.stage));
        let gone = tried.map(|index| u32::from(self.weight(index))).sum();
        self.seen.up_weight.saturating_sub(gone)
    }
}

/// The pool as if nothing was under way and nobody warmed up.
struct Idle<'a> {
    seen: &'a Seen,
    stage: Stage,
}

impl View for Idle<'_> {
    fn len(&self) -> usize {
        self.seen.backends.len()
    }

    fn usable(&self, index: usize) -> bool {
        self.seen.serves(index, self.stage)
    }

    fn active(&self, _index: usize) -> u32 {
        0
    }

    fn weight(&self, index: usize) -> u16 {
        self.seen.backends[index].weight
    }

    fn total_active(&self) -> u32 {
        0
    }

    fn usable_weight(&self) -> u32 {
        match self.stage {
            Stage::PLAIN => self.seen.up_weight,
            stage => self.seen.weight_of(|index| self.seen.serves(index, stage)),
        }
    }
}
