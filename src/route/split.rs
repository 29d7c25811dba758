//! A route's connections divided among pools by weight, for canaries.

/// Pools and their shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Pools in the order of the file, each with the sum of the weights up to and with its own.
    bounds: Box<[(u64, usize)]>,
    /// The sum of all weights; more than 0.
    total: u64,
}

/// Why weights are not a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// No pool, or only ones of weight 0.
    #[error("every weight is 0; at least one pool needs a weight above 0")]
    NoWeight,
}

impl Split {
    /// Pools (by index) and weights. A pool of weight 0 gets nothing.
    pub fn new(shares: impl IntoIterator<Item = (usize, u32)>) -> Result<Self, SplitError> {
        let mut total = 0u64;
        let bounds = shares.into_iter().map(|(pool, weight)| {
            // No overflow: that takes 2^32 shares.
            total += u64::from(weight);
            (total, pool)
        });
        let bounds = bounds.collect();
        if total == 0 { Err(SplitError::NoWeight) } else { Ok(Split { bounds, total }) }
    }

    /// The pool of the connections whose key has this hash (XXH64, of the pool's key).
    ///
    /// The range of the hash is cut in the order of the file, so the same hash always gets the
    /// same pool. Moving weight between two neighbours moves only their difference; elsewhere a
    /// change also shifts what lies between. With two pools, the usual case, no more moves than
    /// must.
    pub fn pick(&self, hash: u64) -> usize {
        let place = (u128::from(mix(hash)) * u128::from(self.total)) >> 64;
        let index = self.bounds.partition_point(|&(bound, _)| u128::from(bound) <= place);
        let found = self.bounds.get(index).expect("the place is below the total, the last bound");
        found.1
    }

    /// The pools, those of weight 0 too.
    pub fn pools(&self) -> impl Iterator<Item = usize> + '_ {
        self.bounds.iter().map(|&(_, pool)| pool)
    }
}

/// A permutation of 64 bits (the finalizer of SplitMix64). Pools hash by the same key: without it
/// a canary of five percent would see one stretch of a ring, and most of its backends nothing.
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 100_000;

    fn hashes() -> impl Iterator<Item = u64> {
        (0..KEYS).map(|key| xxhash_rust::xxh64::xxh64(&key.to_be_bytes(), 0))
    }

    fn counts(split: &Split, pools: usize) -> Vec<u64> {
        let mut counts = vec![0; pools];
        for hash in hashes() {
            counts[split.pick(hash)] += 1;
        }
        counts
    }

    #[test]
    fn shares_follow_weights() {
        let check = |weights: &[u32]| {
            let split = Split::new(weights.iter().copied().enumerate()).unwrap();
            let total: u64 = weights.iter().copied().map(u64::from).sum();
            for (count, &weight) in counts(&split, weights.len()).iter().zip(weights) {
                let expected = KEYS * u64::from(weight) / total;
                // Four standard deviations are at most 633.
                assert!(count.abs_diff(expected) < 640, "{weights:?}: {count} of {expected}");
                assert_eq!(*count == 0, weight == 0, "{weights:?}");
            }
        };
        check(&[95, 5]);
        check(&[1]);
        check(&[0, 1, 0, 3, 0]);
        check(&[u32::MAX, u32::MAX, u32::MAX]);
        check(&[1; 40]);
    }

    #[test]
    fn every_hash_has_a_pool() {
        let split = Split::new([(7, 0), (8, 1), (9, u32::MAX), (3, 0)]).unwrap();
        for hash in hashes().chain([0, 1, u64::MAX]) {
            assert!([8, 9].contains(&split.pick(hash)));
        }
    }

    #[test]
    fn no_weight() {
        assert_eq!(Split::new([]), Err(SplitError::NoWeight));
        assert_eq!(Split::new([(0, 0), (1, 0)]), Err(SplitError::NoWeight));
    }

    /// Known answers: another version must not send a client to another pool.
    #[test]
    fn stable() {
        let split = Split::new([(0, 95), (1, 5)]).unwrap();
        let canaries: Vec<u64> = (0..100).filter(|&hash| split.pick(hash) == 1).collect();
        assert_eq!(canaries, [18, 22, 36, 44, 54, 93]);
        // The first output of SplitMix64 with seed 0.
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf);
    }

    /// Of two pools nothing moves but what must, and all of it one way.
    #[test]
    fn a_change_of_weight_moves_its_share() {
        let before = Split::new([(0, 95), (1, 5)]).unwrap();
        let after = Split::new([(0, 90), (1, 10)]).unwrap();
        let moves = hashes().map(|hash| (before.pick(hash), after.pick(hash)));
        let moved: Vec<_> = moves.filter(|(before, after)| before != after).collect();
        assert!(moved.iter().all(|&moved| moved == (0, 1)));
        assert!((moved.len() as u64).abs_diff(KEYS / 20) < 280, "{}", moved.len());
    }

    /// The canary's clients are spread over all hashes, not in one stretch of them.
    #[test]
    fn a_share_is_not_a_stretch_of_hashes() {
        let split = Split::new([(0, 95), (1, 5)]).unwrap();
        let mut eighths = [0u32; 8];
        for hash in hashes().filter(|&hash| split.pick(hash) == 1) {
            eighths[(hash >> 61) as usize] += 1;
        }
        assert!(eighths.iter().all(|&n| (525..=725).contains(&n)), "{eighths:?}");
    }
}
