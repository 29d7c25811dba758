//! The less loaded of two random distinct backends (Mitzenmacher, "The Power of Two Choices in
//! Randomized Load Balancing", 2001).
//!
//! Both are drawn by weight: drawn evenly, a backend could never get more than two in n of the
//! connections, whatever its weight.

use std::cmp::Ordering;

use super::View;
use super::random::Random;

/// The less loaded of two draws; the only usable backend stands alone, and of equals the first
/// draw stays.
pub(super) fn pick(random: &Random, view: &impl View, rng: &mut fastrand::Rng) -> Option<usize> {
    let (first, second) = draw(random, view, rng)?;
    let Some(second) = second else { return Some(first) };
    match view.carries(second).compare(view.carries(first)) {
        Ordering::Less => Some(second),
        Ordering::Equal | Ordering::Greater => Some(first),
    }
}

/// One usable backend, and another where there is one.
pub(super) fn draw(
    random: &Random,
    view: &impl View,
    rng: &mut fastrand::Rng,
) -> Option<(usize, Option<usize>)> {
    let first = random.pick(view, rng)?;
    Some((first, random.pick_where(view, rng, |index| index != first)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Pool;
    use super::*;

    fn spread(weights: &[u16], picks: usize) -> Vec<u32> {
        let random = Random::new(weights.iter().copied());
        let mut pool = Pool::new(weights);
        let mut rng = fastrand::Rng::with_seed(13);
        for _ in 0..picks {
            let index = pick(&random, &pool, &mut rng).unwrap();
            pool.active[index] += 1;
        }
        pool.active
    }

    /// The two are distinct: of two backends the less loaded is always found.
    #[test]
    fn of_two_always_the_less_loaded() {
        for weights in [[1, 1], [1, 256]] {
            let random = Random::new(weights.into_iter());
            let mut pool = Pool::new(&weights);
            pool.active = vec![0, 10_000];
            let mut rng = fastrand::Rng::with_seed(2);
            for _ in 0..1000 {
                assert_eq!(pick(&random, &pool, &mut rng), Some(0), "{weights:?}");
            }
        }
    }

    /// Of the two drawn, the more loaded of n never wins; each other may.
    #[test]
    fn most_loaded_never_wins() {
        let random = Random::new([1; 5].into_iter());
        let mut pool = Pool::new(&[1; 5]);
        pool.active[3] = 1;
        let mut rng = fastrand::Rng::with_seed(4);
        let mut picked: Vec<_> = (0..1000).map(|_| pick(&random, &pool, &mut rng)).collect();
        picked.sort_unstable();
        picked.dedup();
        assert_eq!(picked, [Some(0), Some(1), Some(2), Some(4)]);
    }

    /// Two choices keep the fullest of n bins within O(log log n) of the mean; one choice strays
    /// by about sqrt(2 * mean * ln n), 37 here.
    #[test]
    fn loads_stay_together() {
        let active = spread(&[1; 100], 10_000);
        assert!(active.iter().all(|&n| (94..=106).contains(&n)), "{active:?}");
    }

    #[test]
    fn a_heavy_backend_gets_its_share() {
        let mut weights = [1; 20];
        weights[7] = 20;
        let active = spread(&weights, 3900);
        // 3,900 over a weight of 39: 2,000 for the heavy one, 100 each for the others.
        assert!((1900..=2100).contains(&active[7]), "{active:?}");
    }
}
