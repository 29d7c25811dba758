//! The better of two random distinct backends by latency and load (Finagle's `p2cPeakEwma`): the
//! least `latency × (active + 1) / share`. The load makes up for what the latency cannot know yet,
//! the answers that are still awaited.

use std::cmp::Ordering;

use super::random::Random;
use super::{View, p2c};

/// Draws twice, as [`p2c`] does.
pub(super) fn pick(random: &Random, view: &impl View, rng: &mut fastrand::Rng) -> Option<usize> {
    let (first, second) = p2c::draw(random, view, rng)?;
    let Some(second) = second else { return Some(first) };
    match cost(view, second, first).cmp(&cost(view, first, second)) {
        Ordering::Less => Some(second),
        Ordering::Equal | Ordering::Greater => Some(first),
    }
}

/// The cost of one, times the share of the other: divided by neither. Below a nanosecond there is
/// no latency, only load, as in a pool that nothing has been measured in.
fn cost(view: &impl View, index: usize, other: usize) -> u128 {
    let share = view.carries(other).share;
    let load = (u64::from(view.carries(index).active) + 1) * u64::from(share);
    u128::from(view.latency(index).max(1)) * u128::from(load)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Pool;
    use super::*;

    /// Two backends of `(latency, active, weight)`: the one that always wins; `None` if the first
    /// draw decides.
    fn winner(backends: [(u64, u32, u16); 2]) -> Option<usize> {
        let mut pool = Pool::new(&backends.map(|b| b.2));
        pool.latency = backends.map(|b| b.0).to_vec();
        pool.active = backends.map(|b| b.1).to_vec();
        let random = Random::new(pool.weights.iter().copied());
        let mut rng = fastrand::Rng::with_seed(1);
        let mut picked: Vec<_> =
            (0..200).map(|_| pick(&random, &pool, &mut rng).unwrap()).collect();
        picked.sort_unstable();
        picked.dedup();
        (picked.len() == 1).then(|| picked[0])
    }

    #[test]
    fn cheaper_of_two() {
        assert_eq!(winner([(100, 0, 1), (200, 0, 1)]), Some(0));
        assert_eq!(winner([(100, 2, 1), (200, 0, 1)]), Some(1));
        assert_eq!(winner([(100, 1, 1), (200, 0, 1)]), None);
        assert_eq!(winner([(0, 5, 1), (0, 4, 1)]), Some(1));
        assert_eq!(winner([(300, 0, 2), (200, 0, 1)]), Some(0));
        assert_eq!(winner([(u64::MAX, u32::MAX, 1), (u64::MAX, u32::MAX, 256)]), Some(1));
    }
}
