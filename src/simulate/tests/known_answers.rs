//! Values that were worked out elsewhere.

use super::*;

/// 30 clients without a pause, 2,000 requests of 20 ms, 4 slots a backend: total, p50, p95 and
/// mean in microseconds, and how many each backend got.
#[test]
fn thirty_clients() {
    let check = |backends: usize, hop: Duration, expected: [u64; 4], counts: &[u64]| {
        let mut scenario = Scenario::new(backends, 4, Distribution::Constant(20 * MS), closed(30));
        scenario.requests = Some(2000);
        scenario.hop = hop;
        let report = run(&scenario, PolicyKind::RoundRobin);
        let latency = report.latency.unwrap();
        let found = [report.elapsed, latency.p50, latency.p95, latency.mean];
        assert_eq!(found.map(|time| time.as_micros() as u64), expected, "{backends}");
        let picked: Vec<u64> = report.backends.iter().map(|backend| backend.picked).collect();
        assert_eq!(picked, counts);
        assert_eq!((report.completed, report.failures(), report.open), (2000, 0, 0));
    };
    check(1, Duration::ZERO, [10_000_000, 140_000, 160_000, 149_020], &[2000]);
    check(3, MS / 5, [3_340_400, 40_400, 60_000, 49_786], &[667, 667, 666]);
}

/// One of three backends stalls for 30 ms a request: who looks at load or latency leaves it alone,
/// who takes turns has every client wait for it.
#[test]
fn a_stalling_backend() {
    let mut scenario = Scenario::new(3, 4, Distribution::Constant(MS / 5), closed(4));
    scenario.backends[1].stall = 30 * MS;
    scenario.duration = Some(3 * SECOND);
    for seed in 0..5 {
        scenario.seed = seed;
        use PolicyKind::{LeastConn, P2c, PeakEwma, RoundRobin};
        let reports = run_all(&scenario, &[RoundRobin, LeastConn, P2c, PeakEwma]);
        let (turns, others) = reports.split_first().unwrap();
        let base = turns.latency.unwrap();
        for report in others {
            let (policy, latency) = (report.policy, report.latency.unwrap());
            assert!(report.completed >= 10 * turns.completed, "{policy}: {}", report.completed);
            assert!(base.p95 >= 50 * latency.p95, "{policy}: {latency:?}");
            assert!(latency.p50 <= 2 * base.p50, "{policy}: {latency:?}");
        }
    }
}

/// One backend is six times slower than the others.
#[test]
fn a_slow_backend() {
    for slots in [1, 4, 100] {
        let mut scenario = Scenario::new(3, slots, exponential(20), closed(20));
        scenario.backends[0].factor = 6.0;
        scenario.duration = Some(60 * SECOND);
        let reports = run_all(&scenario, &[PolicyKind::RoundRobin, PolicyKind::LeastConn]);
        let [turns, least] = [0, 1].map(|index| reports[index].completed);
        assert!(2 * least >= 3 * turns, "{slots} slots: {least} for {turns}");
    }
}
