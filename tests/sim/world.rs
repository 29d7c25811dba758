//! One pool, its backends, its clients and what befalls them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use pointsman::balance::latency::Latency;
use pointsman::balance::{Bound, Member, Policy, PolicyKind, Spec, View, key::KeyKind};
use pointsman::health::{Check, Schedule, State, in_panic};

use super::oracle::Oracle;

/// Faults, flaps and reloads happen until then.
const TROUBLE: Duration = Duration::from_secs(60);
/// Longest session.
const SESSION_MS: u64 = 5_000;
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 3;

/// What happened in a life.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub picks: u32,
    pub retries: u32,
    pub no_backend: u32,
    pub transitions: u32,
    pub panics: u32,
    pub reloads: u32,
}

/// What befalls the pool, with the key of the backend it befalls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    CheckStarts(String, u32),
    CheckEnds(String, u32, bool, Duration),
    Arrival,
    SessionEnds(String),
    /// A backend fails or comes back.
    Turn,
    Reload,
}

struct Backend {
    weight: u16,
    /// The truth, which only checks and connections can find out.
    healthy: bool,
    check: Check,
    schedule: Schedule,
    /// When the latest check began, or the next one will; another timer is an old one.
    turn: Duration,
    latency: Latency,
    oracle: Oracle,
    /// Tells the events of a backend from those of a removed one at the same address.
    life: u32,
}

pub struct World {
    rng: fastrand::Rng,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u32, Event)>>,
    /// Orders simultaneous events.
    sequence: u32,
    spec: Spec,
    policy: Policy,
    tickets: AtomicU64,
    /// By key, which is the order of the view.
    backends: BTreeMap<String, Backend>,
    /// Sessions by backend, those of removed backends included.
    active: BTreeMap<String, u32>,
    interval: Duration,
    rise: u32,
    fall: u32,
    threshold: Option<u8>,
    panic: bool,
    /// Mean latency of the pool.
    latency: Latency,
    tally: Tally,
}

/// What a pick sees: weight, whether it is usable, sessions, latency.
struct Candidates(Vec<(u16, bool, u32, u64)>);

impl View for Candidates {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn usable(&self, index: usize) -> bool {
        self.0[index].1
    }

    fn active(&self, index: usize) -> u32 {
        self.0[index].2
    }

    fn weight(&self, index: usize) -> u16 {
        self.0[index].0
    }

    fn latency(&self, index: usize) -> u64 {
        self.0[index].3
    }
}

impl World {
    /// A pool before its first check.
    pub fn new(policy: PolicyKind, seed: u64) -> Self {
        // Every other seed, where it means something.
        let bounded_load = Bound::new(1250).filter(|_| policy.hashes() && seed % 2 == 1);
        let spec = Spec { policy, key: KeyKind::FiveTuple, table_size: 251, bounded_load };
        let mut world = World {
            rng: fastrand::Rng::with_seed(seed),
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            sequence: 0,
            spec,
            policy: Policy::new(&spec, &[]).expect("an empty pool can be built"),
            tickets: AtomicU64::new(0),
            backends: BTreeMap::new(),
            active: BTreeMap::new(),
            interval: Duration::from_secs(2),
            rise: 2,
            fall: 3,
            threshold: None,
            panic: false,
            latency: Latency::default(),
            tally: Tally::default(),
        };
        world.reload();
        world.at(Duration::from_millis(5), Event::Arrival);
        world.at(Duration::from_millis(900), Event::Turn);
        world
    }

    /// Lives through trouble, through the recovery after it, and until the last session has ended.
    pub fn live(mut self) -> Tally {
        self.run(TROUBLE);
        self.backends.values_mut().for_each(|backend| backend.healthy = true);
        // A check may just have failed; then `rise` checks of at most 1.1 intervals each pass.
        self.run(self.now + CHECK_TIMEOUT + self.interval.mul_f64(1.1) * (self.rise + 1));
        self.assert_recovered();
        self.assert_shares();
        self.run(self.now + Duration::from_millis(SESSION_MS));
        assert!(self.active.is_empty(), "sessions are left: {:?}", self.active);
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

    fn after_ms(&mut self, range: std::ops::Range<u64>, event: Event) {
        let wait = Duration::from_millis(self.rng.u64(range));
        self.at(self.now + wait, event);
    }

    fn handle(&mut self, event: Event) {
        let trouble = self.now < TROUBLE;
        match event {
            Event::CheckStarts(key, life) => self.start_check(key, life),
            Event::CheckEnds(key, life, passed, started) => {
                self.end_check(&key, life, passed, started);
            }
            Event::Arrival if trouble => {
                self.connect();
                self.after_ms(1..60, Event::Arrival);
            }
            Event::SessionEnds(key) => self.end_session(&key),
            Event::Turn if trouble => {
                self.turn();
                self.after_ms(1..3000, Event::Turn);
            }
            Event::Reload if trouble => self.reload(),
            Event::Arrival | Event::Turn | Event::Reload => {}
        }
    }

    /// One backend fails or recovers, or now and then all of them at once.
    fn turn(&mut self) {
        let all = self.rng.u32(..12) == 0;
        let (healthy, chosen) = (self.rng.bool(), self.rng.usize(..self.backends.len()));
        for (index, backend) in self.backends.values_mut().enumerate() {
            if all {
                backend.healthy = healthy;
            } else if index == chosen {
                backend.healthy = !backend.healthy;
            }
        }
    }

    /// Other backends, weights and numbers; who stays, stays as it is.
    fn reload(&mut self) {
        self.tally.reloads += 1;
        self.interval = Duration::from_millis(self.rng.u64(500..3000));
        (self.rise, self.fall) = (self.rng.u32(1..4), self.rng.u32(1..5));
        self.threshold = [None, Some(0), Some(50), Some(100)][self.rng.usize(..4)];
        let wanted = self.rng.usize(1..8);
        let chosen = self.rng.choose_multiple(0..10u32, wanted);
        // A ring has points for each unit of weight, and every reload builds it.
        let heavy = if self.spec.policy == PolicyKind::Ring { 20 } else { 256 };
        let keys: Vec<_> = chosen.iter().map(|n| format!("10.0.0.{n}:443")).collect();
        self.backends.retain(|key, _| keys.contains(key));
        for (index, key) in keys.into_iter().enumerate() {
            let weight = [0, 1, 1, 1, 2, 5, heavy][self.rng.usize(..7)];
            let healthy = self.rng.u32(..5) > 0;
            if let Some(backend) = self.backends.get_mut(&key) {
                backend.weight = weight;
                backend.check.set_thresholds(self.rise, self.fall);
                // Another interval is another probe, as in the process.
                backend.schedule =
                    Schedule::new(self.interval, self.interval / 4, index, wanted, self.now);
                let (due, life) = (backend.schedule.due(), backend.life);
                backend.turn = due;
                self.at(due, Event::CheckStarts(key, life));
                continue;
            }
            let life = self.tally.reloads;
            let schedule = Schedule::new(self.interval, self.interval / 4, index, wanted, self.now);
            let check = Check::new(self.rise, self.fall);
            let oracle = Oracle::new();
            self.at(schedule.due(), Event::CheckStarts(key.clone(), life));
            let latency = Latency::default();
            let turn = schedule.due();
            let backend = Backend { weight, healthy, check, schedule, turn, latency, oracle, life };
            self.backends.insert(key, backend);
        }
        let members: Vec<_> =
            self.backends.iter().map(|(key, b)| Member { key, weight: b.weight }).collect();
        self.policy = Policy::new(&self.spec, &members).expect("at most 8 backends");
        self.decide_panic();
        self.after_ms(1..9000, Event::Reload);
    }

    fn start_check(&mut self, key: String, life: u32) {
        let Some(backend) = self.backends.get_mut(&key).filter(|b| b.life == life) else {
            return;
        };
        // A reload has set the timer again: this may be the old one.
        if backend.turn != self.now {
            return;
        }
        let passed = backend.healthy;
        let took = Duration::from_millis(if passed { 1 } else { self.rng.u64(1..1000) });
        self.at(self.now + took, Event::CheckEnds(key, life, passed, self.now));
    }

    fn end_check(&mut self, key: &str, life: u32, passed: bool, started: Duration) {
        let Some(backend) = self.backends.get_mut(key).filter(|b| b.life == life) else {
            return;
        };
        let change = backend.check.on_result(passed);
        backend.oracle.judge(passed, self.rise, self.fall, change);
        assert_eq!(backend.check.state(), backend.oracle.state());
        // A reload may have set the timer again meanwhile.
        if backend.turn == started {
            backend.schedule.advance(started, backend.check.in_doubt(), &mut self.rng);
            backend.turn = backend.schedule.due().max(self.now);
            assert!(backend.turn > started, "two checks at once");
            let next = backend.turn;
            self.at(next, Event::CheckStarts(key.to_owned(), life));
        }
        if change.is_some() {
            self.tally.transitions += 1;
            self.decide_panic();
        }
    }

    fn decide_panic(&mut self) {
        let states = self.backends.values().map(|b| (b.weight, b.check.state()));
        let panic = in_panic(self.threshold, states);
        self.tally.panics += u32::from(panic && !self.panic);
        self.panic = panic;
    }

    fn candidates(&self, tried: &[usize]) -> Candidates {
        let candidate = |(index, (key, backend)): (usize, (&String, &Backend))| {
            let up = backend.check.state() == State::Up || self.panic;
            let usable = backend.weight > 0 && up && !tried.contains(&index);
            let active = self.active.get(key).copied().unwrap_or(0);
            let latency = backend.latency.estimate(self.now, self.latency.average());
            (backend.weight, usable, active, latency)
        };
        Candidates(self.backends.iter().enumerate().map(candidate).collect())
    }

    /// A client: picks until a backend answers, a different one each time.
    fn connect(&mut self) {
        let (hash, mut tried) = (self.rng.u64(..), Vec::new());
        while tried.len() < ATTEMPTS {
            let view = self.candidates(&tried);
            let picked = self.policy.pick(&view, hash, &self.tickets, &mut self.rng);
            let Some(index) = picked else {
                assert!(!view.0.iter().any(|c| c.1), "nothing picked, though something is usable");
                self.tally.no_backend += u32::from(tried.is_empty());
                return;
            };
            self.tally.picks += 1;
            self.tally.retries += u32::from(!tried.is_empty());
            let (key, backend) = self.backends.iter().nth(index).expect("an index of the view");
            assert!(backend.weight > 0, "weight 0 was picked");
            assert!(!tried.contains(&index), "picked twice");
            assert!(self.panic || backend.check.state() == State::Up, "picked while not up");
            if backend.healthy {
                let took = Duration::from_micros(self.rng.u64(50..50_000));
                backend.latency.record_peak(self.now, took);
                self.latency.record_mean(self.now, took);
                let key = key.clone();
                *self.active.entry(key.clone()).or_default() += 1;
                self.after_ms(1..SESSION_MS, Event::SessionEnds(key));
                return;
            }
            tried.push(index);
        }
    }

    fn end_session(&mut self, key: &str) {
        let active = self.active.get_mut(key).expect("a session that ends was counted");
        *active = active.checked_sub(1).expect("never below zero");
        if *active == 0 {
            self.active.remove(key);
        }
    }

    /// Trouble is over: everything is up again, nothing in panic, without a restart.
    fn assert_recovered(&self) {
        for (key, backend) in &self.backends {
            assert_eq!(backend.check.state(), State::Up, "{key}");
        }
        assert!(!self.panic);
    }

    /// With everything up: round robin is exact over a cycle, hashes are sticky.
    fn assert_shares(&mut self) {
        let view = self.candidates(&[]);
        let weights: Vec<u64> = view.0.iter().map(|&(weight, ..)| weight.into()).collect();
        let total: u64 = weights.iter().sum();
        let mut counts = vec![0; weights.len()];
        for hash in 0..total {
            let mut pick = || self.policy.pick(&view, hash, &self.tickets, &mut self.rng);
            let picked = pick().expect("everything is up");
            counts[picked] += 1;
            if self.spec.policy.hashes() {
                assert_eq!(pick(), Some(picked));
            }
        }
        // Σ weights is a whole number of cycles, wherever the tickets stand.
        if self.spec.policy == PolicyKind::RoundRobin {
            assert_eq!(counts, weights);
        }
    }
}
