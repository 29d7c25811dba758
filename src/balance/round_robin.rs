//! Smooth weighted round robin, exact across workers: a schedule laid down once and a counter of
//! tickets that all workers share.
//!
//! The schedule is what nginx' `ngx_http_upstream_get_round_robin_peer` would pick turn by turn
//! with every backend up: each backend's current value grows by its weight, the largest is picked
//! (the first of equals) and reduced by the sum of all weights. Weights 5, 1, 1 give
//! `a a b a c a a`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{View, random};
use crate::limits::{ROUND_ROBIN_DRAWS, ROUND_ROBIN_SLOTS};

/// One whole cycle of turns: the sum of the weights over their greatest common divisor.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    schedule: Box<[u16]>,
}

/// Backends of equal weight. Smooth round robin serves them in turn, so that only the next of
/// each group can be the largest, and a slot costs as many steps as there are distinct weights.
struct Group {
    weight: u32,
    members: Vec<u16>,
    next: usize,
    /// Current value of the next member.
    current: i64,
}

impl RoundRobin {
    /// Lays down the schedule of backends with these weights, at most
    /// [`WEIGHT_MAX`](crate::limits::WEIGHT_MAX) each.
    pub(super) fn new(weights: impl Iterator<Item = u16>) -> Self {
        let mut groups = groups(weights);
        let total: u64 = groups.iter().map(|g| u64::from(g.weight) * g.members.len() as u64).sum();
        debug_assert!(total <= ROUND_ROBIN_SLOTS as u64);
        let total_value = total as i64;
        let schedule = (0..total).map(|_| {
            let group = advance(&mut groups);
            let picked = group.members[group.next];
            group.next += 1;
            // Its current value falls by the total; that of the next in the group has not fallen
            // yet, unless all have had their turn and the round begins again.
            if group.next == group.members.len() {
                group.next = 0;
                group.current -= total_value;
            }
            picked
        });
        RoundRobin { schedule: schedule.collect() }
    }

    /// Draws tickets until one leads to a usable backend. An unusable one's turns thus go to
    /// everyone in the rotation and not to whoever happens to stand behind it.
    pub(super) fn pick(
        &self,
        view: &impl View,
        tickets: &AtomicU64,
        rng: &mut fastrand::Rng,
    ) -> Option<usize> {
        let length = self.schedule.len();
        // Twice the schedule: other workers may draw the usable slots of the first cycle.
        for _ in 0..ROUND_ROBIN_DRAWS.min(2 * length) {
            let ticket = tickets.fetch_add(1, Relaxed);
            let index = usize::from(self.schedule[(ticket % length as u64) as usize]);
            if view.usable(index) {
                return Some(index);
            }
        }
        // Nearly everything is unusable: exact shares matter less than an answer.
        random::scan(view, rng, |_| true)
    }
}

/// Groups backends by weight over the common divisor, weight 0 left out, lowest index first.
fn groups(weights: impl Iterator<Item = u16>) -> Vec<Group> {
    let mut by_weight = std::collections::BTreeMap::<u16, Vec<u16>>::new();
    for (index, weight) in weights.enumerate() {
        if weight > 0 {
            by_weight.entry(weight).or_default().push(index as u16);
        }
    }
    let divisor = by_weight.keys().fold(0, |divisor, &weight| gcd(divisor, weight));
    let group = |(weight, members)| Group {
        weight: u32::from(weight / divisor),
        members,
        next: 0,
        current: 0,
    };
    by_weight.into_iter().map(group).collect()
}

/// One step of everybody's current value; returns the group with the largest.
fn advance(groups: &mut [Group]) -> &mut Group {
    let mut best = 0;
    for at in 0..groups.len() {
        groups[at].current += i64::from(groups[at].weight);
        let (this, leader) = (&groups[at], &groups[best]);
        let ahead = this.current > leader.current
            || this.current == leader.current
                && this.members[this.next] < leader.members[leader.next];
        if ahead {
            best = at;
        }
    }
    &mut groups[best]
}

fn gcd(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::Pool;
    use super::*;
    use crate::limits::{BACKENDS_PER_POOL, WEIGHT_MAX};

    fn schedule(weights: &[u16]) -> Vec<u16> {
        RoundRobin::new(weights.iter().copied()).schedule.into()
    }

    #[test]
    fn schedules() {
        let check = |weights: &[u16], expected: &[u16]| {
            assert_eq!(schedule(weights), expected, "{weights:?}");
        };
        check(&[5, 1, 1], &[0, 0, 1, 0, 2, 0, 0]);
        check(&[1, 1, 1], &[0, 1, 2]);
        check(&[256, 256], &[0, 1]);
        check(&[2, 0, 4], &[2, 0, 2]);
        check(&[1, 2, 3], &[2, 1, 0, 2, 1, 2]);
        check(&[0, 0], &[]);
        check(&[], &[]);
    }

    #[test]
    fn largest_pool_has_a_schedule() {
        // Not all 256 weights: without optimization that takes seconds (release: 0.3 s).
        let weights: Vec<u16> = (0..BACKENDS_PER_POOL as u16).map(|i| i % 32 + 1).collect();
        let total: u32 = weights.iter().copied().map(u32::from).sum();
        assert_eq!(schedule(&weights).len(), total as usize);
    }

    /// 2,000 picks of 3 equals, on this many threads at once: nobody gets two turns more.
    fn check_exact(threads: usize) {
        let turns = RoundRobin::new([1; 3].into_iter());
        let pool = Pool::new(&[1; 3]);
        let tickets = AtomicU64::new(0);
        let counts: [AtomicU64; 3] = Default::default();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let (pool, mut rng) = (pool.clone(), fastrand::Rng::with_seed(1));
                    for _ in 0..2000 / threads {
                        let index = turns.pick(&pool, &tickets, &mut rng).unwrap();
                        counts[index].fetch_add(1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(counts.map(AtomicU64::into_inner), [667, 667, 666]);
    }

    #[test]
    fn exact_on_one_thread() {
        check_exact(1);
    }

    #[test]
    fn exact_across_threads() {
        check_exact(4);
    }

    #[test]
    fn unusable_backend_is_replaced_by_all_alike() {
        let turns = RoundRobin::new([1; 4].into_iter());
        let mut pool = Pool::new(&[1; 4]);
        pool.usable[1] = false;
        let (tickets, mut rng) = (AtomicU64::new(0), fastrand::Rng::with_seed(1));
        let mut counts = [0; 4];
        for _ in 0..999 {
            counts[turns.pick(&pool, &tickets, &mut rng).unwrap()] += 1;
        }
        assert_eq!(counts, [333, 0, 333, 333]);
    }

    /// The definition, a backend at a time.
    fn smooth(weights: &[u16]) -> Vec<u16> {
        let divisor = weights.iter().fold(0, |a, &b| gcd(a, b)).max(1);
        let weights: Vec<i64> = weights.iter().map(|&w| i64::from(w / divisor)).collect();
        let total: i64 = weights.iter().sum();
        let mut current = vec![0; weights.len()];
        let turn = |_| {
            current.iter_mut().zip(&weights).for_each(|(value, weight)| *value += weight);
            let largest = *current.iter().max().unwrap();
            let picked = (0..weights.len())
                .find(|&index| current[index] == largest && weights[index] > 0)
                .unwrap();
            current[picked] -= total;
            picked as u16
        };
        (0..total).map(turn).collect()
    }

    proptest! {
        #[test]
        fn groups_do_not_change_the_schedule(
            weights in prop::collection::vec(prop_oneof![0..4u16, 0..=WEIGHT_MAX], 0..12),
        ) {
            prop_assert_eq!(schedule(&weights), smooth(&weights));
        }
    }
}
