//! Highest random weight (Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit
//! Rates", IEEE/ACM Transactions on Networking 1998), with weights as in Schindelhauer and
//! Schomaker, "Weighted Distributed Hash Tables", SPAA 2005: the backend with the largest
//! `weight / −ln(u)` wins, where `u` in (0, 1) is a hash of backend and connection together. That is
//! the smallest of exponentially distributed numbers of rate `weight`, so that shares follow
//! weights exactly. A score depends on nothing but its own backend: whoever comes or goes, no key
//! moves between two others.
//!
//! `u` is XXH64 of the backend's identity (8 bytes, XXH64 of its key with seed 0) with the hash of
//! the connection as its seed. Of equal scores the first in order wins.

use xxhash_rust::xxh64::xxh64;

use super::{Member, View, fixed};

const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME_5: u64 = 0x27d4_eb2f_1656_67c5;

/// The backends that have a weight, lightest first, then in order.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    groups: Box<[Group]>,
    /// What XXH64 makes of each identity before the seed comes in.
    rounds: Box<[u64]>,
    indices: Box<[u16]>,
}

/// Backends of equal weight. Among them the largest `u` has the largest score, so that a pick
/// takes one logarithm a group.
#[derive(Clone, Debug)]
struct Group {
    weight: u16,
    members: std::ops::Range<usize>,
}

/// The best so far: `cost` is −log2(u), in the same scale for all.
struct Best {
    cost: u64,
    weight: u16,
    index: u16,
}

impl Rendezvous {
    /// Takes in all members.
    pub(super) fn new(members: &[Member<'_>]) -> Self {
        let mut order: Vec<(u16, u16)> =
            (0..).zip(members).map(|(index, member)| (member.weight, index)).collect();
        order.retain(|&(weight, _)| weight > 0);
        order.sort_unstable();
        let round = |&(_, index): &(u16, u16)| {
            first_round(xxh64(members[usize::from(index)].key.as_bytes(), 0))
        };
        let mut start = 0;
        let group = |equals: &[(u16, u16)]| {
            let members = start..start + equals.len();
            start = members.end;
            Group { weight: equals[0].0, members }
        };
        Rendezvous {
            groups: order.chunk_by(|a, b| a.0 == b.0).map(group).collect(),
            rounds: order.iter().map(round).collect(),
            indices: order.iter().map(|&(_, index)| index).collect(),
        }
    }

    /// The usable backend with the largest score. Only a backend that would win is asked whether
    /// it is usable: about ln(n) of n, where most are.
    pub(super) fn pick(&self, view: &impl View, hash: u64) -> Option<usize> {
        let mut best: Option<Best> = None;
        for group in &self.groups {
            let Some((u, index)) = self.largest(group, view, hash) else { continue };
            let found = Best { cost: fixed::neg_log2(u), weight: group.weight, index };
            if best.as_ref().is_none_or(|best| found.beats(best)) {
                best = Some(found);
            }
        }
        best.map(|best| usize::from(best.index))
    }

    fn largest(&self, group: &Group, view: &impl View, hash: u64) -> Option<(u64, u16)> {
        let rounds = &self.rounds[group.members.clone()];
        let indices = &self.indices[group.members.clone()];
        let seed = hash.wrapping_add(PRIME_5).wrapping_add(8);
        let mut largest = None;
        // The first needs not be above anything.
        let mut bar = 0;
        for (&round, &index) in rounds.iter().zip(indices) {
            let u = finish(seed ^ round);
            if u >= bar && view.usable(usize::from(index)) {
                largest = Some((u, index));
                bar = u.saturating_add(1);
            }
        }
        largest
    }
}

impl Best {
    /// `weight / cost` is larger, by cross-multiplication.
    fn beats(&self, other: &Best) -> bool {
        let score = |weight: u16, other_cost: u64| u128::from(weight) * u128::from(other_cost);
        let (own, others) = (score(self.weight, other.cost), score(other.weight, self.cost));
        own > others || own == others && self.index < other.index
    }
}

/// XXH64 of 8 bytes, up to where the seed comes in. Computed once a backend.
fn first_round(identity: u64) -> u64 {
    identity.wrapping_mul(PRIME_2).rotate_left(31).wrapping_mul(PRIME_1)
}

/// The rest of it.
fn finish(mixed: u64) -> u64 {
    let h = mixed.rotate_left(27).wrapping_mul(PRIME_1).wrapping_add(PRIME_4);
    let h = (h ^ (h >> 33)).wrapping_mul(PRIME_2);
    let h = (h ^ (h >> 29)).wrapping_mul(PRIME_3);
    h ^ (h >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{Pool, keys, mix};
    use super::*;

    fn build(keys: &[String], weights: &[u16]) -> Rendezvous {
        let members = keys.iter().zip(weights).map(|(key, &weight)| Member { key, weight });
        Rendezvous::new(&members.collect::<Vec<_>>())
    }

    /// The definition, a backend at a time.
    fn defined(keys: &[String], pool: &Pool, hash: u64) -> Option<usize> {
        let mut best: Option<Best> = None;
        for (index, key) in keys.iter().enumerate().filter(|&(index, _)| pool.usable[index]) {
            let identity = xxh64(key.as_bytes(), 0);
            let cost = fixed::neg_log2(xxh64(&identity.to_le_bytes(), hash));
            let found = Best { cost, weight: pool.weights[index], index: index as u16 };
            if best.as_ref().is_none_or(|best| found.beats(best)) {
                best = Some(found);
            }
        }
        best.map(|best| usize::from(best.index))
    }

    proptest! {
        #[test]
        fn groups_do_not_change_a_pick(
            backends in prop::collection::vec((0..5u16, any::<bool>()), 0..30),
            hash: u64,
        ) {
            let weights: Vec<u16> = backends.iter().map(|b| b.0).collect();
            let mut pool = Pool::new(&weights);
            pool.usable.iter_mut().zip(&backends).for_each(|(usable, b)| *usable &= b.1);
            let keys = keys(weights.len());
            let picked = build(&keys, &weights).pick(&pool, hash);
            prop_assert_eq!(picked, defined(&keys, &pool, hash));
        }

        #[test]
        fn hash_is_xxh64(identity: u64, seed: u64) {
            let mixed = seed.wrapping_add(PRIME_5).wrapping_add(8) ^ first_round(identity);
            prop_assert_eq!(finish(mixed), xxh64(&identity.to_le_bytes(), seed));
        }
    }

    #[test]
    fn few_are_asked() {
        struct Counted(std::cell::Cell<usize>);
        impl View for Counted {
            fn len(&self) -> usize {
                1000
            }
            fn usable(&self, _: usize) -> bool {
                self.0.set(self.0.get() + 1);
                true
            }
            fn active(&self, _: usize) -> u32 {
                0
            }
            fn weight(&self, _: usize) -> u16 {
                1
            }
        }
        let rendezvous = build(&keys(1000), &[1; 1000]);
        let view = Counted(0.into());
        assert!((0..1000).all(|n| rendezvous.pick(&view, mix(n)).is_some()));
        // Records in a random order: the 1000th harmonic number is 7.5.
        assert!((7_000..8_000).contains(&view.0.get()), "{}", view.0.get());
    }
}
