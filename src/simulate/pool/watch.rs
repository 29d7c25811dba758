//! What control does for a pool: checks and failed connects make states, states make panic, and
//! who has come up warms up.

use super::*;
use crate::health::outlier::{Failures, has_room};
use crate::health::standing::{Change, CheckResult};
use crate::health::{Check, in_panic, slow_start};

impl<'a> Pool<'a> {
    /// All up: the first round of checks is over.
    pub fn new(scenario: &Scenario, spec: &'a Spec, tables: &'a Tables) -> Self {
        let (rise, fall) = scenario.checks.map_or((1, 1), |checks| (checks.rise, checks.fall));
        let backends = scenario.backends.iter().map(|backend| Backend {
            weight: backend.weight,
            backup: backend.backup,
            active: 0,
            pull: FULL_PULL,
            standing: Standing::new(Check::with_state(State::Up, rise, fall)),
            passive: Passive::default(),
            warms_since: None,
            latency: Latency::default(),
        });
        let seen = Seen {
            backends: backends.collect(),
            max: scenario.max_connections,
            total_active: 0,
            up_weight: 0,
            panic: false,
            warming: false,
            latency: Latency::default(),
        };
        let mut pool = Pool {
            spec,
            tables,
            tickets: AtomicU64::new(0),
            rng: stream(scenario.seed, Stream::Picks),
            backoff_rng: stream(scenario.seed, Stream::Backoff),
            connect: scenario.connect,
            budget: RetryBudget::new(Duration::ZERO),
            times: ConnectTimes::default(),
            threshold: scenario.panic_threshold,
            outlier: scenario.outlier,
            slow_start: scenario.slow_start,
            seen,
        };
        pool.weigh();
        pool
    }

    /// Takes the result of a check that began at `began`.
    pub fn checked(
        &mut self,
        now: Duration,
        index: usize,
        began: Duration,
        passed: bool,
    ) -> Option<Change> {
        let result = CheckResult { began, passed, finds: Failures::FOUND_BY_CONNECT };
        let Backend { standing, passive, .. } = &mut self.seen.backends[index];
        let change = standing.on_check(now, result, passive)?;
        self.follow(now, index, change);
        Some(change)
    }

    /// Looks at a backend: because an outcome asks for it, or because it is due.
    pub fn look(&mut self, now: Duration, index: usize) -> Option<Change> {
        let change = self.judge(now, index);
        if let Some(change) = change {
            self.follow(now, index, change);
        }
        self.warm(now, index);
        change
    }

    fn judge(&mut self, now: Duration, index: usize) -> Option<Change> {
        let outlier = self.outlier?;
        // It is not among the others, but has to be changed beside them.
        let (before, rest) = self.seen.backends.split_at_mut(index);
        let (backend, after) = rest.split_first_mut()?;
        let others = before.iter().chain(&*after);
        let others =
            others.map(|b| (b.weight, b.standing.state(), b.standing.ejection().in_force()));
        let room = || has_room(outlier.max_ejected_percent, others);
        backend.standing.look(now, &outlier.terms, &backend.passive, room)
    }

    /// When a backend is to be looked at even if no outcome asks for it.
    pub fn due(&self, now: Duration, index: usize) -> Option<Duration> {
        let Backend { standing, warms_since, .. } = &self.seen.backends[index];
        let step = warms_since.zip(self.slow_start).and_then(|(since, ramp)| {
            slow_start::next_step(now.saturating_sub(since), ramp).map(|step| since + step)
        });
        [standing.due(), step].into_iter().flatten().min()
    }

    /// Whether the next check of a backend may change its state.
    pub fn in_doubt(&self, index: usize) -> bool {
        self.seen.backends[index].standing.in_doubt()
    }

    /// Whether states are ignored.
    pub fn in_panic(&self) -> bool {
        self.seen.panic
    }

    /// What a change brings with it.
    fn follow(&mut self, now: Duration, index: usize, change: Change) {
        if change.from == change.to {
            return;
        }
        let warms = change.to == State::Up && self.slow_start.is_some();
        self.seen.backends[index].warms_since = warms.then_some(now);
        self.seen.backends[index].pull = FULL_PULL;
        self.warm(now, index);
        self.weigh();
    }

    /// Gives a backend the pull of this moment.
    fn warm(&mut self, now: Duration, index: usize) {
        let backend = &mut self.seen.backends[index];
        if let Some((since, ramp)) = backend.warms_since.zip(self.slow_start) {
            let level = slow_start::level(now.saturating_sub(since), ramp);
            backend.pull = level * slow_start::PERCENT_PER_LEVEL;
            backend.warms_since = Some(since).filter(|_| level < slow_start::LEVELS);
        }
        self.seen.warming = self.seen.backends.iter().any(|backend| backend.pull < FULL_PULL);
    }

    /// After each change of a state.
    fn weigh(&mut self) {
        self.seen.up_weight = self.seen.weight_of(|index| self.seen.serves(index, Stage::PLAIN));
        let backends = &self.seen.backends;
        let is_up = |backend: &Backend| backend.standing.state() == State::Up;
        // With a backup that is up there is no reason to.
        let helped = backends.iter().any(|b| b.backup && b.weight > 0 && is_up(b));
        let states = backends.iter().map(|backend| (backend.weight, backend.standing.state()));
        self.seen.panic = !helped && in_panic(self.threshold, states);
    }
}
