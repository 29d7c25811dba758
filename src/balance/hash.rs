//! The baseline of the hash policies: hash modulo the weight that is usable. One backend more or
//! less moves nearly every connection, which is what the others are measured against.

use super::View;

/// Where the weight of each backend ends, when all are laid end to end.
#[derive(Clone, Debug)]
pub struct Modulo {
    ends: Box<[u32]>,
    /// For each stretch of the weight, all of equal length, the first backend that ends behind its
    /// beginning. There are about as many stretches as backends, so that few are looked at.
    starts: Box<[u16]>,
    /// A point shifted right by this is its stretch.
    shift: u32,
}

impl Modulo {
    /// Lays out backends with these weights.
    pub(super) fn new(weights: impl Iterator<Item = u16>) -> Self {
        let ends = weights.scan(0, |end, weight| {
            *end += u32::from(weight);
            Some(*end)
        });
        let ends: Box<[u32]> = ends.collect();
        let per_backend = ends.last().map_or(0, |total| total / ends.len() as u32);
        let shift = per_backend.max(1).ilog2();
        let stretches = ends.last().map_or(0, |total| total.saturating_sub(1) >> shift) + 1;
        let start = |stretch: u32| ends.partition_point(|&end| end <= stretch << shift) as u16;
        let starts = (0..stretches).map(start).collect();
        Modulo { ends, starts, shift }
    }

    /// The backend that owns point `hash` mod Σ weights on the usable ones laid end to end. As
    /// long as all are usable the points are known, and none has to be looked at but the owner.
    pub(super) fn pick(&self, view: &impl View, hash: u64) -> Option<usize> {
        let total = self.ends.last().copied().filter(|&total| total > 0)?;
        if view.usable_weight() == total {
            let index = self.owner(hash);
            if view.usable(index) {
                return Some(index);
            }
        }
        pick(view, hash)
    }

    /// The backend of [`Modulo::pick`] over `all`, or the next one in order that `view` has room
    /// on.
    pub(super) fn pick_from(&self, all: &impl View, view: &impl View, hash: u64) -> Option<usize> {
        let home = self.pick(all, hash)?;
        (home..all.len()).chain(0..home).find(|&index| view.usable(index))
    }

    /// The point that `hash` is, while all are usable.
    pub(super) fn slot(&self, hash: u64) -> Option<u64> {
        hash.checked_rem(u64::from(*self.ends.last()?))
    }

    /// The backend of that point. There is weight.
    fn owner(&self, hash: u64) -> usize {
        let point = self.slot(hash).map_or(0, |slot| slot as u32);
        let start = usize::from(self.starts[(point >> self.shift) as usize]);
        start + self.ends[start..].iter().take_while(|&&end| end <= point).count()
    }
}

/// As [`Modulo::pick`] where something is not usable: two passes over all.
pub(super) fn pick(view: &impl View, hash: u64) -> Option<usize> {
    let usable = || (0..view.len()).filter(|&index| view.usable(index));
    let total: u64 = usable().map(|index| u64::from(view.weight(index))).sum();
    let mut point = hash.checked_rem(total)?;
    let mut last = None;
    for index in usable() {
        let weight = u64::from(view.weight(index));
        if point < weight {
            return Some(index);
        }
        point -= weight;
        last = Some(index);
    }
    // A backend became unusable between the two passes.
    last
}

#[cfg(test)]
mod tests {
    use super::super::tests::Pool;
    use super::*;

    fn new(weights: &[u16]) -> Modulo {
        Modulo::new(weights.iter().copied())
    }

    #[test]
    fn points_on_the_usable_weight() {
        let mut pool = Pool::new(&[1, 2, 0, 3]);
        let modulo = new(&pool.weights);
        let picks = |pool: &Pool, hashes: std::ops::Range<u64>| -> Vec<usize> {
            hashes.map(|hash| modulo.pick(pool, hash).unwrap()).collect()
        };
        assert_eq!(picks(&pool, 0..7), [0, 1, 1, 3, 3, 3, 0]);
        assert_eq!(modulo.pick(&pool, u64::MAX), Some(3), "2^64 - 1 is 3 mod 6");
        pool.usable[1] = false;
        assert_eq!(picks(&pool, 0..5), [0, 3, 3, 3, 0]);
        pool.usable = vec![false; 4];
        assert_eq!(modulo.pick(&pool, 1), None);
        assert_eq!(new(&[]).pick(&Pool::new(&[]), 1), None);
        assert_eq!(new(&[0, 0]).pick(&Pool::new(&[0, 0]), 1), None);
    }

    /// The table and the two passes are the same function.
    #[test]
    fn table_is_the_scan() {
        let weights = [3, 0, 1, 256, 7, 0, 0, 2];
        let (pool, modulo) = (Pool::new(&weights), new(&weights));
        for hash in 0..1000 {
            assert_eq!(modulo.pick(&pool, hash), pick(&pool, hash), "{hash}");
        }
    }
}
