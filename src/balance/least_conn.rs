//! The usable backend with the least load for its weight, of all.

use std::cmp::Ordering;

use super::{View, by_load, share};

/// Looks at every backend once. Equals are counted as they come, and the n-th takes the place of
/// the choice so far one time in n, so that each is chosen alike: were it always the first, an
/// idle pool would send everything there.
pub(super) fn pick(view: &impl View, rng: &mut fastrand::Rng) -> Option<usize> {
    let mut best: Option<(usize, (u32, u32))> = None;
    let mut equals = 0;
    for index in (0..view.len()).filter(|&index| view.usable(index)) {
        let load = (view.active(index), share(view, index));
        match best.map_or(Ordering::Less, |(_, least)| by_load(load, least)) {
            Ordering::Less => {
                best = Some((index, load));
                equals = 1;
            }
            Ordering::Equal => {
                equals += 1;
                if rng.u32(..equals) == 0 {
                    best = Some((index, load));
                }
            }
            Ordering::Greater => {}
        }
    }
    best.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Pool;
    use super::*;

    #[test]
    fn least_loaded_for_its_weight() {
        let check = |backends: &[(u32, u16)], expected: &[usize]| {
            let mut pool = Pool::new(&backends.iter().map(|b| b.1).collect::<Vec<_>>());
            pool.active = backends.iter().map(|b| b.0).collect();
            let mut rng = fastrand::Rng::with_seed(3);
            let mut picked: Vec<_> = (0..200).map(|_| pick(&pool, &mut rng).unwrap()).collect();
            picked.sort_unstable();
            picked.dedup();
            assert_eq!(picked, expected, "{backends:?}");
        };
        check(&[(1, 1), (0, 1), (2, 1)], &[1]);
        check(&[(0, 1), (0, 1), (0, 1)], &[0, 1, 2]);
        check(&[(0, 1), (0, 2)], &[1]);
        check(&[(0, 1), (1, 2)], &[0, 1]);
        check(&[(0, 1), (2, 2)], &[0]);
        check(&[(u32::MAX, 256), (u32::MAX, 255)], &[0]);
    }

    #[test]
    fn ties_are_even() {
        let pool = Pool::new(&[1; 5]);
        let mut rng = fastrand::Rng::with_seed(9);
        let mut counts = [0i32; 5];
        for _ in 0..10_000 {
            counts[pick(&pool, &mut rng).unwrap()] += 1;
        }
        // Five standard deviations: 5 * sqrt(10,000 * 0.2 * 0.8).
        assert!(counts.iter().all(|count| (count - 2000).abs() <= 200), "{counts:?}");
    }

    #[test]
    fn without_departures_loads_follow_weights() {
        let weights = [1, 2, 5];
        let mut pool = Pool::new(&weights);
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..800 {
            let index = pick(&pool, &mut rng).unwrap();
            pool.active[index] += 1;
        }
        assert_eq!(pool.active, [100, 200, 500]);
    }
}
