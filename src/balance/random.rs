//! Independent draws by weight in constant time: Walker's alias method, built by Vose's algorithm
//! ("A Linear Algorithm for Generating Random Numbers with a Given Distribution", 1991) in
//! integers, so that shares are exact and alike on every machine.

use super::View;
use crate::limits::RANDOM_DRAWS;

/// An alias table over the backends that have a weight.
#[derive(Clone, Debug)]
pub struct Random {
    columns: Box<[Column]>,
    /// Sum of all weights, and the height of every column.
    total: u32,
}

/// A column is shared by at most two backends.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// Tosses below this are `own`, the rest are `alias`.
    keep: u32,
    own: u16,
    alias: u16,
}

impl Random {
    /// Builds the table for these weights, at most [`WEIGHT_MAX`](crate::limits::WEIGHT_MAX) each.
    pub(super) fn new(weights: impl Iterator<Item = u16>) -> Self {
        let some: Vec<(u16, u16)> =
            (0u16..).zip(weights).filter(|&(_, weight)| weight > 0).collect();
        let total = some.iter().map(|&(_, weight)| u32::from(weight)).sum();
        // Everything scaled by the number of columns: a backend of average weight fills one.
        let count = some.len() as u32;
        let mut columns: Vec<Column> = some
            .iter()
            .map(|&(own, weight)| Column { keep: u32::from(weight) * count, own, alias: own })
            .collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..columns.len()).partition(|&at| columns[at].keep < total);
        while let (Some(&low), Some(&high)) = (small.last(), large.last()) {
            small.pop();
            columns[low].alias = columns[high].own;
            columns[high].keep -= total - columns[low].keep;
            if columns[high].keep < total {
                large.pop();
                small.push(high);
            }
        }
        debug_assert!(small.is_empty(), "integer columns come out even");
        Random { columns: columns.into(), total }
    }

    /// Draws until a usable backend comes up, which keeps the shares among the usable ones exact.
    pub(super) fn pick(&self, view: &impl View, rng: &mut fastrand::Rng) -> Option<usize> {
        self.pick_where(view, rng, |_| true)
    }

    /// As [`Random::pick`], among the backends that `wanted` accepts as well.
    pub(super) fn pick_where(
        &self,
        view: &impl View,
        rng: &mut fastrand::Rng,
        wanted: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        if self.columns.is_empty() {
            return None;
        }
        for _ in 0..RANDOM_DRAWS {
            let column = self.columns[rng.usize(..self.columns.len())];
            let own = rng.u32(..self.total) < column.keep;
            let index = usize::from(if own { column.own } else { column.alias });
            if wanted(index) && view.usable(index) {
                return Some(index);
            }
        }
        scan(view, rng, wanted)
    }
}

/// One usable backend by weight, in one pass over all: each next one takes the place of the
/// choice so far with the probability of its share in the weight seen so far (reservoir sampling).
pub(super) fn scan(
    view: &impl View,
    rng: &mut fastrand::Rng,
    wanted: impl Fn(usize) -> bool,
) -> Option<usize> {
    let mut seen = 0;
    let mut choice = None;
    for index in (0..view.len()).filter(|&index| wanted(index) && view.usable(index)) {
        let weight = u32::from(view.weight(index));
        seen += weight;
        if weight > 0 && rng.u32(..seen) < weight {
            choice = Some(index);
        }
    }
    choice
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::Pool;
    use super::*;
    use crate::limits::WEIGHT_MAX;

    proptest! {
        /// Every unit of height belongs to exactly one backend: shares are exact, not approximate.
        #[test]
        fn columns_hold_the_weights_exactly(
            weights in prop::collection::vec(0..=WEIGHT_MAX, 0..40),
        ) {
            let random = Random::new(weights.iter().copied());
            let mut heights = vec![0u32; weights.len()];
            for column in &random.columns {
                prop_assert!(column.keep <= random.total);
                heights[usize::from(column.own)] += column.keep;
                heights[usize::from(column.alias)] += random.total - column.keep;
            }
            for (&weight, height) in weights.iter().zip(heights) {
                prop_assert_eq!(u32::from(weight) * random.columns.len() as u32, height);
            }
        }
    }

    #[test]
    fn scan_keeps_shares() {
        let pool = Pool::new(&[1, 0, 3, 6]);
        let mut rng = fastrand::Rng::with_seed(5);
        let mut counts = [0i32; 4];
        for _ in 0..10_000 {
            counts[scan(&pool, &mut rng, |_| true).unwrap()] += 1;
        }
        // Five standard deviations of a binomial of 10,000 are at most 250.
        for (count, expected) in counts.into_iter().zip([1000, 0, 3000, 6000]) {
            assert!((count - expected).abs() <= 250, "{counts:?}");
        }
        assert_eq!(counts[1], 0);
    }
}
