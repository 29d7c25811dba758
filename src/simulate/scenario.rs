//! What is simulated.

use std::time::Duration;

use super::distribution::Distribution;
use crate::balance::{BuildError, PolicyKind};
use crate::health::connect::{Connect, HedgeAfter};
use crate::health::outlier::{Rate, Terms, Thresholds};
use crate::limits::{
    ATTEMPTS_MAX, BACKENDS_PER_POOL, CONSECUTIVE_FAILURES_MAX, OUTLIER_WINDOW_MAX,
    RETRY_BUDGET_MAX, SIMULATE_FACTOR, SIMULATE_IN_FLIGHT, SIMULATE_INCIDENTS, SIMULATE_KEYS,
    SIMULATE_RATE, SIMULATE_REQUESTS, SIMULATE_SINGLE_TIME, SIMULATE_SLOTS, SIMULATE_TIME,
    TRIAL_CONNECTIONS_MAX, WEIGHT_MAX,
};

/// A fleet, its clients and what befalls them.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The pool, in order; told by their number from 1.
    pub backends: Vec<Backend>,
    /// Requests that a backend serves at once.
    pub slots: usize,
    /// From the balancer to a backend, and back, each.
    pub hop: Duration,
    /// How long a request takes on a backend of ordinary speed.
    pub service: Distribution,
    /// Where requests come from.
    pub load: Load,
    /// The run ends when so many are done; `None`: by `duration` alone.
    pub requests: Option<u64>,
    /// The run ends then, with requests open; `None`: by `requests` alone.
    pub duration: Option<Duration>,
    /// Deaths and returns, in any order.
    pub incidents: Vec<Incident>,
    /// How backends are checked; `None`: all count as up, always.
    pub checks: Option<Checks>,
    /// In percent, as [`in_panic`](crate::health::in_panic) takes it.
    pub panic_threshold: Option<u8>,
    /// How requests get to a backend.
    pub connect: Connect,
    /// What failed connects do to a backend; `None`: nothing.
    pub outlier: Option<Outlier>,
    /// How long a backend that has come up gets less than its share.
    pub slow_start: Option<Duration>,
    /// Requests and attempts that one backend may have; `None`: any number.
    pub max_connections: Option<u32>,
    /// Clients with an address of their own; each request comes from one of them.
    pub keys: u32,
    /// Share of the requests that come from the first of them, on top of its equal part.
    pub hot: f64,
    /// Of everything that is left to chance.
    pub seed: u64,
}

/// A backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backend {
    /// Its weight.
    pub weight: u16,
    /// How many times longer it takes than an ordinary one.
    pub factor: f64,
    /// How much longer it takes, each time.
    pub stall: Duration,
    /// Used only when no other can be.
    pub backup: bool,
}

impl Default for Backend {
    fn default() -> Self {
        Backend { weight: 1, factor: 1.0, stall: Duration::ZERO, backup: false }
    }
}

/// Where requests come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// A Poisson process of so many a second.
    Open(f64),
    /// So many clients, each with one request at a time, and how long they think in between.
    Closed(usize, Distribution),
}

/// Active checks, as `health` of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Checks {
    pub interval: Duration,
    /// While the state is in doubt; never longer than `interval`.
    pub fast_interval: Duration,
    pub timeout: Duration,
    pub rise: u32,
    pub fall: u32,
}

/// Passive detection, as `outlier` of a pool. A connection that is established has succeeded:
/// there is no `early_close` here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlier {
    /// What makes a backend an outlier.
    pub thresholds: Thresholds,
    /// How long ejections last, and how they end.
    pub terms: Terms,
    /// Backends that may be ejected at a time.
    pub max_ejected_percent: u8,
}

/// Something that happens to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incident {
    /// Its index, from 0.
    pub backend: usize,
    /// When.
    pub at: Duration,
    /// What.
    pub turn: Turn,
}

/// What can happen to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The process dies: resets and refusals.
    Killed,
    /// The host is gone: silence.
    Vanished,
    /// It is back, with nothing in it.
    Revived,
}

/// Why a scenario makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ScenarioError {
    #[error("{0} backends; 1 to {BACKENDS_PER_POOL} are possible")]
    Backends(usize),
    #[error("weight {0}; 0 to {WEIGHT_MAX} are possible")]
    Weight(u16),
    #[error("all weights are 0: nothing could be picked")]
    NoWeight,
    #[error("all backends are backups: there is nothing that they stand in for")]
    NoProper,
    #[error("{0} slots; 1 to {SIMULATE_SLOTS} are possible")]
    Slots(usize),
    #[error("a backend {0} times slower; above 0 and at most {SIMULATE_FACTOR} is possible")]
    Factor(f64),
    #[error("there is no backend {number}; they are 1 to {count}")]
    NoSuchBackend { number: usize, count: usize },
    #[error("{0} incidents; at most {SIMULATE_INCIDENTS}")]
    Incidents(usize),
    #[error("a rate of {0} a second; 0.001 to {SIMULATE_RATE} are possible")]
    Rate(f64),
    #[error("{0} clients; 1 to {SIMULATE_IN_FLIGHT} are possible")]
    Clients(usize),
    #[error("{0} requests; 1 to {SIMULATE_REQUESTS} are possible")]
    Requests(u64),
    #[error("about {0:.0} requests by rate and duration; at most {SIMULATE_REQUESTS}")]
    TooManyRequests(f64),
    #[error("no end: give a number of requests or a duration")]
    NoEnd,
    #[error("a duration of 0")]
    NoDuration,
    #[error("a time longer than {} hours", SIMULATE_SINGLE_TIME.as_secs() / 3600)]
    Time,
    #[error("a duration longer than {} days", SIMULATE_TIME.as_secs() / 86_400)]
    Duration,
    #[error("a check interval of 0")]
    Interval,
    #[error("rise and fall are at least 1")]
    Thresholds,
    #[error("a panic threshold of {0} %; at most 100")]
    Panic(u8),
    #[error("two hops take as long as the timeout of {0}: nothing would ever connect")]
    Hop(&'static str),
    #[error("{0} attempts; 1 to {ATTEMPTS_MAX} are possible")]
    Attempts(usize),
    #[error("a retry budget of {0} %; at most {RETRY_BUDGET_MAX}")]
    Budget(u8),
    #[error("{0} failures in a row; 1 to {CONSECUTIVE_FAILURES_MAX} are possible")]
    Consecutive(u16),
    #[error("a failure rate of {0} %; 1 to 100 are possible")]
    FailureRate(u8),
    #[error("a window of {0} connections; 2 to {OUTLIER_WINDOW_MAX} are possible")]
    Window(u16),
    #[error("a volume of {volume}; 1 to {} are possible, half of the window", window / 2)]
    Volume { volume: u16, window: u16 },
    #[error("{0} trial connections; 1 to {TRIAL_CONNECTIONS_MAX} are possible")]
    Trials(u8),
    #[error("{0} % may be ejected; 1 to 100 are possible")]
    Ejected(u8),
    #[error("no connection to a backend at all; at least 1")]
    NoConnections,
    #[error("{0} keys; 1 to {SIMULATE_KEYS} are possible")]
    Keys(u32),
    #[error("a hot key with a share of {0}; 0 to 1 are possible")]
    Hot(f64),
    #[error("no policy")]
    NoPolicy,
    #[error("{0} twice")]
    PolicyTwice(PolicyKind),
    #[error(transparent)]
    Policy(#[from] BuildError),
}

impl Scenario {
    /// Equal backends without trouble; everything else as a pool has it by default.
    pub fn new(backends: usize, slots: usize, service: Distribution, load: Load) -> Scenario {
        let second = Duration::from_secs(1);
        Scenario {
            backends: vec![Backend::default(); backends],
            slots,
            hop: Duration::ZERO,
            service,
            load,
            requests: None,
            duration: None,
            incidents: Vec::new(),
            checks: Some(Checks {
                interval: 2 * second,
                fast_interval: second / 2,
                timeout: second,
                rise: 2,
                fall: 3,
            }),
            panic_threshold: Some(0),
            connect: Connect {
                timeout: second,
                attempts: 3,
                total_timeout: 5 * second,
                hedge_after: HedgeAfter::Off,
                retry_budget: Some(20),
            },
            outlier: Some(Outlier {
                thresholds: Thresholds {
                    consecutive: Some(3),
                    rate: Some(Rate { percent: 50, window: 100, volume: 20 }),
                },
                terms: Terms {
                    base_ejection: 10 * second,
                    max_ejection: 300 * second,
                    trial_connections: 1,
                },
                max_ejected_percent: 50,
            }),
            slow_start: None,
            max_connections: None,
            keys: 10_000,
            hot: 0.0,
            seed: 0,
        }
    }

    /// Arrivals ÷ what all backends together can serve, of an open load whose service has a mean.
    pub fn utilisation(&self) -> Option<f64> {
        let Load::Open(rate) = self.load else { return None };
        let mean = self.service.mean();
        let serving = self.backends.iter().filter(|b| b.weight > 0 && !b.backup);
        let speeds = serving.map(|b| self.slots as f64 / (mean * b.factor + b.stall.as_secs_f64()));
        Some(rate / speeds.sum::<f64>()).filter(|utilisation| utilisation.is_finite())
    }

    /// Refuses what makes no sense or could not end.
    pub(super) fn validate(&self) -> Result<(), ScenarioError> {
        self.validate_backends()?;
        self.validate_load()?;
        self.validate_connect()?;
        self.validate_checks()?;
        self.validate_outlier()?;
        if !(1..=SIMULATE_KEYS).contains(&self.keys) {
            return Err(ScenarioError::Keys(self.keys));
        }
        if !(0.0..=1.0).contains(&self.hot) {
            return Err(ScenarioError::Hot(self.hot));
        }
        Ok(())
    }

    fn validate_backends(&self) -> Result<(), ScenarioError> {
        let count = self.backends.len();
        if !(1..=BACKENDS_PER_POOL).contains(&count) {
            return Err(ScenarioError::Backends(count));
        }
        if !(1..=SIMULATE_SLOTS).contains(&self.slots) {
            return Err(ScenarioError::Slots(self.slots));
        }
        for backend in &self.backends {
            if backend.weight > WEIGHT_MAX {
                return Err(ScenarioError::Weight(backend.weight));
            }
            if !(backend.factor > 0.0 && backend.factor <= SIMULATE_FACTOR) {
                return Err(ScenarioError::Factor(backend.factor));
            }
            if backend.stall > SIMULATE_SINGLE_TIME {
                return Err(ScenarioError::Time);
            }
        }
        if self.backends.iter().all(|backend| backend.weight == 0) {
            return Err(ScenarioError::NoWeight);
        }
        if self.backends.iter().all(|backend| backend.backup) {
            return Err(ScenarioError::NoProper);
        }
        if self.max_connections == Some(0) {
            return Err(ScenarioError::NoConnections);
        }
        if self.incidents.len() > SIMULATE_INCIDENTS {
            return Err(ScenarioError::Incidents(self.incidents.len()));
        }
        match self.incidents.iter().find(|incident| incident.backend >= count) {
            Some(incident) => {
                Err(ScenarioError::NoSuchBackend { number: incident.backend + 1, count })
            }
            None => Ok(()),
        }
    }

    fn validate_load(&self) -> Result<(), ScenarioError> {
        match self.load {
            Load::Open(rate) if !(0.001..=SIMULATE_RATE).contains(&rate) => {
                return Err(ScenarioError::Rate(rate));
            }
            Load::Closed(clients, _) if !(1..=SIMULATE_IN_FLIGHT).contains(&clients) => {
                return Err(ScenarioError::Clients(clients));
            }
            Load::Open(_) | Load::Closed(..) => {}
        }
        match (self.requests, self.duration) {
            (None, None) => return Err(ScenarioError::NoEnd),
            (Some(requests), _) if !(1..=SIMULATE_REQUESTS).contains(&requests) => {
                return Err(ScenarioError::Requests(requests));
            }
            (_, Some(Duration::ZERO)) => return Err(ScenarioError::NoDuration),
            (_, Some(duration)) if duration > SIMULATE_TIME => return Err(ScenarioError::Duration),
            _ => {}
        }
        if let (Load::Open(rate), None, Some(duration)) = (self.load, self.requests, self.duration)
        {
            let expected = rate * duration.as_secs_f64();
            if expected > SIMULATE_REQUESTS as f64 {
                return Err(ScenarioError::TooManyRequests(expected));
            }
        }
        Ok(())
    }

    fn validate_connect(&self) -> Result<(), ScenarioError> {
        let Connect { timeout, attempts, total_timeout, hedge_after, retry_budget } = self.connect;
        let hedge_after =
            if let HedgeAfter::After(after) = hedge_after { Some(after) } else { None };
        let times = [Some(self.hop), Some(timeout), Some(total_timeout), hedge_after];
        if times.into_iter().chain([self.slow_start]).flatten().any(|t| t > SIMULATE_SINGLE_TIME) {
            return Err(ScenarioError::Time);
        }
        if self.round_trip() >= timeout {
            return Err(ScenarioError::Hop("a connect"));
        }
        if self.round_trip() >= total_timeout {
            return Err(ScenarioError::Hop("all attempts"));
        }
        if !(1..=ATTEMPTS_MAX).contains(&attempts) {
            return Err(ScenarioError::Attempts(attempts));
        }
        match retry_budget {
            Some(percent) if percent > RETRY_BUDGET_MAX => Err(ScenarioError::Budget(percent)),
            _ => Ok(()),
        }
    }

    /// Until a kernel has answered.
    fn round_trip(&self) -> Duration {
        self.hop.saturating_mul(2)
    }

    fn validate_outlier(&self) -> Result<(), ScenarioError> {
        let Some(Outlier { thresholds, terms, max_ejected_percent }) = self.outlier else {
            return Ok(());
        };
        if terms.base_ejection > SIMULATE_SINGLE_TIME || terms.max_ejection > SIMULATE_SINGLE_TIME {
            return Err(ScenarioError::Time);
        }
        match thresholds.consecutive {
            Some(count) if !(1..=CONSECUTIVE_FAILURES_MAX).contains(&count) => {
                return Err(ScenarioError::Consecutive(count));
            }
            _ => {}
        }
        if let Some(Rate { percent, window, volume }) = thresholds.rate {
            if !(1..=100).contains(&percent) {
                return Err(ScenarioError::FailureRate(percent));
            }
            if !(2..=OUTLIER_WINDOW_MAX).contains(&window) {
                return Err(ScenarioError::Window(window));
            }
            if !(1..=window / 2).contains(&volume) {
                return Err(ScenarioError::Volume { volume, window });
            }
        }
        if !(1..=TRIAL_CONNECTIONS_MAX).contains(&terms.trial_connections) {
            return Err(ScenarioError::Trials(terms.trial_connections));
        }
        if !(1..=100).contains(&max_ejected_percent) {
            return Err(ScenarioError::Ejected(max_ejected_percent));
        }
        Ok(())
    }

    fn validate_checks(&self) -> Result<(), ScenarioError> {
        if let Some(percent) = self.panic_threshold.filter(|&percent| percent > 100) {
            return Err(ScenarioError::Panic(percent));
        }
        let Some(checks) = self.checks else { return Ok(()) };
        if checks.interval.is_zero() || checks.fast_interval.is_zero() {
            return Err(ScenarioError::Interval);
        }
        if checks.interval > SIMULATE_SINGLE_TIME || checks.timeout > SIMULATE_SINGLE_TIME {
            return Err(ScenarioError::Time);
        }
        if checks.rise == 0 || checks.fall == 0 {
            return Err(ScenarioError::Thresholds);
        }
        if self.round_trip() >= checks.timeout {
            return Err(ScenarioError::Hop("a check"));
        }
        Ok(())
    }
}
