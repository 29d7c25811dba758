//! Known answers, and what must hold whatever is simulated.

use std::time::Duration;

use super::report::Failure;
use super::scenario::{Incident, Load, Outlier, Turn};
use super::*;
use crate::balance::key::KeyKind;
use crate::balance::{Bound, PolicyKind};
use crate::health::State;
use crate::health::connect::HedgeAfter;
use crate::health::outlier::Rate;

mod attempts;
mod ejections;
mod failures;
mod known_answers;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

pub(super) fn spec(policy: PolicyKind, key: KeyKind) -> Spec {
    Spec { policy, key, table_size: 65_537, bounded_load: None }
}

fn by_source(policy: PolicyKind) -> Spec {
    spec(policy, KeyKind::Source)
}

fn closed(clients: usize) -> Load {
    Load::Closed(clients, Distribution::NONE)
}

fn run(scenario: &Scenario, policy: PolicyKind) -> Report {
    run_all(scenario, &[policy]).remove(0)
}

fn run_all(scenario: &Scenario, policies: &[PolicyKind]) -> Vec<Report> {
    let specs: Vec<Spec> = policies.iter().map(|&policy| by_source(policy)).collect();
    let reports = Simulation::new(scenario.clone(), &specs).unwrap().run().unwrap();
    reports.iter().for_each(assert_adds_up);
    reports
}

#[track_caller]
fn assert_adds_up(report: &Report) {
    assert_eq!(report.offered, report.completed + report.failures() + report.open, "{report:?}");
    let completed: u64 = report.backends.iter().map(|backend| backend.completed).sum();
    assert_eq!(completed, report.completed);
    let attempts: u64 = report.backends.iter().map(|backend| backend.picked).sum();
    let turned_away = report.failed[Failure::NoBackend as usize];
    let turned_away = turned_away + report.failed[Failure::Overload as usize];
    assert_eq!(attempts, report.offered - turned_away + report.retries + report.hedges);
    let share: f64 = report.backends.iter().map(|backend| backend.share).sum();
    assert!((share - 1.0).abs() < 1e-9 || report.offered == 0, "{share}");
    assert_eq!(report.load.backends.len(), report.backends.len());
}

fn exponential(ms: u32) -> Distribution {
    Distribution::Exponential(ms * MS)
}

#[test]
fn equal_seeds_give_equal_reports() {
    let service = Distribution::LogNormal(5 * MS, 1.0);
    let mut scenario = Scenario::new(5, 4, service, Load::Open(2000.0));
    scenario.duration = Some(10 * SECOND);
    scenario.incidents = vec![Incident { backend: 1, at: 3 * SECOND, turn: Turn::Killed }];
    for policy in PolicyKind::ALL {
        assert_eq!(run(&scenario, policy), run(&scenario, policy), "{policy}");
    }
    let other = Scenario { seed: 1, ..scenario.clone() };
    assert_ne!(run(&scenario, PolicyKind::P2c), run(&other, PolicyKind::P2c));
}

/// Whatever a policy does, the others meet the same arrivals and service times: with so many slots
/// that nobody waits, the latencies are the same, one by one.
#[test]
fn policies_meet_the_same_chance() {
    let mut scenario = Scenario::new(7, 1_000_000, exponential(5), Load::Open(1000.0));
    scenario.requests = Some(20_000);
    let reports = run_all(&scenario, &PolicyKind::ALL);
    for report in &reports {
        assert_eq!(report.latency, reports[0].latency, "{}", report.policy);
        assert_eq!(report.elapsed, reports[0].elapsed, "{}", report.policy);
    }
}

/// One queue with random arrivals and service is solved: M/M/1 by 1 ÷ (1 − ρ), M/M/4 by Erlang's
/// C, M/D/1 by Pollaczek and Khinchine.
#[test]
fn queues_are_as_theory_has_them() {
    let check = |slots, service: Distribution, rate: f64, expected_ms: f64| {
        let mut scenario = Scenario::new(1, slots, service, Load::Open(rate));
        scenario.requests = Some(400_000);
        scenario.checks = None;
        let report = run(&scenario, PolicyKind::RoundRobin);
        let mean = report.latency.unwrap().mean.as_secs_f64() * 1e3;
        assert!((mean / expected_ms - 1.0).abs() < 0.04, "{slots} {service}: {mean}");
        // Little's law, on the chart: λ × W requests under way.
        let under_way = &report.load.backends[0];
        let under_way = under_way.iter().sum::<f64>() / under_way.len() as f64;
        assert!((under_way / (rate * mean / 1e3) - 1.0).abs() < 0.04, "{under_way}");
    };
    check(1, exponential(1), 700.0, 1.0 / 0.3);
    // ρ = 0.7 on 4 slots: C = 0.42870; W = 1 + C ÷ (4 × 0.3).
    check(4, exponential(1), 2800.0, 1.0 + 0.42870 / 1.2);
    // 1 + ρ ÷ (2 × (1 − ρ)).
    check(1, Distribution::Constant(MS), 700.0, 1.0 + 0.7 / 0.6);
}

#[test]
fn weights_are_followed() {
    let mut scenario = Scenario::new(3, 100, exponential(5), Load::Open(1000.0));
    scenario.requests = Some(20_000);
    for (backend, weight) in scenario.backends.iter_mut().zip([1, 0, 3]) {
        backend.weight = weight;
    }
    for report in run_all(&scenario, &PolicyKind::ALL) {
        let shares: Vec<f64> = report.backends.iter().map(|backend| backend.share).collect();
        let exact = matches!(report.policy, PolicyKind::RoundRobin | PolicyKind::Random);
        let bound = if exact { 0.015 } else { 0.1 };
        assert!((shares[2] - 0.75).abs() < bound, "{}: {shares:?}", report.policy);
        assert_eq!(shares[1], 0.0);
        assert!(report.max_over_mean.unwrap() >= 1.0 - 1e-9);
    }
}

/// One client with half of the traffic fills its backend; bounded load does not let it.
#[test]
fn bounded_load_tames_a_hot_key() {
    let mut scenario = Scenario::new(10, 1000, exponential(50), Load::Open(2000.0));
    scenario.duration = Some(10 * SECOND);
    scenario.hot = 0.5;
    for policy in PolicyKind::ALL.into_iter().filter(|policy| policy.hashes()) {
        let plain = by_source(policy);
        let bounded = Spec { bounded_load: Bound::new(1250), ..plain };
        let reports = Simulation::new(scenario.clone(), &[plain, bounded]).unwrap().run().unwrap();
        let most: Vec<f64> = reports.iter().map(|r| r.max_over_mean.unwrap()).collect();
        assert!(most[0] > 5.0 && most[1] < 1.35, "{policy}: {most:?}");
        // 100 under way in all; ⌈1.25 × …⌉ of a tenth of the peak.
        let peak = |report: &Report| report.backends.iter().map(|b| b.most_active).max().unwrap();
        assert!(peak(&reports[0]) > 50 && peak(&reports[1]) <= 20, "{policy}");
    }
}

#[test]
fn thinking_clients_are_slower() {
    let mut scenario = Scenario::new(1, 10, Distribution::Constant(10 * MS), closed(5));
    scenario.load = Load::Closed(5, Distribution::Constant(40 * MS));
    scenario.duration = Some(SECOND);
    let report = run(&scenario, PolicyKind::LeastConn);
    // Each client one request in 50 ms; the next five are issued as time is over.
    assert_eq!((report.completed, report.open, report.elapsed), (100, 5, SECOND));
}

#[test]
fn time_over_leaves_requests_open() {
    let mut scenario = Scenario::new(2, 1, Distribution::Constant(30 * MS), closed(4));
    scenario.duration = Some(100 * MS);
    let report = run(&scenario, PolicyKind::RoundRobin);
    assert_eq!((report.offered, report.completed, report.open), (10, 6, 4));
    scenario.duration = Some(10 * MS);
    let report = run(&scenario, PolicyKind::RoundRobin);
    assert_eq!((report.offered, report.completed, report.open), (4, 0, 4));
    assert_eq!(report.latency, None);
    // Whichever end is first.
    scenario.requests = Some(2);
    scenario.duration = Some(SECOND);
    let report = run(&scenario, PolicyKind::RoundRobin);
    assert_eq!((report.offered, report.completed, report.elapsed), (2, 2, 30 * MS));
}

#[test]
fn nonsense_is_refused() {
    let good = {
        let mut scenario = Scenario::new(3, 4, exponential(5), Load::Open(100.0));
        scenario.duration = Some(SECOND);
        scenario
    };
    let check = |change: &dyn Fn(&mut Scenario), expected: &str| {
        let mut scenario = good.clone();
        change(&mut scenario);
        let error = Simulation::new(scenario, &[by_source(PolicyKind::Random)]).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}, not {expected}");
    };
    check(&|s| s.backends.clear(), "0 backends");
    check(&|s| s.backends = vec![Default::default(); 10_001], "10001 backends");
    check(&|s| s.backends[1].weight = 257, "weight 257");
    check(&|s| s.backends.iter_mut().for_each(|b| b.weight = 0), "all weights are 0");
    check(&|s| s.backends[0].factor = 0.0, "a backend 0 times slower");
    check(&|s| s.backends[0].factor = f64::NAN, "a backend NaN times slower");
    check(&|s| s.backends[0].factor = 1e7, "a backend 10000000 times slower");
    check(&|s| s.backends[0].stall = 25 * 3600 * SECOND, "a time longer");
    check(&|s| s.slots = 0, "0 slots");
    check(&|s| s.slots = usize::MAX, "18446744073709551615 slots");
    check(&|s| s.load = Load::Open(f64::NAN), "a rate of NaN");
    check(&|s| s.load = Load::Open(-1.0), "a rate of -1");
    check(&|s| s.load = Load::Open(1e8), "about 100000000 requests");
    check(&|s| s.load = closed(0), "0 clients");
    check(&|s| s.load = closed(2_000_000), "2000000 clients");
    check(&|s| s.requests = Some(0), "0 requests");
    check(&|s| s.requests = Some(u64::MAX), "18446744073709551615 requests");
    check(&|s| s.duration = None, "no end");
    check(&|s| s.duration = Some(Duration::ZERO), "a duration of 0");
    check(&|s| s.duration = Some(Duration::MAX), "a duration longer than 30 days");
    check(&|s| s.hop = 500 * MS, "two hops take as long as the timeout of a connect");
    check(&|s| s.hop = Duration::MAX, "a time longer");
    check(&|s| s.checks.as_mut().unwrap().timeout = Duration::ZERO, "two hops take as long");
    check(&|s| s.checks.as_mut().unwrap().interval = Duration::ZERO, "a check interval of 0");
    check(&|s| s.checks.as_mut().unwrap().rise = 0, "rise and fall");
    check(&|s| s.panic_threshold = Some(101), "a panic threshold of 101 %");
    check(&|s| s.connect.attempts = 0, "0 attempts");
    check(&|s| s.connect.attempts = 17, "17 attempts");
    check(&|s| s.connect.total_timeout = 2 * s.hop, "two hops take as long as the timeout of all");
    check(&|s| s.connect.hedge_after = HedgeAfter::After(Duration::MAX), "a time longer");
    check(&|s| s.connect.retry_budget = Some(101), "a retry budget of 101 %");
    check(&|s| s.slow_start = Some(Duration::MAX), "a time longer");
    check(&|s| s.max_connections = Some(0), "no connection to a backend at all");
    check(&|s| s.backends.iter_mut().for_each(|b| b.backup = true), "all backends are backups");
    let outlier = |change: &dyn Fn(&mut Outlier), expected: &str| {
        check(&|s| change(s.outlier.as_mut().unwrap()), expected);
    };
    let rate = |percent, window, volume| Some(Rate { percent, window, volume });
    outlier(&|o| o.thresholds.consecutive = Some(0), "0 failures in a row");
    outlier(&|o| o.thresholds.rate = rate(0, 100, 20), "a failure rate of 0 %");
    outlier(&|o| o.thresholds.rate = rate(50, 2001, 20), "a window of 2001 connections");
    outlier(&|o| o.thresholds.rate = rate(50, 20, 11), "a volume of 11; 1 to 10 are possible");
    outlier(&|o| o.terms.base_ejection = Duration::MAX, "a time longer");
    outlier(&|o| o.terms.trial_connections = 0, "0 trial connections");
    outlier(&|o| o.max_ejected_percent = 0, "0 % may be ejected");
    check(&|s| s.keys = 0, "0 keys");
    check(&|s| s.hot = f64::NAN, "a hot key");
    let dies = |backend| Incident { backend, at: SECOND, turn: Turn::Killed };
    check(&|s| s.incidents = vec![dies(3)], "there is no backend 4; they are 1 to 3");
    check(&|s| s.incidents = vec![dies(0); 1001], "1001 incidents");

    let refused = |specs: &[Spec]| Simulation::new(good.clone(), specs).unwrap_err().to_string();
    assert_eq!(refused(&[]), "no policy");
    assert_eq!(refused(&[by_source(PolicyKind::Ring); 2]), "ring twice");
    let table = Spec { table_size: 10, ..by_source(PolicyKind::Maglev) };
    assert_eq!(refused(&[table]), "a table of 10 slots; the number must be prime");
}

/// Clients that need no time at all would never get to the end of a duration.
#[test]
fn a_run_that_would_not_end_is_given_up() {
    let bounds = Bounds { requests: 10_000, steps: 100_000, time: 10_000 * SECOND };
    let given_up = |scenario: &Scenario, expected| {
        let specs = [by_source(PolicyKind::RoundRobin)];
        let simulation = Simulation::new(scenario.clone(), &specs).unwrap();
        assert_eq!(simulation.run_within(bounds), Err(expected));
    };
    let mut timeless = Scenario::new(1, 1, Distribution::NONE, closed(1));
    timeless.duration = Some(SECOND);
    given_up(&timeless, RunError::Requests);
    let mut endless = Scenario::new(1, 1, Distribution::NONE, Load::Open(0.001));
    endless.requests = Some(1000);
    endless.checks = None;
    given_up(&endless, RunError::Time);
    let mut checked = Scenario::new(10_000, 1, Distribution::NONE, Load::Open(0.001));
    checked.requests = Some(1000);
    given_up(&checked, RunError::Steps);
    let mut watched = Scenario::new(10_000, 1, Distribution::NONE, Load::Open(1000.0));
    watched.requests = Some(1000);
    watched.checks = None;
    given_up(&watched, RunError::Steps);
}
