//! Consistent hashing on a ring (Karger et al., "Consistent Hashing and Random Trees", STOC 1997),
//! with many points a backend as in ketama.
//!
//! Point `n` of a backend is XXH64 of its key with seed `n`; it has [`RING_POINTS_PER_WEIGHT`] for
//! each unit of its weight. Nothing else goes into a point, so that a backend that comes or goes
//! never moves a key between two others. Ketama scales the number of points to the whole pool
//! instead, and there every change moves keys everywhere.

use xxhash_rust::xxh64::{Xxh64, xxh64};

use super::digest::add;
use super::{BuildError, Member, View, hash};
use crate::limits::{RING_POINTS, RING_POINTS_PER_WEIGHT, RING_STEPS};

/// All points, ascending, and an index into them.
#[derive(Clone, Debug)]
pub struct Ring {
    points: Box<[u64]>,
    /// The backend of each point.
    owners: Box<[u16]>,
    /// For each stretch of the ring, all of equal length, the first point in or behind it. There
    /// are about as many stretches as points, so that a lookup reads one entry and few points.
    starts: Box<[u32]>,
    /// A hash shifted right by this is its stretch.
    shift: u32,
}

impl Ring {
    /// Places the points of all members.
    pub(super) fn new(members: &[Member<'_>]) -> Result<Self, BuildError> {
        Ring::with_points(RING_POINTS_PER_WEIGHT, members)
    }

    /// As [`Ring::new`], with this many points for each unit of weight.
    pub(super) fn with_points(
        per_weight: usize,
        members: &[Member<'_>],
    ) -> Result<Self, BuildError> {
        let count = |member: &Member<'_>| usize::from(member.weight) * per_weight;
        let total: usize = members.iter().map(count).sum();
        if total > RING_POINTS {
            return Err(BuildError::RingTooLarge(total));
        }
        let mut ring: Vec<(u64, u16)> = Vec::with_capacity(total);
        for (index, member) in (0..).zip(members) {
            let point = |n| (xxh64(member.key.as_bytes(), n), index);
            ring.extend((0..count(member) as u64).map(point));
        }
        // Of equal points the first in order: members are in the order of their keys.
        ring.sort_unstable();
        let points: Box<[u64]> = ring.iter().map(|&(point, _)| point).collect();
        // At least two stretches: a shift by 64 bits is none.
        let bits = total.next_power_of_two().ilog2().max(1);
        let shift = u64::BITS - bits;
        Ok(Ring {
            starts: starts(&points, 1 << bits, shift),
            points,
            owners: ring.iter().map(|&(_, owner)| owner).collect(),
            shift,
        })
    }

    /// The backend of the first point at or behind `hash`. An unusable one keeps its points and is
    /// passed over to the next on the ring, which differs from point to point.
    pub(super) fn pick(&self, view: &impl View, hash: u64) -> Option<usize> {
        let (before, from) = self.owners.split_at(self.slot(hash)? as usize);
        let mut last = None;
        for &index in from.iter().chain(before).take(RING_STEPS) {
            if last != Some(index) && view.usable(usize::from(index)) {
                return Some(usize::from(index));
            }
            last = Some(index);
        }
        hash::pick(view, hash)
    }

    /// The number of that point, counted from 0. `None` without points.
    pub(super) fn slot(&self, hash: u64) -> Option<u64> {
        let start = self.starts[(hash >> self.shift) as usize] as usize;
        let steps = self.points[start..].iter().take_while(|&&point| point < hash).count();
        // Behind the last point the ring begins again.
        ((start + steps) as u64).checked_rem(self.points.len() as u64)
    }

    /// Adds everything that a pick depends on.
    pub(super) fn digest(&self, digest: &mut Xxh64) {
        add(digest, &self.points, u64::to_le_bytes);
        add(digest, &self.owners, u16::to_le_bytes);
    }
}

fn starts(points: &[u64], stretches: usize, shift: u32) -> Box<[u32]> {
    let mut at = 0;
    let start = |stretch: usize| {
        while points.get(at).is_some_and(|point| (point >> shift) < stretch as u64) {
            at += 1;
        }
        at as u32
    };
    (0..stretches).map(start).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{Pool, keys, mix};
    use super::*;

    fn ring(per_weight: usize, keys: &[String], weight: impl Fn(usize) -> u16) -> Ring {
        let member = |(i, key): (usize, &'_ String)| (key.clone(), weight(i));
        let owned: Vec<_> = keys.iter().enumerate().map(member).collect();
        let members: Vec<_> =
            owned.iter().map(|(key, weight)| Member { key, weight: *weight }).collect();
        Ring::with_points(per_weight, &members).unwrap()
    }

    /// Expected values: XXH64 and the sort written out in python.
    #[test]
    fn known_points() {
        let ring = ring(2, &["10.0.0.1:443".into(), "10.0.0.2:443".into()], |i| i as u16 + 1);
        assert_eq!(
            ring.points[..],
            [
                0x01b45f4666630e01,
                0x23805bfef34486b1,
                0x688cf27a83fd8689,
                0x6e6a9695a9d5e393,
                0x731f6cec2247088a,
                0xbe3c4ca0dfc4a823,
            ]
        );
        assert_eq!(ring.owners[..], [0, 1, 1, 0, 1, 1]);
    }

    proptest! {
        #[test]
        fn lookup_is_the_first_point_at_or_behind(
            count in 1..20usize,
            per_weight in 1..50usize,
            hash: u64,
        ) {
            let ring = ring(per_weight, &keys(count), |_| 1);
            let at_or_behind = |hash: u64| {
                let found = ring.points.iter().position(|&point| point >= hash);
                Some(found.unwrap_or(0) as u64)
            };
            let edges = ring.points.iter().flat_map(|&p| [p - 1, p, p + 1]);
            for hash in edges.chain([hash, 0, u64::MAX]) {
                prop_assert_eq!(ring.slot(hash), at_or_behind(hash));
            }
        }

        /// A key is on a backend that leaves, or it stays where it is.
        #[test]
        fn who_leaves_moves_nobody_else(
            weights in prop::collection::vec(0..4u16, 2..20),
            gone: prop::sample::Index,
        ) {
            let all = keys(weights.len());
            let gone = gone.index(all.len());
            let before = ring(160, &all, |i| weights[i]);
            let after = ring(160, &all, |i| if i == gone { 0 } else { weights[i] });
            let owner = |ring: &Ring, hash| ring.slot(hash).map(|n| ring.owners[n as usize]);
            for hash in (0..500).map(mix) {
                let home = owner(&before, hash);
                prop_assert!(home == Some(gone as u16) || home == owner(&after, hash));
            }
        }
    }

    /// What a change of membership does, being down does too: both are the same walk.
    #[test]
    fn passing_over_is_leaving() {
        let all = keys(10);
        let before = ring(160, &all, |_| 1);
        let after = ring(160, &all, |i| u16::from(i != 4));
        let mut pool = Pool::new(&[1; 10]);
        pool.usable[4] = false;
        for hash in (0..5000).map(mix) {
            assert_eq!(before.pick(&pool, hash), after.pick(&pool, hash));
        }
    }

    /// Each backend has a share of 200 points' stretches, all independent and exponentially
    /// distributed: the deviation is 1 / √200 of the mean, 7.1 %. That of a sample of 100 strays
    /// by 0.5 points; three of them.
    #[test]
    fn deviation_of_load() {
        let ring = ring(200, &keys(100), |_| 1);
        let mut shares = vec![0.0; 100];
        let mut before = *ring.points.last().unwrap();
        for (&point, &owner) in ring.points.iter().zip(&ring.owners) {
            shares[usize::from(owner)] += point.wrapping_sub(before) as f64 / 2f64.powi(64);
            before = point;
        }
        let variance = shares.iter().map(|share| (share * 100.0 - 1.0).powi(2)).sum::<f64>() / 99.0;
        let percent = variance.sqrt() * 100.0;
        assert!((percent - 7.1).abs() <= 1.5, "{percent}");
    }

    #[test]
    fn sizes() {
        assert_eq!(ring(160, &[], |_| 1).slot(7), None);
        assert_eq!(ring(160, &keys(3), |_| 0).slot(7), None);
        assert_eq!(ring(1, &keys(1), |_| 1).slot(7), Some(0));
        let members = vec![Member { key: "k", weight: 256 }; RING_POINTS / 160 / 256 + 1];
        let total = members.len() * 256 * 160;
        assert_eq!(Ring::new(&members).err(), Some(BuildError::RingTooLarge(total)));
    }
}
