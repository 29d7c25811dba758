//! The baseline of the hash policies: hash modulo the weight that is usable. One backend more or
//! less moves nearly every connection, which is what the others are measured against.

use super::View;

/// The backend that owns point `hash` mod Σ weights on the usable ones laid end to end.
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

    #[test]
    fn points_on_the_usable_weight() {
        let mut pool = Pool::new(&[1, 2, 0, 3]);
        let picks = |pool: &Pool, hashes: std::ops::Range<u64>| -> Vec<usize> {
            hashes.map(|hash| pick(pool, hash).unwrap()).collect()
        };
        assert_eq!(picks(&pool, 0..7), [0, 1, 1, 3, 3, 3, 0]);
        assert_eq!(pick(&pool, u64::MAX), Some(3), "2^64 - 1 is 3 mod 6");
        pool.usable[1] = false;
        assert_eq!(picks(&pool, 0..5), [0, 3, 3, 3, 0]);
        pool.usable = vec![false; 4];
        assert_eq!(pick(&pool, 1), None);
        assert_eq!(pick(&Pool::new(&[]), 1), None);
    }
}
