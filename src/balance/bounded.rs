//! Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing
//! with Bounded Loads", SODA 2018), over any of the hash policies.
//!
//! At the moment of its pick no backend goes above ⌈C × (total + 1) × weight / Σ weights⌉. `total`
//! is what the pool has in flight, sessions that remain on unusable backends included; the sum is
//! of the usable weight. A key whose backend is full goes on in the policy's own order, as if the
//! full ones were down: round the ring, along the table, to the next highest score.

use std::fmt;

use super::View;

/// The factor C, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound(u32);

impl Bound {
    /// Anything less could not place every connection.
    pub const MIN: Bound = Bound(1000);
    /// A hundred times the fair share bounds nothing any more.
    pub const MAX: Bound = Bound(100_000);

    /// From thousandths; `None` unless between [`Bound::MIN`] and [`Bound::MAX`].
    pub const fn new(thousandths: u32) -> Option<Bound> {
        if Bound::MIN.0 <= thousandths && thousandths <= Bound::MAX.0 {
            Some(Bound(thousandths))
        } else {
            None
        }
    }

    /// In thousandths.
    pub fn thousandths(self) -> u32 {
        self.0
    }
}

/// As the configuration writes it: at least one decimal, at most three.
impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1000, self.0 % 1000);
        let (start, rest) = text.split_at(text.len() - 2);
        write!(f, "{start}{}", rest.trim_end_matches('0'))
    }
}

/// A view on which backends at their cap are not usable.
pub(super) struct Capped<'a, V> {
    view: &'a V,
    /// C × (total + 1), in thousandths.
    load: u64,
    /// Σ of the usable weight, in thousandths of it.
    weight: u64,
}

impl<'a, V: View> Capped<'a, V> {
    pub(super) fn new(view: &'a V, bound: Bound) -> Self {
        let load = u64::from(bound.0) * (u64::from(view.total_active()) + 1);
        Capped { view, load, weight: u64::from(view.usable_weight()) * 1000 }
    }

    /// `active + 1 ≤ ⌈load × own / weight⌉`, which for whole numbers is `active < load × own /
    /// weight`. Nothing overflows: 2^32 × 1000 × 10,000 × 256 and 2^17 × 2^32 × 256 are below 2^64.
    fn has_room(&self, index: usize) -> bool {
        let own = u64::from(self.view.weight(index));
        u64::from(self.view.active(index)) * self.weight < self.load * own
    }
}

impl<V: View> View for Capped<'_, V> {
    fn len(&self) -> usize {
        self.view.len()
    }

    fn usable(&self, index: usize) -> bool {
        self.view.usable(index) && self.has_room(index)
    }

    fn active(&self, index: usize) -> u32 {
        self.view.active(index)
    }

    fn weight(&self, index: usize) -> u16 {
        self.view.weight(index)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Pool;
    use super::*;

    #[test]
    fn as_written() {
        for (thousandths, expected) in
            [(1000, "1.0"), (1250, "1.25"), (1500, "1.5"), (1005, "1.005"), (100_000, "100.0")]
        {
            assert_eq!(Bound::new(thousandths).unwrap().to_string(), expected);
        }
        assert_eq!(Bound::new(999), None);
        assert_eq!(Bound::new(100_001), None);
    }

    #[test]
    fn caps() {
        let check = |thousandths, weights: &[u16], active: &[u32], expected: &[bool]| {
            let mut pool = Pool::new(weights);
            pool.active = active.to_vec();
            let capped = Capped::new(&pool, Bound::new(thousandths).unwrap());
            let room: Vec<bool> = (0..weights.len()).map(|index| capped.usable(index)).collect();
            assert_eq!(room, expected, "{thousandths} {weights:?} {active:?}");
        };
        // ⌈1.25 × 1 / 3⌉ = 1, ⌈1.25 × 4 / 3⌉ = 2.
        check(1250, &[1, 1, 1], &[0, 0, 0], &[true; 3]);
        check(1250, &[1, 1, 1], &[1, 1, 1], &[true; 3]);
        check(1250, &[1, 1, 1], &[2, 1, 0], &[false, true, true]);
        // ⌈1 × 8 / 4⌉ = 2 exactly, and twice that for twice the weight.
        check(1000, &[1, 1, 2], &[2, 1, 4], &[false, true, false]);
        check(1000, &[1, 0, 3], &[1, 0, 2], &[false, false, true]);
        check(100_000, &[256; 2], &[u32::MAX / 2; 2], &[true; 2]);
    }
}
