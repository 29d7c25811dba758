//! Backends that die, and what checks, retries and hashes make of it, without ejection.

use std::ops::Range;

use super::*;

/// Three backends, a light open load, and what befalls the second. Only checks take it out, and
/// retries are not counted.
fn scenario(turns: &[(u32, Turn)]) -> Scenario {
    let mut scenario = Scenario::new(3, 100, Distribution::Constant(10 * MS), Load::Open(300.0));
    scenario.duration = Some(60 * SECOND);
    scenario.outlier = None;
    scenario.connect.retry_budget = None;
    let incident = |&(second, turn)| Incident { backend: 1, at: second * SECOND, turn };
    scenario.incidents = turns.iter().map(incident).collect();
    scenario
}

/// When the third failed check ends, `takes` each, of a backend that dies at 20 s: the first is due
/// within an interval, the others follow by the fast one, as soon as the one before has ended.
/// Both are longer by up to a tenth.
fn down_at(takes: Duration) -> Range<Duration> {
    let [least, most] = [450 * MS, 550 * MS].map(|fast| 20 * SECOND + 2 * fast.max(takes) + takes);
    least..most + 2200 * MS
}

/// Whether a Poisson count is near what is expected: within four standard deviations.
#[track_caller]
fn assert_near(count: u64, expected: f64) {
    let off = (count as f64 - expected).abs();
    assert!(off <= 4.0 * expected.sqrt(), "{count}, not {expected}");
}

/// The refusals go to the others, until the third failed check; what was inside is lost.
#[test]
fn a_killed_backend() {
    let report = run(&scenario(&[(20, Turn::Killed)]), PolicyKind::RoundRobin);
    let [change] = &report.changes[..] else { panic!("{:?}", report.changes) };
    assert_eq!((change.backend, change.state, change.panic), (1, State::Down, false));
    assert!(down_at(Duration::ZERO).contains(&change.at), "{change:?}");
    let lost = report.failed[Failure::Lost as usize];
    assert_eq!(report.failures(), lost);
    // A request a hundredth of a second: λ × W = 1 was inside.
    assert!((1..=8).contains(&lost), "{lost}");
    assert_eq!(report.retries, report.backends[1].refused);
    // Its turn, and the retry takes the next one's: every other request meets it.
    assert_near(report.retries, 150.0 * (change.at - 20 * SECOND).as_secs_f64());
    assert_eq!(report.latency.unwrap().max, 10 * MS, "a refusal costs two hops of nothing");
}

/// Nothing says no: each attempt runs into the timeout of a connect.
#[test]
fn a_vanished_backend() {
    let report = run(&scenario(&[(20, Turn::Vanished)]), PolicyKind::RoundRobin);
    let [change] = &report.changes[..] else { panic!("{:?}", report.changes) };
    assert!(down_at(SECOND).contains(&change.at), "{change:?}");
    assert_eq!(report.latency.unwrap().max, SECOND + 10 * MS);
    // What it had is not given up before the end.
    assert_eq!(report.failures(), 0);
    assert!((1..=15).contains(&report.open), "{}", report.open);
    let mut longer = scenario(&[(20, Turn::Vanished)]);
    longer.duration = Some(20 * SECOND + USER_TIMEOUT + SECOND);
    let report = run(&longer, PolicyKind::RoundRobin);
    let lost = report.failed[Failure::Lost as usize];
    assert!(lost > 0 && report.failures() == lost, "{:?}", report.failed);
}

#[test]
fn a_backend_that_comes_back() {
    let turns = [(20, Turn::Killed), (40, Turn::Revived)];
    for policy in PolicyKind::ALL {
        let report = run(&scenario(&turns), policy);
        let [down, up] = &report.changes[..] else { panic!("{:?}", report.changes) };
        assert_eq!((down.state, up.state), (State::Down, State::Up));
        // Two checks pass: the first within an interval, the other after the fast one.
        assert!((40_450 * MS..=42_750 * MS).contains(&up.at), "{up:?}");
        // It is used again.
        let columns = &report.load.backends[1];
        let load = |from: usize| columns[from..from + 8].iter().sum::<f64>() / 8.0;
        assert!(load(4) > 0.5 && load(36) == 0.0 && load(60) > 0.5, "{policy}: {columns:?}");
    }
}

/// Without retries what is refused fails; without checks it goes on for ever.
#[test]
fn without_retries_or_checks() {
    let mut scenario = scenario(&[(20, Turn::Killed)]);
    scenario.connect.attempts = 1;
    let report = run(&scenario, PolicyKind::RoundRobin);
    let refused = report.failed[Failure::Connect as usize];
    assert_near(refused, 100.0 * (report.changes[0].at - 20 * SECOND).as_secs_f64());
    assert_eq!(report.retries, 0);
    scenario.checks = None;
    let report = run(&scenario, PolicyKind::RoundRobin);
    assert_near(report.failed[Failure::Connect as usize], 4000.0);
    assert!(report.changes.is_empty());
}

/// All are dead: with panic they are tried nevertheless, without there is nothing to pick.
#[test]
fn everything_dies() {
    let mut scenario = scenario(&[]);
    let dies = |backend| Incident { backend, at: 20 * SECOND, turn: Turn::Killed };
    scenario.incidents = (0..3).map(dies).collect();
    let panicking = run(&scenario, PolicyKind::LeastConn);
    assert_eq!(panicking.failed[Failure::NoBackend as usize], 0);
    assert!(panicking.failed[Failure::Connect as usize] > 10_000);
    assert_eq!(panicking.changes.iter().map(|c| c.panic).collect::<Vec<_>>(), [false, false, true]);
    scenario.panic_threshold = None;
    let report = run(&scenario, PolicyKind::LeastConn);
    assert!(report.failed[Failure::NoBackend as usize] > 9000, "{:?}", report.failed);
    assert!(report.changes.iter().all(|change| !change.panic));
}

/// Clients of a closed loop come back after a pause, and do not spin.
#[test]
fn failed_clients_come_back() {
    let mut scenario = Scenario::new(1, 1, Distribution::Constant(10 * MS), closed(1));
    let killed = Incident { backend: 0, at: SECOND, turn: Turn::Killed };
    let revived = Incident { backend: 0, at: 2 * SECOND, turn: Turn::Revived };
    scenario.incidents = vec![revived, killed];
    scenario.duration = Some(3 * SECOND);
    scenario.checks = None;
    scenario.connect.attempts = 1;
    let report = run(&scenario, PolicyKind::LeastConn);
    assert_eq!(report.failures(), 1000 / FAILURE_PAUSE.as_millis() as u64);
    // The hundredth is lost as it ends; the one issued at the very end is open.
    assert_eq!((report.completed, report.open), (199, 1));
}

/// What a death moves: all keys for the modulo, the dead one's for the others.
#[test]
fn keys_move() {
    let mut scenario = Scenario::new(10, 100, Distribution::Constant(10 * MS), Load::Open(100.0));
    scenario.duration = Some(60 * SECOND);
    scenario.outlier = None;
    let turn = |second, turn| Incident { backend: 4, at: second * SECOND, turn };
    scenario.incidents = vec![turn(20, Turn::Killed), turn(40, Turn::Revived)];
    let check = |policy, moved: f64, between_others: f64| {
        let report = run(&scenario, policy);
        let [down, up] = &report.changes[..] else { panic!("{:?}", report.changes) };
        let (down, up) = (down.moved.unwrap(), up.moved.unwrap());
        assert_eq!(down, up, "{policy}: who moved away comes back");
        // Three standard deviations of 10,000 keys, and of the ring's shares.
        assert!((down.all - moved).abs() < 0.03, "{policy}: {down:?}");
        assert!((down.between_others - between_others).abs() < 0.03, "{policy}: {down:?}");
        assert!(between_others > 0.0 || down.between_others == 0.0, "{policy}: {down:?}");
        assert_eq!(report.keys_moved, Some(down.all));
    };
    check(PolicyKind::Hash, 0.9, 0.8);
    check(PolicyKind::Ring, 0.1, 0.0);
    check(PolicyKind::Rendezvous, 0.1, 0.0);
    check(PolicyKind::Maglev, 0.1, 0.0);
    for policy in PolicyKind::ALL.into_iter().filter(|policy| !policy.hashes()) {
        let report = run(&scenario, policy);
        assert_eq!(report.keys_moved, None, "{policy}");
        assert!(report.changes.iter().all(|change| change.moved.is_none()));
    }
}

/// The request of a reused place is not mistaken for the one that died there.
#[test]
fn deaths_under_load_add_up() {
    let mut scenario = Scenario::new(4, 3, exponential(40), Load::Open(250.0));
    scenario.duration = Some(30 * SECOND);
    scenario.hop = MS;
    let mut rng = fastrand::Rng::with_seed(3);
    for step in 1..100 {
        let turn = [Turn::Killed, Turn::Vanished, Turn::Revived, Turn::Revived][rng.usize(..4)];
        scenario.incidents.push(Incident { backend: rng.usize(..4), at: 300 * MS * step, turn });
    }
    for report in run_all(&scenario, &PolicyKind::ALL) {
        assert!(report.completed > 100 && report.failures() > 10, "{report:?}");
        // Most of what is lost is lost by a host that vanished, and that is not known yet.
        assert!(report.retries > 10 && !report.changes.is_empty());
    }
}
