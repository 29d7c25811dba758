//! The usable backend with the least load for its weight, of all.
//!
//! Every backend is looked at: what picks see of them lies side by side, so that a thousand are
//! 16 KB in a row. A tree of minima would be shorter to walk, but each connection that begins or
//! ends would have to write to it, on cache lines that all workers share.

use std::cmp::Ordering;

use super::{Load, View};

/// The first look finds the least load and how many have it; the second takes one of these at
/// random: were it always the first, an idle pool would send everything there.
pub(super) fn pick(view: &impl View, rng: &mut fastrand::Rng) -> Option<usize> {
    if let Some(known) = view.least(rng) {
        return Some(known);
    }
    let mut least: Option<Load> = None;
    let (mut first, mut equals) = (0, 0);
    for index in 0..view.len() {
        let Some(load) = view.load(index) else { continue };
        match least.map_or(Ordering::Less, |least| load.compare(least)) {
            Ordering::Less => {
                least = Some(load);
                (first, equals) = (index, 1);
            }
            Ordering::Equal => equals += 1,
            Ordering::Greater => {}
        }
    }
    let least = least?;
    let is_equal = |load: Load| load.compare(least) == Ordering::Equal;
    let mut equal = (first..view.len()).filter(|&index| view.load(index).is_some_and(is_equal));
    // Where loads have changed between the two, the first of the least will do.
    Some(equal.nth(rng.usize(..equals)).unwrap_or(first))
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
