//! Retries, backoff, budgets and hedges.

use super::*;

/// Three backends and a light open load for 10 s, with nothing but attempts to help.
fn scenario(turns: &[(usize, u32, Turn)]) -> Scenario {
    let mut scenario = Scenario::new(3, 100, Distribution::Constant(10 * MS), Load::Open(300.0));
    scenario.duration = Some(10 * SECOND);
    scenario.checks = None;
    scenario.outlier = None;
    let incident = |&(backend, ms, turn)| Incident { backend, at: ms * MS, turn };
    scenario.incidents = turns.iter().map(incident).collect();
    scenario
}

fn after(ms: u32) -> HedgeAfter {
    HedgeAfter::After(ms * MS)
}

/// A host that is silent from 5 s on, one in three of 3,000. Without hedges a third of those that
/// come in the second until the first timeout wait that second out; after three timeouts it is
/// ejected. With hedges nobody waits longer than for the hedge, and three that were overtaken
/// eject it.
#[test]
fn hedges_hide_a_black_hole() {
    let mut scenario = scenario(&[(1, 5000, Turn::Vanished)]);
    scenario.outlier = Scenario::new(1, 1, Distribution::NONE, closed(1)).outlier;
    let plain = run(&scenario, PolicyKind::RoundRobin);
    let connect = plain.connect.unwrap();
    assert_eq!((connect.p95, connect.p99, connect.max), (Duration::ZERO, SECOND, SECOND));
    // Its turn every third time: 100/s, for 1 s and three more.
    assert!((65..=140).contains(&plain.retries), "{}", plain.retries);
    assert_eq!((plain.hedges, plain.ejections()), (0, 1));
    assert!((6 * SECOND..6_200 * MS).contains(&plain.changes[0].at), "{:?}", plain.changes);

    scenario.connect.hedge_after = after(50);
    let hedged = run(&scenario, PolicyKind::RoundRobin);
    let connect = hedged.connect.unwrap();
    assert_eq!((connect.p99, connect.max), (Duration::ZERO, 50 * MS));
    assert_eq!((hedged.retries, hedged.ejections()), (0, 1));
    assert!((5_050 * MS..5_250 * MS).contains(&hedged.changes[0].at), "{:?}", hedged.changes);
    // 100/s in the 50 ms before the first is overtaken, and three.
    assert!((3..=20).contains(&hedged.hedges), "{}", hedged.hedges);
    assert_eq!(hedged.failures(), 0);
}

/// By itself: connects take two hops of 1 ms, so one that takes 5 ms gets company, the least there
/// is. It brings two hops more.
#[test]
fn hedges_by_what_connects_take() {
    let mut scenario = scenario(&[(1, 5000, Turn::Vanished)]);
    scenario.outlier = Scenario::new(1, 1, Distribution::NONE, closed(1)).outlier;
    scenario.hop = MS;
    scenario.connect.hedge_after = HedgeAfter::Auto;
    for policy in PolicyKind::ALL {
        let report = run(&scenario, policy);
        let connect = report.connect.unwrap();
        assert_eq!((connect.p50, connect.p99, connect.max), (2 * MS, 2 * MS, 7 * MS), "{policy}");
        assert!((3..=12).contains(&report.hedges), "{policy}: {}", report.hedges);
    }
}

/// Nothing is hedged that is not slow, and a hedge that comes too late is called off: with a hop of
/// 30 ms each first attempt is established 10 ms after the hedge began.
#[test]
fn hedges_of_a_long_way_lose() {
    let mut scenario = scenario(&[]);
    scenario.hop = 30 * MS;
    scenario.connect.hedge_after = after(100);
    assert_eq!(run(&scenario, PolicyKind::LeastConn).hedges, 0);
    scenario.connect.hedge_after = after(50);
    scenario.connect.retry_budget = None;
    scenario.requests = Some(1000);
    scenario.duration = None;
    let report = run(&scenario, PolicyKind::LeastConn);
    assert_eq!((report.hedges, report.completed), (1000, 1000));
    assert_eq!(report.connect.unwrap().max, 60 * MS);
    assert_eq!(report.latency.unwrap().max, 70 * MS, "two hops and the service");
    // A budget of 100 and a fifth of each request bounds them.
    scenario.connect.retry_budget = Some(20);
    let report = run(&scenario, PolicyKind::LeastConn);
    assert!((250..=340).contains(&report.hedges), "{}", report.hedges);
    assert_eq!(report.exhausted + report.hedges, 1000);
}

/// Who was overtaken counts as load until its timeout.
#[test]
fn the_overtaken_are_load() {
    let mut scenario = scenario(&[(0, 0, Turn::Vanished)]);
    scenario.backends.truncate(2);
    scenario.load = Load::Closed(1, Distribution::Constant(60 * SECOND));
    scenario.duration = Some(2 * SECOND);
    scenario.connect.hedge_after = after(50);
    let report = run(&scenario, PolicyKind::RoundRobin);
    assert_eq!((report.completed, report.hedges), (1, 1));
    let mean = report.load.backends[0].iter().sum::<f64>() / report.load.backends[0].len() as f64;
    assert!((mean - 0.5).abs() < 1e-3, "1 s of 2: {mean}");
}

/// All refuse, at 1,000 a second: what is full at the beginning is spent within a second, and from
/// then on each connection makes 1.2 attempts. Without a budget it makes all three.
#[test]
fn a_budget_bounds_attempts() {
    let mut scenario =
        scenario(&[(0, 0, Turn::Killed), (1, 0, Turn::Killed), (2, 0, Turn::Killed)]);
    scenario.load = Load::Open(1000.0);
    let counts = |scenario: &Scenario, seconds, policy| {
        let scenario = Scenario { duration: Some(seconds * SECOND), ..scenario.clone() };
        let report = run(&scenario, policy);
        (report.backends.iter().map(|backend| backend.picked).sum::<u64>(), report.offered)
    };
    let attempts = |scenario: &Scenario, policy| {
        let (early, late) = (counts(scenario, 1, policy), counts(scenario, 11, policy));
        (late.0 - early.0) as f64 / (late.1 - early.1) as f64
    };
    for policy in PolicyKind::ALL {
        let each = attempts(&scenario, policy);
        assert!((1.19..=1.22).contains(&each), "{policy}: {each}");
    }
    scenario.outlier = Scenario::new(1, 1, Distribution::NONE, closed(1)).outlier;
    let each = attempts(&scenario, PolicyKind::LeastConn);
    assert!((1.1..=1.3).contains(&each), "one of them ejected: {each}");
    scenario.outlier = None;
    scenario.connect.retry_budget = None;
    assert_eq!(attempts(&scenario, PolicyKind::LeastConn), 3.0);
}

/// One backend alone is tried again after a wait of at most 25 ms, then 50, and so on.
#[test]
fn backoff_outlasts_a_restart() {
    let mut scenario = scenario(&[(0, 1000, Turn::Killed), (0, 1100, Turn::Revived)]);
    scenario.backends.truncate(1);
    scenario.connect.attempts = 16;
    for policy in PolicyKind::ALL {
        let report = run(&scenario, policy);
        assert_eq!(report.failures(), report.failed[Failure::Lost as usize], "{policy}");
        let longest = report.connect.unwrap().max;
        // 300/s: the first comes soon, and after 100 ms waits for at most as long again.
        assert!((80 * MS..=300 * MS).contains(&longest), "{policy}: {longest:?}");
        // Waits of 12.5, 25 and 50 ms on average: 30 requests try three times, more or less.
        assert!((30..=160).contains(&report.retries), "{policy}: {}", report.retries);
    }
}

/// The time for all attempts ends them, whether one is under way or a wait.
#[test]
fn total_timeout() {
    for turn in [Turn::Killed, Turn::Vanished] {
        let mut scenario = scenario(&[(0, 0, turn)]);
        scenario.backends.truncate(1);
        scenario.load = closed(1);
        scenario.connect.attempts = 16;
        scenario.connect.total_timeout = 150 * MS;
        scenario.connect.retry_budget = None;
        let report = run(&scenario, PolicyKind::LeastConn);
        // 150 ms, and a pause of 100, in 10 s; the next begins as time is over.
        assert_eq!((report.failures(), report.open), (40, 1), "{turn:?}");
        let attempts = report.backends[0].picked;
        match turn {
            Turn::Vanished => assert_eq!(attempts, 41, "none had its second"),
            // Mean waits of 12.5, 25, 50, 100: about five attempts.
            _ => assert!((120..=280).contains(&attempts), "{attempts}"),
        }
    }
}
