//! Loads when nobody leaves.

use super::*;

/// Places this many, and returns the fullest.
fn fullest(kind: PolicyKind, backends: usize, connections: usize, seed: u64) -> u32 {
    let weights = vec![1; backends];
    let policy = build(kind, &keys(backends), &weights);
    let mut pool = Pool::new(&weights);
    let (tickets, mut rng) = (AtomicU64::new(0), fastrand::Rng::with_seed(seed));
    for _ in 0..connections {
        let index = policy.pick(&pool, 0, &tickets, &mut rng).unwrap();
        pool.active[index] += 1;
    }
    pool.active.into_iter().max().unwrap()
}

/// 10 each on average. Two choices add ln ln n / ln 2, about 3; one choice has the largest of 1,000
/// Poisson variables, which is below 19 once in 1,400 seeds.
#[test]
fn two_choices_and_one() {
    for seed in 0..20 {
        let [p2c, peak_ewma, random] = [PolicyKind::P2c, PolicyKind::PeakEwma, PolicyKind::Random]
            .map(|kind| fullest(kind, 1000, 10_000, seed));
        assert!(p2c <= 13, "{seed}: {p2c}");
        assert!(peak_ewma <= 13, "{seed}: {peak_ewma}");
        assert!(random >= 19, "{seed}: {random}");
    }
}

/// What looks at loads brings them into the ratio of the weights: within one connection for each
/// unit of weight where all are looked at, within three where two are.
#[test]
fn loads_follow_weights() {
    let weights = [1, 2, 3, 4, 10];
    let looks = [(PolicyKind::LeastConn, 1), (PolicyKind::P2c, 3), (PolicyKind::PeakEwma, 3)];
    for (kind, slack) in looks {
        let policy = build(kind, &keys(5), &weights);
        let mut pool = Pool::new(&weights);
        let (tickets, mut rng) = (AtomicU64::new(0), fastrand::Rng::with_seed(3));
        for _ in 0..20_000 {
            let index = policy.pick(&pool, 0, &tickets, &mut rng).unwrap();
            pool.active[index] += 1;
        }
        for (&active, &weight) in pool.active.iter().zip(&weights) {
            let off = active.abs_diff(u32::from(weight) * 1000);
            assert!(off <= slack * u32::from(weight), "{kind}: {:?}", pool.active);
        }
    }
}
