//! What came of a run.

use std::time::Duration;

use super::scenario::Scenario;
use super::timeline::Timeline;
use crate::balance::PolicyKind;
use crate::health::State;
use crate::health::standing::Reason;

pub use super::probes::Moved;
pub use super::timeline::Load;

/// What came of one policy. Every request is completed, failed or open.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The policy.
    pub policy: PolicyKind,
    /// Requests that were issued.
    pub offered: u64,
    /// Requests that were answered.
    pub completed: u64,
    /// Requests that failed, by [`Failure`] as index.
    pub failed: [u64; Failure::ALL.len()],
    /// Requests that were under way when the time was over.
    pub open: u64,
    /// Attempts after a failed one.
    pub retries: u64,
    /// Attempts beside one that took long.
    pub hedges: u64,
    /// Retries and hedges that the budget did not allow.
    pub exhausted: u64,
    /// How long it took: until the last answer, or as long as it was to take.
    pub elapsed: Duration,
    /// Of the completed requests; `None` if there are none.
    pub latency: Option<Latencies>,
    /// The same until a connection was established, of those that were.
    pub connect: Option<Latencies>,
    /// In the order of the scenario.
    pub backends: Vec<BackendReport>,
    /// The backend with the most attempts for its weight ÷ the mean; `None` without attempts.
    pub max_over_mean: Option<f64>,
    /// What checks and failed connects have changed, in order.
    pub changes: Vec<Change>,
    /// The most keys that one change has moved, as a share; `None` for policies that do not hash.
    pub keys_moved: Option<f64>,
    /// Load over time.
    pub load: Load,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There was nothing to pick.
    NoBackend = 0,
    /// Every attempt to connect failed.
    Connect = 1,
    /// Its backend died with it.
    Lost = 2,
    /// Too many were under way.
    Overload = 3,
}

impl Failure {
    /// Every one.
    pub const ALL: [Failure; 4] =
        [Failure::NoBackend, Failure::Connect, Failure::Lost, Failure::Overload];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Failure::NoBackend => "no_backend",
            Failure::Connect => "connect_failed",
            Failure::Lost => "lost",
            Failure::Overload => "overload",
        }
    }
}

/// Latencies, percentiles by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Latencies {
    pub mean: Duration,
    pub p50: Duration,
    pub p95: Duration,
    pub p99: Duration,
    pub max: Duration,
}

/// One backend.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendReport {
    /// Its weight.
    pub weight: u16,
    /// Attempts that it was picked for.
    pub picked: u64,
    /// Its share of all attempts, from 0 to 1.
    pub share: f64,
    /// Requests that it answered.
    pub completed: u64,
    /// Attempts that could not connect to it.
    pub refused: u64,
    /// The most it had at once.
    pub most_active: u32,
    /// How often it was ejected.
    pub ejections: u64,
}

/// A backend went up or down or was ejected, as far as the pool knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// When.
    pub at: Duration,
    /// Its index.
    pub backend: usize,
    /// What it is now.
    pub state: State,
    /// What brought it about.
    pub reason: Reason,
    /// Whether states are ignored from now on.
    pub panic: bool,
    /// What that did to keys; `None` for policies that do not hash, and if it was ejected before.
    pub moved: Option<Moved>,
}

/// What is counted under way.
#[derive(Debug)]
pub(super) struct Tally {
    policy: PolicyKind,
    pub offered: u64,
    pub retries: u64,
    pub hedges: u64,
    pub exhausted: u64,
    failed: [u64; Failure::ALL.len()],
    /// In nanoseconds.
    latencies: Vec<u64>,
    /// In nanoseconds.
    connects: Vec<u64>,
    backends: Vec<BackendReport>,
    changes: Vec<Change>,
    timeline: Timeline,
}

impl Tally {
    pub fn new(scenario: &Scenario, policy: PolicyKind) -> Self {
        let backend = |weight| BackendReport {
            weight,
            picked: 0,
            share: 0.0,
            completed: 0,
            refused: 0,
            most_active: 0,
            ejections: 0,
        };
        Tally {
            policy,
            offered: 0,
            retries: 0,
            hedges: 0,
            exhausted: 0,
            failed: [0; Failure::ALL.len()],
            latencies: Vec::new(),
            connects: Vec::new(),
            backends: scenario.backends.iter().map(|known| backend(known.weight)).collect(),
            changes: Vec::new(),
            timeline: Timeline::new(scenario.backends.len(), scenario.duration),
        }
    }

    /// A backend was picked and has so many now.
    pub fn picked(&mut self, now: Duration, index: usize, active: u32) {
        let backend = &mut self.backends[index];
        backend.picked += 1;
        backend.most_active = backend.most_active.max(active);
        self.timeline.change(now, index, active);
    }

    /// A place was given back.
    pub fn given_back(&mut self, now: Duration, index: usize, active: u32) {
        self.timeline.change(now, index, active);
    }

    /// Somebody could not connect to it.
    pub fn refused(&mut self, index: usize) {
        self.backends[index].refused += 1;
    }

    /// A connection was established, so long after its request was issued.
    pub fn connected(&mut self, took: Duration) {
        self.connects.push(nanoseconds(took));
    }

    /// A request was answered.
    pub fn completed(&mut self, index: usize, latency: Duration) {
        self.backends[index].completed += 1;
        self.latencies.push(nanoseconds(latency));
    }

    /// A request failed.
    pub fn failed(&mut self, failure: Failure) {
        self.failed[failure as usize] += 1;
    }

    /// A backend changed.
    pub fn changed(&mut self, change: Change) {
        let ejected = matches!(change.reason, Reason::Ejected { .. });
        self.backends[change.backend].ejections += u64::from(ejected);
        self.changes.push(change);
    }

    /// The run is over at `elapsed`, with `open` requests under way.
    pub fn finish(mut self, elapsed: Duration, open: usize, hashes: bool) -> Report {
        let attempts: u64 = self.backends.iter().map(|backend| backend.picked).sum();
        for backend in &mut self.backends {
            backend.share = backend.picked as f64 / attempts.max(1) as f64;
        }
        let moved = self.changes.iter().filter_map(|change| change.moved);
        let most_moved = moved.map(|moved| moved.all).fold(0.0, f64::max);
        Report {
            policy: self.policy,
            offered: self.offered,
            completed: self.latencies.len() as u64,
            failed: self.failed,
            open: open as u64,
            retries: self.retries,
            hedges: self.hedges,
            exhausted: self.exhausted,
            elapsed,
            max_over_mean: max_over_mean(&self.backends),
            latency: latencies(&mut self.latencies),
            connect: latencies(&mut self.connects),
            backends: self.backends,
            keys_moved: hashes.then_some(most_moved),
            changes: self.changes,
            load: self.timeline.finish(elapsed),
        }
    }
}

impl Report {
    /// Requests that failed, for whatever reason.
    pub fn failures(&self) -> u64 {
        self.failed.iter().sum()
    }

    /// Ejections, of all backends.
    pub fn ejections(&self) -> u64 {
        self.backends.iter().map(|backend| backend.ejections).sum()
    }
}

/// Each by its weight: at equal weights the most attempts ÷ the mean.
fn max_over_mean(backends: &[BackendReport]) -> Option<f64> {
    let some = || backends.iter().filter(|backend| backend.weight > 0);
    let attempts: u64 = some().map(|backend| backend.picked).sum();
    let weight: u32 = some().map(|backend| u32::from(backend.weight)).sum();
    let fair = attempts as f64 / f64::from(weight);
    let most = some().map(|backend| backend.picked as f64 / f64::from(backend.weight));
    (attempts > 0).then(|| most.fold(0.0, f64::max) / fair)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn latencies(all: &mut [u64]) -> Option<Latencies> {
    all.sort_unstable();
    let max = Duration::from_nanos(*all.last()?);
    let sum: u128 = all.iter().map(|&latency| u128::from(latency)).sum();
    let mean = u64::try_from(sum / all.len() as u128).unwrap_or(u64::MAX);
    Some(Latencies {
        mean: Duration::from_nanos(mean),
        p50: nearest_rank(all, 50),
        p95: nearest_rank(all, 95),
        p99: nearest_rank(all, 99),
        max,
    })
}

/// The ⌈p × n⌉-th smallest of what is sorted and not empty.
fn nearest_rank(sorted: &[u64], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    Duration::from_nanos(sorted[rank - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_nearest_rank() {
        let check = |count: u64, expected: [u64; 3]| {
            let mut all: Vec<u64> = (1..=count).rev().collect();
            let found = latencies(&mut all).unwrap();
            let ranks = [found.p50, found.p95, found.p99].map(|time| time.as_nanos() as u64);
            assert_eq!((ranks, found.max), (expected, Duration::from_nanos(count)), "{count}");
        };
        check(1, [1, 1, 1]);
        check(2, [1, 2, 2]);
        check(20, [10, 19, 20]);
        check(21, [11, 20, 21]);
        check(100, [50, 95, 99]);
        check(2000, [1000, 1900, 1980]);
        assert_eq!(latencies(&mut []), None);
    }

    #[test]
    fn load_is_for_its_weight() {
        let check = |backends: &[(u16, u64)], expected: Option<f64>| {
            let scenario = Scenario::new(
                backends.len(),
                1,
                crate::simulate::Distribution::NONE,
                crate::simulate::scenario::Load::Open(1.0),
            );
            let mut tally = Tally::new(&scenario, PolicyKind::Random);
            for (backend, &(weight, picked)) in tally.backends.iter_mut().zip(backends) {
                (backend.weight, backend.picked) = (weight, picked);
            }
            let found = tally.finish(Duration::from_secs(1), 0, false).max_over_mean;
            let near = match (found, expected) {
                (Some(found), Some(expected)) => (found - expected).abs() < 1e-12,
                (found, expected) => found == expected,
            };
            assert!(near, "{backends:?}: {found:?} for {expected:?}");
        };
        check(&[(1, 10), (1, 10)], Some(1.0));
        check(&[(1, 30), (1, 10)], Some(1.5));
        check(&[(1, 10), (3, 30)], Some(1.0));
        check(&[(1, 20), (3, 20), (0, 0)], Some(2.0));
        check(&[(1, 0), (1, 0)], None);
    }
}
