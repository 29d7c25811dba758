//! Ejection by failed connects, trials, and slow start after a return.

use super::*;
use crate::health::standing::Reason;

/// Three backends, a light open load, no checks, and what befalls the second.
fn scenario(turns: &[(u32, Turn)]) -> Scenario {
    let mut scenario = Scenario::new(3, 100, Distribution::Constant(10 * MS), Load::Open(300.0));
    scenario.duration = Some(60 * SECOND);
    scenario.checks = None;
    let incident = |&(second, turn)| Incident { backend: 1, at: second * SECOND, turn };
    scenario.incidents = turns.iter().map(incident).collect();
    scenario
}

fn states(report: &Report) -> Vec<(usize, State)> {
    report.changes.iter().map(|change| (change.backend, change.state)).collect()
}

/// A dead backend is out after three failures, whatever the policy: above all it does not attract
/// what goes by load, although it has none. Checks then say the same, and let it back.
#[test]
fn three_failures_take_a_dead_backend_out() {
    let mut scenario = scenario(&[(20, Turn::Killed), (40, Turn::Revived)]);
    scenario.checks = Scenario::new(1, 1, Distribution::NONE, closed(1)).checks;
    for report in run_all(&scenario, &PolicyKind::ALL) {
        let policy = report.policy;
        assert_eq!((report.retries, report.backends[1].refused), (3, 3), "{policy}");
        assert_eq!(report.failures(), report.failed[Failure::Lost as usize], "{policy}");
        let [ejected, down, up] = &report.changes[..] else { panic!("{:?}", report.changes) };
        // Keys are as likely on each of the three: a third of 300/s.
        assert!((20 * SECOND..20_200 * MS).contains(&ejected.at), "{policy}: {ejected:?}");
        assert!(matches!(ejected.reason, Reason::Ejected { in_a_row: 1, .. }), "{ejected:?}");
        assert_eq!((down.state, up.state), (State::Down, State::Up), "{policy}");
        // The first check that passed has disproved the ejection below.
        assert_eq!((down.reason, up.reason), (Reason::Checks, Reason::Checks), "{policy}");
        let moved = [ejected, down, up].map(|change| change.moved.map(|moved| moved.all > 0.0));
        assert_eq!(moved[0].is_some(), policy.hashes());
        assert_ne!(moved[1], Some(true), "{policy}: what was out already moves nothing");
        assert_eq!(moved[0], moved[2]);
    }
}

/// Half-open: a connection tries it when its time is over. One that is back stays; one that is
/// dead still goes for twice as long.
#[test]
fn a_trial_lets_it_back() {
    for policy in PolicyKind::ALL {
        let report = run(&scenario(&[(20, Turn::Killed), (25, Turn::Revived)]), policy);
        assert_eq!(states(&report), [(1, State::Ejected), (1, State::Up)], "{policy}");
        let [ejected, up] = &report.changes[..] else { panic!("{:?}", report.changes) };
        assert_eq!(up.reason, Reason::Tried);
        let out = up.at - ejected.at;
        assert!((10 * SECOND..10_200 * MS).contains(&out), "{policy}: {out:?}");
        assert_eq!((report.retries, report.backends[1].ejections), (3, 1), "{policy}");

        let report = run(&scenario(&[(20, Turn::Killed), (35, Turn::Revived)]), policy);
        let [first, again, up] = &report.changes[..] else { panic!("{:?}", report.changes) };
        assert_eq!((again.state, up.state), (State::Ejected, State::Up), "{policy}");
        let Reason::Ejected { in_a_row: 2, lasts, .. } = again.reason else { panic!("{again:?}") };
        assert_eq!(lasts, 20 * SECOND);
        let out = up.at - first.at;
        assert!((30 * SECOND..30_400 * MS).contains(&out), "{policy}: {out:?}");
        // The trial failed too; whoever made it went elsewhere.
        assert_eq!((report.retries, report.backends[1].ejections), (4, 2), "{policy}");
        assert_eq!(again.moved, None, "{policy}: it was out");
    }
}

/// Of three that are dead, half may be ejected: one. The others are tried on and on.
#[test]
fn not_all_are_ejected() {
    let mut scenario = scenario(&[]);
    let dies = |backend| Incident { backend, at: 20 * SECOND, turn: Turn::Killed };
    scenario.incidents = (0..3).map(dies).collect();
    scenario.duration = Some(29 * SECOND);
    let report = run(&scenario, PolicyKind::RoundRobin);
    assert_eq!(report.ejections(), 1);
    scenario.outlier.as_mut().unwrap().max_ejected_percent = 70;
    let report = run(&scenario, PolicyKind::RoundRobin);
    assert_eq!(report.ejections(), 2);
    scenario.outlier.as_mut().unwrap().max_ejected_percent = 100;
    let report = run(&scenario, PolicyKind::RoundRobin);
    assert_eq!(report.changes.iter().map(|c| c.panic).collect::<Vec<_>>(), [false, false, true]);
}

/// One in two of its connects fails: never three in a row for long, but half of the last hundred.
#[test]
fn a_rate_of_failures_is_enough() {
    // It dies and comes back every 20 ms.
    let mut scenario = scenario(&[]);
    let turn = |n| if n % 2 == 0 { Turn::Killed } else { Turn::Revived };
    let incident = |n| Incident { backend: 1, at: 10 * SECOND + 20 * MS * n, turn: turn(n) };
    scenario.incidents = (0..500).map(incident).collect();
    scenario.duration = Some(20 * SECOND);
    scenario.outlier.as_mut().unwrap().thresholds.consecutive = None;
    let report = run(&scenario, PolicyKind::RoundRobin);
    assert_eq!(states(&report), [(1, State::Ejected)]);
    // Before them were 1,000 successes, of which 50 to 100 count still: 25 to 100 failures.
    assert!((25..=100).contains(&report.backends[1].refused), "{:?}", report.backends);
    scenario.outlier.as_mut().unwrap().thresholds.rate = None;
    assert_eq!(run(&scenario, PolicyKind::RoundRobin).changes, []);
}

/// One that has come up gets a tenth of its share for the first ninth of the ramp, then two tenths,
/// and so on. Keys come to it by that share p. Where turns are taken it is as with a weight of p
/// beside two of 1: p ÷ (2 + p), three times as much for its share.
#[test]
fn slow_start_ramps_the_share() {
    let mut scenario = scenario(&[(1, Turn::Killed), (2, Turn::Revived)]);
    // A column is half a second.
    scenario.duration = Some(36 * SECOND);
    scenario.load = Load::Open(900.0);
    scenario.slow_start = Some(9 * SECOND);
    for report in run_all(&scenario, &PolicyKind::ALL) {
        let policy = report.policy;
        let [_, up] = &report.changes[..] else { panic!("{:?}", report.changes) };
        assert_eq!((up.reason, up.at.as_secs()), (Reason::Tried, 11), "{policy}");
        let load = &report.load.backends[1];
        let mean = |from: usize, to: usize| load[from..to].iter().sum::<f64>() / (to - from) as f64;
        // 3 under way are its share, or what its keys bring.
        let whole = mean(44, 72);
        assert!((2.5..=3.5).contains(&whole), "{policy}: {load:?}");
        let steps = [mean(24, 30), mean(30, 36), mean(36, 40)].map(|load| load / whole);
        assert!(steps.is_sorted() && steps[0] < 0.5, "{policy}: {steps:?}");
        // From 11.5 s to 20 s: half a second at 0.1, then 0.2 to 0.9 for a second each.
        let of_levels = |share: fn(f64) -> f64| {
            (0.5 * share(0.1) + (2..=9).map(|n| share(f64::from(n) / 10.0)).sum::<f64>()) / 8.5
        };
        let expected = match policy {
            PolicyKind::RoundRobin => of_levels(|p| 3.0 * p / (2.0 + p)),
            _ if policy.hashes() => of_levels(|p| p),
            _ => continue,
        };
        let ramp = mean(23, 40) / whole;
        assert!((ramp - expected).abs() < 0.06, "{policy}: {ramp}, not {expected}");
    }
}

/// A backup has nothing to do until all others are out, and then all.
#[test]
fn backups_stand_in() {
    let mut scenario = scenario(&[(20, Turn::Killed), (25, Turn::Revived)]);
    scenario.backends[0].weight = 0;
    scenario.backends[2].backup = true;
    scenario.outlier.as_mut().unwrap().max_ejected_percent = 100;
    for policy in PolicyKind::ALL {
        let report = run(&scenario, policy);
        assert_eq!(states(&report), [(1, State::Ejected), (1, State::Up)], "{policy}");
        assert!(report.changes.iter().all(|change| !change.panic), "{policy}");
        let backup = &report.load.backends[2];
        // 72 columns for 60 s: out from 20 to 30.
        let busy = backup.iter().filter(|&&load| load > 0.5).count();
        assert!((11..=13).contains(&busy), "{policy}: {backup:?}");
        assert_eq!(backup[..23].iter().sum::<f64>(), 0.0, "{policy}");
        assert_eq!(backup[38..].iter().sum::<f64>(), 0.0, "{policy}");
        // Three failures that the backup made good.
        assert_eq!(report.failures(), report.failed[Failure::Lost as usize], "{policy}");
    }
}

/// Who is full is passed over; where all are, there is nothing to pick.
#[test]
fn full_backends_are_passed_over() {
    let mut scenario = Scenario::new(2, 100, Distribution::Constant(SECOND), closed(7));
    scenario.max_connections = Some(3);
    scenario.duration = Some(10 * SECOND);
    for policy in PolicyKind::ALL {
        let report = run(&scenario, policy);
        let most: Vec<u32> = report.backends.iter().map(|backend| backend.most_active).collect();
        assert_eq!(most, [3, 3], "{policy}");
        // The seventh comes back every 100 ms, and finds a place when others let go of theirs.
        assert!(report.failed[Failure::NoBackend as usize] >= 90, "{policy}");
    }
}
