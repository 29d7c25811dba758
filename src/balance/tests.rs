//! What every policy has in common.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;
use crate::limits::{MAGLEV_STEPS, RING_STEPS, ROUND_ROBIN_DRAWS};

mod bounds;
mod digests;
mod moves;
mod placement;

/// A pool that does what a test says.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) weights: Vec<u16>,
    pub(super) usable: Vec<bool>,
    pub(super) active: Vec<u32>,
    pub(super) latency: Vec<u64>,
}

impl Pool {
    /// Idle, and usable where the weight is not 0.
    pub(super) fn new(weights: &[u16]) -> Self {
        Pool {
            weights: weights.to_vec(),
            usable: weights.iter().map(|&weight| weight > 0).collect(),
            active: vec![0; weights.len()],
            latency: vec![0; weights.len()],
        }
    }
}

impl View for Pool {
    fn len(&self) -> usize {
        self.weights.len()
    }

    fn usable(&self, index: usize) -> bool {
        self.usable[index]
    }

    fn active(&self, index: usize) -> u32 {
        self.active[index]
    }

    fn weight(&self, index: usize) -> u16 {
        self.weights[index]
    }

    fn latency(&self, index: usize) -> u64 {
        self.latency[index]
    }
}

fn spec(policy: PolicyKind) -> Spec {
    Spec { policy, key: key::KeyKind::FiveTuple, table_size: 1009, bounded_load: None }
}

/// Backends `10.0.0.N:443`, in the order of their keys.
pub(super) fn keys(count: usize) -> Vec<String> {
    let mut keys: Vec<_> = (0..count).map(|n| format!("10.0.0.{n}:443")).collect();
    keys.sort();
    keys
}

fn build(policy: PolicyKind, keys: &[String], weights: &[u16]) -> Policy {
    build_spec(&spec(policy), keys, weights)
}

fn build_spec(spec: &Spec, keys: &[String], weights: &[u16]) -> Policy {
    let members: Vec<_> =
        keys.iter().zip(weights).map(|(key, &weight)| Member { key, weight }).collect();
    Policy::new(spec, &members).unwrap()
}

/// The pick of a hash policy.
fn pick(policy: &Policy, view: &impl View, hash: u64) -> Option<usize> {
    policy.pick(view, hash, &AtomicU64::new(0), &mut fastrand::Rng::with_seed(0))
}

/// Mostly small weights: a ring of large ones is large.
fn weights() -> impl Strategy<Value = u16> {
    prop_oneof![31 => 0..8u16, 1 => 0..=WEIGHT_MAX]
}

/// A mixer for hashes that stand for many connections (SplitMix64's finalizer).
pub(super) fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn count_picks(policy: &Policy, pool: &Pool, picks: u64) -> Vec<i64> {
    let (tickets, mut rng) = (AtomicU64::new(0), fastrand::Rng::with_seed(picks));
    let mut counts = vec![0; pool.len()];
    for n in 1..=picks {
        counts[policy.pick(pool, mix(n), &tickets, &mut rng).unwrap()] += 1;
    }
    counts
}

proptest! {
    #[test]
    fn picks_are_usable(
        backends in prop::collection::vec((weights(), any::<bool>(), 0..1000u32), 0..30),
        hash: u64,
        ticket: u64,
        seed: u64,
    ) {
        let weights: Vec<u16> = backends.iter().map(|b| b.0).collect();
        let mut pool = Pool::new(&weights);
        for (index, &(weight, up, active)) in backends.iter().enumerate() {
            pool.usable[index] = up && weight > 0;
            pool.active[index] = active;
        }
        let (tickets, mut rng) = (AtomicU64::new(ticket), fastrand::Rng::with_seed(seed));
        let bounds = [None, Bound::new(1000), Bound::new(1250)];
        for (kind, bounded_load) in
            PolicyKind::ALL.iter().flat_map(|&kind| bounds.map(|bound| (kind, bound)))
        {
            let spec = Spec { bounded_load, ..spec(kind) };
            let policy = build_spec(&spec, &keys(weights.len()), &weights);
            match policy.pick(&pool, hash, &tickets, &mut rng) {
                Some(index) => prop_assert!(pool.usable[index], "{} picked {}", kind, index),
                None => prop_assert!(!pool.usable.contains(&true), "{} found nothing", kind),
            }
        }
    }

    /// What hash policies pick depends on keys, weights and the hash, not on the file's order.
    #[test]
    fn order_in_the_file_is_irrelevant(
        backends in prop::collection::btree_map(0..200usize, weights(), 1..20),
        seed: u64,
        hash: u64,
    ) {
        let mut written: Vec<_> =
            backends.into_iter().map(|(n, weight)| (format!("10.0.0.{n}:443"), weight)).collect();
        let pick = |written: &[(String, u16)], kind| {
            // As the snapshot does.
            let mut sorted = written.to_vec();
            sorted.sort();
            let (keys, weights): (Vec<_>, Vec<_>) = sorted.into_iter().unzip();
            let (tickets, mut rng) = (AtomicU64::new(0), fastrand::Rng::with_seed(0));
            let picked = build(kind, &keys, &weights)
                .pick(&Pool::new(&weights), hash, &tickets, &mut rng);
            picked.map(|index| keys[index].clone())
        };
        let kinds = PolicyKind::ALL.into_iter().filter(|kind| kind.hashes());
        let before: Vec<_> = kinds.clone().map(|kind| pick(&written, kind)).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut written);
        let after: Vec<_> = kinds.map(|kind| pick(&written, kind)).collect();
        prop_assert_eq!(before, after);
    }
}

#[test]
fn shares_follow_weights() {
    let weights = [1, 4, 0, 2, 3];
    use PolicyKind::{Hash, Maglev, Random, Rendezvous, Ring, RoundRobin};
    for kind in [RoundRobin, Random, Hash, Ring, Rendezvous, Maglev] {
        let policy = build(kind, &keys(5), &weights);
        let counts = count_picks(&policy, &Pool::new(&weights), 100_000);
        for (&count, &weight) in counts.iter().zip(&weights) {
            let share = f64::from(weight) / 10.0;
            // Five standard deviations of a binomial; for Maglev one slot of 1,009; and for a ring
            // of 1,600 points five of the share itself, which is distributed as Beta.
            let slack = match kind {
                RoundRobin => 0.0,
                Maglev => 775.0 + 100_000.0 / 1009.0,
                Ring => 775.0 + 500_000.0 * (share * (1.0 - share) / 1601.0).sqrt(),
                _ => 775.0,
            };
            let off = (count as f64 - share * 100_000.0).abs();
            assert!(off <= slack, "{kind}: {counts:?}");
            assert!(weight > 0 || count == 0, "{kind}: weight 0 was picked");
        }
    }
}

/// A backend that is down loses its connections to all the others alike, whatever the policy.
#[test]
fn nobody_inherits_a_double_share() {
    for kind in PolicyKind::ALL {
        let weights = [1; 10];
        let policy = build(kind, &keys(10), &weights);
        let mut pool = Pool::new(&weights);
        pool.usable[3] = false;
        let counts = count_picks(&policy, &pool, 90_000);
        assert_eq!(counts[3], 0);
        let others = counts.iter().enumerate().filter(|&(index, _)| index != 3);
        // A ninth is 10,000. Five standard deviations are 472; Maglev's neighbours in a table of
        // 1,009 are a binomial of 101 slots of 89 connections each: 5 * 3.2 * 89. A backend's 160
        // points are a share with a deviation of 7.9 %, whoever is up: three of those, and the 472.
        let slack = match kind {
            PolicyKind::Maglev => 1450,
            PolicyKind::Ring => 2840,
            _ => 472,
        };
        for (index, count) in others {
            assert!((count - 10_000).abs() <= slack, "{kind} {index}: {counts:?}");
        }
    }
}

/// A pool whose answers change with every question.
struct Fickle {
    size: usize,
    asked: Cell<usize>,
    answer: fn(usize) -> bool,
}

impl View for Fickle {
    fn len(&self) -> usize {
        self.size
    }

    fn usable(&self, _: usize) -> bool {
        let asked = self.asked.get();
        self.asked.set(asked + 1);
        (self.answer)(asked)
    }

    fn active(&self, _: usize) -> u32 {
        self.asked.get() as u32
    }

    fn weight(&self, _: usize) -> u16 {
        1
    }
}

#[test]
fn picks_end_whatever_the_view_says() {
    let answers: [fn(usize) -> bool; 4] =
        [|_| false, |n| n % 2 == 1, |n| n < 3, |n| n.is_multiple_of(101)];
    for kind in PolicyKind::ALL {
        for size in [0, 1, 2, 3, 100] {
            let spec = Spec { bounded_load: Bound::new(1000), ..spec(kind) };
            let policy = build_spec(&spec, &keys(size), &vec![1; size]);
            for answer in answers {
                let view = Fickle { size, asked: Cell::new(0), answer };
                let (tickets, mut rng) = (AtomicU64::new(0), fastrand::Rng::with_seed(0));
                policy.pick(&view, mix(7), &tickets, &mut rng);
                // Twice with a bound on the load: the second time without.
                let steps = ROUND_ROBIN_DRAWS.max(2 * MAGLEV_STEPS).max(2 * RING_STEPS);
                let bound = steps + 8 * size;
                assert!(view.asked.get() <= bound, "{kind}, {size}: {}", view.asked.get());
            }
        }
    }
}

#[test]
fn refused_members() {
    let key = |n: usize| format!("10.0.0.1:{n:05}");
    let members: Vec<String> = (0..=BACKENDS_PER_POOL).map(key).collect();
    let members: Vec<_> = members.iter().map(|key| Member { key, weight: 1 }).collect();
    let new = |members: &[Member<'_>]| Policy::new(&spec(PolicyKind::RoundRobin), members).err();
    assert_eq!(new(&members), Some(BuildError::TooManyBackends(BACKENDS_PER_POOL + 1)));
    assert_eq!(new(&members[1..]), None);
    let heavy = [Member { key: "10.0.0.1:1", weight: WEIGHT_MAX + 1 }];
    assert_eq!(new(&heavy), Some(BuildError::Weight(WEIGHT_MAX + 1)));
}
