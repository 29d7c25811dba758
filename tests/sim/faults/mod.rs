//! The whole of the health logic under random faults: checks, passive detection with its trials,
//! panic, retry budget, backoff, hedging and slow start, in one pool.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use pointsman::balance::{Policy, PolicyKind};
use pointsman::health::backoff::Backoff;
use pointsman::health::budget::{FLOOR_TOKENS, RetryBudget};
use pointsman::health::hedge::ConnectTimes;
use pointsman::health::outlier::{Failures, Passive, Rate, Terms, Thresholds};
use pointsman::health::{Check, Schedule, Standing, State, slow_start};

mod clients;
mod control;
mod referee;

use clients::Connection;
use referee::Referee;

/// Faults and reloads happen until then.
const TROUBLE: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(1);
const SESSION_MS: u64 = 3_000;
const RAMP: Duration = Duration::from_secs(3);
const RETRY_PERCENT: u8 = 20;
const MS: Duration = Duration::from_millis(1);

/// What happened in a life.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub connections: u32,
    pub served: u32,
    pub retries: u32,
    pub hedges: u32,
    pub exhausted: u32,
    pub panics: u32,
    pub ejected: u32,
    pub ejected_again: u32,
    pub tried: u32,
    pub disproved: u32,
    pub cancelled_trials: u32,
    pub denied: u32,
}

impl Tally {
    /// Adds up several lives.
    pub fn add(&mut self, other: &Tally) {
        self.connections += other.connections;
        self.served += other.served;
        self.retries += other.retries;
        self.hedges += other.hedges;
        self.exhausted += other.exhausted;
        self.panics += other.panics;
        self.ejected += other.ejected;
        self.ejected_again += other.ejected_again;
        self.tried += other.tried;
        self.disproved += other.disproved;
        self.cancelled_trials += other.cancelled_trials;
        self.denied += other.denied;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    CheckStarts(Id),
    /// When it began, and whether it passed.
    CheckEnds(Id, Duration, bool),
    Look(Id),
    Arrival,
    /// Of a connection and its attempt.
    AttemptEnds(u32, u32),
    Hedge(u32, u32),
    Retry(u32),
    Answer(u32),
    Leaves(u32),
    LeaseEnds(u32),
    Turn,
    Reload,
}

/// A backend: its key, and the reload it came with, since one that was removed and added again is
/// another.
type Id = (u32, u32);

/// The truth about a backend, which only checks and connections can find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Refuses,
    /// Packets are dropped.
    Drops,
    /// Connects take long, but succeed.
    Slow,
    /// Half of all connects are refused.
    Flaky,
    /// Accepts and closes.
    Closes,
}

struct Backend {
    life: u32,
    weight: u16,
    fault: Fault,
    standing: Standing,
    passive: Passive,
    schedule: Schedule,
    /// The latest moment a look is planned for.
    planned: Option<Duration>,
    referee: Referee,
}

pub struct World {
    rng: fastrand::Rng,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u32, Event)>>,
    sequence: u32,
    kind: PolicyKind,
    policy: Policy,
    tickets: AtomicU64,
    backends: BTreeMap<u32, Backend>,
    /// Leases by key, of removed backends as well.
    active: BTreeMap<u32, u32>,
    /// What a check would find; `None`: there are no checks.
    finds: Option<Failures>,
    interval: Duration,
    rise: u32,
    fall: u32,
    thresholds: Thresholds,
    terms: Terms,
    max_percent: u8,
    early_close: bool,
    hedges: bool,
    threshold: Option<u8>,
    panic: bool,
    budget: RetryBudget,
    backoff: Backoff,
    times: ConnectTimes,
    connections: BTreeMap<u32, Connection>,
    reloads: u32,
    /// Since the faults have ended for good: what is still allowed to go wrong is nothing.
    calm: bool,
    tally: Tally,
}

impl World {
    /// A pool before its first check.
    pub fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kind = PolicyKind::ALL[rng.usize(..PolicyKind::ALL.len())];
        let base = MS * rng.u32(1000..8000);
        let terms = Terms {
            base_ejection: base,
            max_ejection: base * rng.u32(1..6),
            trial_connections: rng.u8(1..4),
        };
        let finds = [None, Some(Failures::FOUND_BY_CONNECT), Some(Failures::FOUND_BY_ANSWER)];
        let mut world = World {
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            sequence: 0,
            kind,
            policy: control::policy(kind, &BTreeMap::new()),
            tickets: AtomicU64::new(0),
            backends: BTreeMap::new(),
            active: BTreeMap::new(),
            finds: finds[rng.usize(..3)],
            interval: MS * rng.u32(500..3000),
            rise: 1,
            fall: 1,
            thresholds: Thresholds { consecutive: None, rate: None },
            terms,
            max_percent: 0,
            early_close: rng.bool(),
            hedges: rng.bool(),
            threshold: None,
            panic: false,
            budget: RetryBudget::new(Duration::ZERO),
            backoff: Backoff { base: 20 * MS, cap: 500 * MS },
            times: ConnectTimes::default(),
            connections: BTreeMap::new(),
            reloads: 0,
            calm: false,
            tally: Tally::default(),
            rng,
        };
        world.reload();
        world.at(5 * MS, Event::Arrival);
        world.at(900 * MS, Event::Turn);
        world
    }

    /// Lives through trouble, through the recovery after it, and until the last session has ended.
    pub fn live(mut self) -> Tally {
        self.run(TROUBLE);
        self.backends.values_mut().for_each(|backend| backend.fault = Fault::None);
        // What began in trouble may fail for a timeout yet. Then checks rise, and the longest
        // ejection ends with trials, which some clients leave; and the first of them may have hung.
        let checks = self.interval.mul_f64(1.1) * (self.rise + 1);
        let ejections = self.terms.max_ejection + self.terms.base_ejection + 10_000 * MS;
        self.run(TROUBLE + 3 * TIMEOUT + checks.max(ejections) + RAMP);
        self.assert_recovered();
        self.calm = true;
        self.run(self.now + 2000 * MS);
        self.assert_recovered();
        let earned = u64::from(self.tally.connections) * u64::from(RETRY_PERCENT);
        let spent = u64::from(self.tally.retries + self.tally.hedges) * 100;
        assert!(spent <= FLOOR_TOKENS * 100 + earned + self.now.as_millis() as u64);
        self.events.retain(|Reverse((_, _, event))| *event != Event::Arrival);
        self.run(self.now + MS * SESSION_MS as u32 + 2 * TIMEOUT);
        assert!(self.active.is_empty(), "leases are left: {:?}", self.active);
        assert!(self.connections.is_empty(), "connections are left");
        self.tally
    }

    fn run(&mut self, until: Duration) {
        while let Some(Reverse((time, _, _))) = self.events.peek() {
            if *time > until {
                break;
            }
            assert!(*time >= self.now, "time runs backwards");
            let Some(Reverse((time, _, event))) = self.events.pop() else { break };
            self.now = time;
            self.handle(event);
        }
        self.now = until;
    }

    fn at(&mut self, time: Duration, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.at(self.now + wait, event);
    }

    fn after_ms(&mut self, range: std::ops::Range<u64>, event: Event) {
        let wait = Duration::from_millis(self.rng.u64(range));
        self.after(wait, event);
    }

    fn handle(&mut self, event: Event) {
        let trouble = self.now < TROUBLE;
        match event {
            Event::CheckStarts(id) => self.start_check(id),
            Event::CheckEnds(id, began, passed) => self.end_check(id, began, passed),
            Event::Look(id) => self.look(id),
            Event::Arrival => self.arrive(),
            Event::AttemptEnds(connection, attempt) => self.end_attempt(connection, attempt),
            Event::Hedge(connection, attempt) => self.hedge(connection, attempt),
            Event::Retry(connection) => self.retry(connection),
            Event::Answer(connection) => self.answer(connection),
            Event::Leaves(connection) => self.leave(connection),
            Event::LeaseEnds(key) => self.end_lease(key),
            Event::Turn if trouble => self.turn(),
            Event::Reload if trouble => self.reload(),
            Event::Turn | Event::Reload => {}
        }
    }

    /// One backend turns bad or good, or now and then all of them alike.
    fn turn(&mut self) {
        use Fault::{Closes, Drops, Flaky, None, Refuses, Slow};
        let faults = [None, None, None, None, Refuses, Refuses, Drops, Slow, Flaky, Closes];
        let (all, fault) = (self.rng.u32(..12) == 0, faults[self.rng.usize(..faults.len())]);
        let chosen = self.rng.usize(..self.backends.len());
        for (index, backend) in self.backends.values_mut().enumerate() {
            if all || index == chosen {
                backend.fault = fault;
            }
        }
        self.after_ms(1..2000, Event::Turn);
    }

    /// Other backends, weights and numbers; who stays, stays as it is.
    fn reload(&mut self) {
        self.reloads += 1;
        (self.rise, self.fall) = (self.rng.u32(1..4), self.rng.u32(1..5));
        self.threshold = [None, Some(0), Some(50), Some(100)][self.rng.usize(..4)];
        self.max_percent = [10, 34, 50, 50, 75, 100][self.rng.usize(..6)];
        let window = self.rng.u16(4..40);
        let rate = Rate { percent: self.rng.u8(30..80), window, volume: window / 2 };
        let consecutive = self.rng.bool().then(|| self.rng.u16(1..5));
        let rate = Some(rate).filter(|_| consecutive.is_none() || self.rng.bool());
        self.thresholds = Thresholds { consecutive, rate };
        let wanted = self.rng.usize(1..10);
        let keys = self.rng.choose_multiple(0..10u32, wanted);
        self.backends.retain(|key, _| keys.contains(key));
        for (index, key) in keys.into_iter().enumerate() {
            let weight = [0, 1, 1, 1, 2, 5][self.rng.usize(..6)];
            let (rise, fall) = (self.rise, self.fall);
            if let Some(backend) = self.backends.get_mut(&key) {
                backend.weight = weight;
                backend.standing.set_thresholds(rise, fall);
                continue;
            }
            let state = if self.finds.is_some() { State::Unknown } else { State::Up };
            let schedule = Schedule::new(self.interval, self.interval / 4, index, wanted, self.now);
            if self.finds.is_some() {
                self.at(schedule.due(), Event::CheckStarts((key, self.reloads)));
            }
            let backend = Backend {
                life: self.reloads,
                weight,
                fault: if self.rng.u32(..5) > 0 { Fault::None } else { Fault::Refuses },
                standing: Standing::new(Check::with_state(state, rise, fall)),
                passive: Passive::default(),
                schedule,
                planned: None,
                referee: Referee::default(),
            };
            self.backends.insert(key, backend);
        }
        self.policy = control::policy(self.kind, &self.backends);
        self.decide_panic();
        self.after_ms(1..9000, Event::Reload);
    }

    /// Trouble is over: everything is up and has its full share, nothing in panic.
    fn assert_recovered(&self) {
        for (key, Backend { standing, weight, passive, .. }) in &self.backends {
            // Nobody tries what gets no connections.
            if *weight > 0 {
                assert_eq!(standing.state(), State::Up, "{key}: {standing:?}");
                assert!(!standing.ejection().in_force() && !passive.trials.available());
                assert_eq!(standing.due(), None);
            }
            let level = |since| slow_start::level(self.now - since, RAMP);
            assert_eq!(standing.came_up().map_or(slow_start::LEVELS, level), slow_start::LEVELS);
        }
        let weight: u32 = self.backends.values().map(|backend| u32::from(backend.weight)).sum();
        assert!(!self.panic || weight == 0);
    }
}
