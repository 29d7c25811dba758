use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::AtomicU64 as Counter;

use proptest::prelude::*;

use super::*;
use crate::health::outlier::{Failure, Recorder, Thresholds};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// Spends until nothing is left; how many it was.
fn drain(budget: &RetryBudget, now: Duration) -> u64 {
    (0..MOST).take_while(|_| budget.spend(now)).count() as u64
}

/// `rate` connections a second for `time`, evenly, each asking for `retries`; granted ones.
fn load(
    budget: &RetryBudget,
    begin: Duration,
    time: Duration,
    rate: u32,
    percent: u8,
    retries: u32,
) -> u64 {
    let mut granted = 0;
    for index in 0..(f64::from(rate) * time.as_secs_f64()) as u32 {
        let now = begin + S * index / rate;
        budget.earn(now, percent);
        granted += (0..retries).take_while(|_| budget.spend(now)).count() as u64;
    }
    granted
}

#[test]
fn starts_full() {
    let budget = RetryBudget::new(7 * S);
    assert_eq!(budget.tokens(), 100);
    assert_eq!(drain(&budget, 7 * S), 100);
    assert!(!budget.spend(7 * S));
}

#[test]
fn floor_is_ten_a_second() {
    let budget = RetryBudget::new(Duration::ZERO);
    drain(&budget, Duration::ZERO);
    assert!(!budget.spend(99 * MS));
    assert!(budget.spend(100 * MS));
    assert_eq!(drain(&budget, 5100 * MS), 50);
    assert_eq!(drain(&budget, 3600 * S), 100, "10 s of it are all that is kept");
    // Also where connections earn next to nothing; the last one comes after 9.95 s.
    assert_eq!(load(&budget, 3600 * S, 10 * S, 20, 1, 1), 99);
}

/// The floor and the share do not add up.
#[test]
fn the_greater_of_floor_and_share() {
    for (rate, percent, expected) in
        [(100, 20, 200), (1000, 20, 2000), (10, 20, 100), (1000, 0, 100)]
    {
        let budget = RetryBudget::new(Duration::ZERO);
        drain(&budget, Duration::ZERO);
        let granted = load(&budget, Duration::ZERO, 10 * S, rate, percent, 3);
        assert!(granted.abs_diff(expected) <= 2 + expected / 50, "{rate} {percent}: {granted}");
    }
}

/// Full is what 5 s earn, and the floor, to 50 tokens for the rounding; it comes with use and goes
/// without.
#[test]
fn full_is_what_five_seconds_earn() {
    for (rate, percent, expected) in
        [(10, 20, 110), (1000, 20, 1100), (10_000, 20, 10_100), (1000, 100, 5100)]
    {
        let budget = RetryBudget::new(Duration::ZERO);
        load(&budget, Duration::ZERO, 30 * S, rate, percent, 0);
        let full = budget.tokens();
        assert!(full.abs_diff(expected) <= 52, "{rate} {percent}: {full}");
        assert_eq!(drain(&budget, 35 * S), 100, "all connections ended 5 s ago");
    }
}

/// The requirement: every backend refuses, 1,000 connections a second. From the second second on,
/// 1.3 attempts each at most: a pool that was just started, and one with a full budget; whether
/// each connection asks for one retry or for many; over one more second or a minute.
#[test]
fn no_storm() {
    for warm in [false, true] {
        for retries in [1, 2, 15] {
            let budget = RetryBudget::new(Duration::ZERO);
            if warm {
                load(&budget, Duration::ZERO, 60 * S, 1000, 20, 0);
            }
            load(&budget, 60 * S, S, 1000, 20, retries);
            let mut granted = 0;
            for second in 1..=60 {
                granted += load(&budget, (60 + second) * S, S, 1000, 20, retries);
                let attempts = 1.0 + granted as f64 / f64::from(second * 1000);
                // One retry each: the full budget lasts 0.3 s into the second second.
                let most = if second == 1 && warm && retries == 1 { 1.5 } else { 1.3 };
                assert!(attempts <= most, "{warm} {retries}: {attempts} after {second} s");
            }
            let attempts = 1.0 + granted as f64 / 60_000.0;
            assert!(
                attempts >= 1.19,
                "{warm} {retries}: {attempts}; the budget is there to be used"
            );
        }
    }
}

/// Two backends in turns, one of which fails each attempt after `fails_after`; control takes
/// 20 ms to eject it after an alarm. How many connections found no retry.
fn lost(rate: u32, warm: bool, fails_after: Duration) -> usize {
    let begin = 60 * S;
    let budget = RetryBudget::new(if warm { Duration::ZERO } else { begin });
    if warm {
        load(&budget, Duration::ZERO, begin, rate, 20, 0);
    }
    let (recorder, mut ejected) = (Recorder::default(), Duration::MAX);
    let thresholds = Thresholds { consecutive: Some(3), rate: None };
    // Failures to come, the earliest on top.
    let (mut failing, mut lost) = (BinaryHeap::new(), 0);
    for index in 0..rate * 10 {
        let now = begin + S * index / rate;
        while let Some(Reverse(at)) = failing.pop_if_due(now) {
            if recorder.record(Err(Failure::Connect), &thresholds) {
                ejected = ejected.min(at + 20 * MS);
            }
            lost += usize::from(!budget.spend(at));
        }
        budget.earn(now, 20);
        if index % 2 == 0 && now < ejected {
            failing.push(Reverse(now + fails_after));
        }
    }
    assert!(ejected < Duration::MAX && failing.is_empty());
    lost
}

trait PopIfDue {
    fn pop_if_due(&mut self, now: Duration) -> Option<Reverse<Duration>>;
}

impl PopIfDue for BinaryHeap<Reverse<Duration>> {
    fn pop_if_due(&mut self, now: Duration) -> Option<Reverse<Duration>> {
        self.peek().filter(|Reverse(at)| *at <= now)?;
        self.pop()
    }
}

/// The requirement: with one of two backends dead nothing is lost until it is ejected. Refused, at
/// any rate; with packets dropped for the connect timeout, at any rate once the pool has been in
/// use, and up to 500 connections a second at the start.
#[test]
fn one_of_two_dead_loses_nothing() {
    for rate in [1, 10, 100, 500, 1000, 10_000] {
        for warm in [false, true] {
            assert_eq!(lost(rate, warm, Duration::ZERO), 0, "{rate} {warm}: refused");
            if warm || rate <= 1000 {
                assert_eq!(lost(rate, warm, 100 * MS), 0, "{rate} {warm}: slowly refused");
            }
            if warm || rate <= 500 {
                assert_eq!(lost(rate, warm, S), 0, "{rate} {warm}: dropped");
            }
        }
        assert_eq!(lost(rate, true, 2 * S), 0, "{rate}: dropped for 2 s");
    }
}

/// Each token is spent by one.
#[test]
fn threads_share_the_tokens() {
    let (budget, granted) = (RetryBudget::new(Duration::ZERO), Counter::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    budget.earn(Duration::ZERO, 5);
                    granted.fetch_add(u64::from(budget.spend(Duration::ZERO)), Relaxed);
                }
            });
        }
    });
    let granted = granted.load(Relaxed) + drain(&budget, Duration::ZERO);
    assert_eq!(granted, 100 + 4 * 10_000 * 5 / 100);
}

#[test]
fn extremes() {
    let budget = RetryBudget::new(Duration::MAX);
    assert_eq!(drain(&budget, Duration::ZERO), 100, "an older clock spends what is there");
    assert!(!budget.spend(Duration::MAX));
    let budget = RetryBudget::new(Duration::ZERO);
    for _ in 0..MOST / 255 + 2 {
        budget.earn(Duration::ZERO, 255);
    }
    assert_eq!(budget.tokens(), MOST / TOKEN);
    assert!(budget.spend(Duration::MAX));
    assert_eq!(budget.tokens(), 99);
}

proptest! {
    /// Whatever comes in whatever order: never more than started with, was earned and is always
    /// allowed.
    #[test]
    fn never_more_than_earned(
        steps in prop::collection::vec((0..400u64, any::<bool>(), 0..=100u8), 0..300),
    ) {
        let budget = RetryBudget::new(Duration::ZERO);
        let (mut now, mut spent, mut shares) = (0, 0, 0);
        for (later, spends, percent) in steps {
            now += later;
            if spends {
                spent += u64::from(budget.spend(MS * now as u32));
            } else {
                budget.earn(MS * now as u32, percent);
                shares += u64::from(percent);
            }
            prop_assert!(spent * TOKEN <= FLOOR_TOKENS * TOKEN + shares + now);
        }
    }
}
