//! How long to wait before the next attempt when every backend has been tried.

use std::time::Duration;

/// Exponential backoff with full jitter: any wait from none to a ceiling that doubles with each
/// round, all equally likely. Of the ways to spread clients that failed together, this one makes
/// the fewest attempts (Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The ceiling of the first wait.
    pub base: Duration,
    /// The ceiling that no wait exceeds.
    pub cap: Duration,
}

impl Backoff {
    /// The wait before round `round` of attempts is repeated; the first is round 0.
    pub fn wait(&self, round: u32, rng: &mut fastrand::Rng) -> Duration {
        let factor = 1u32.checked_shl(round).unwrap_or(u32::MAX);
        let ceiling = self.base.saturating_mul(factor).min(self.cap);
        let ceiling = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(rng.u64(0..=ceiling))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn evenly_below_a_doubling_ceiling() {
        let backoff = Backoff { base: 25 * MS, cap: MS * 1000 };
        let mut rng = fastrand::Rng::with_seed(5);
        for (round, ceiling) in [(0, 25), (1, 50), (2, 100), (5, 800), (6, 1000), (40, 1000)] {
            let waits: Vec<_> = (0..4000).map(|_| backoff.wait(round, &mut rng)).collect();
            let (ceiling, mean) = (ceiling * MS, waits.iter().sum::<Duration>() / 4000);
            assert!(waits.iter().all(|&wait| wait <= ceiling), "round {round}");
            // Uniform: a standard deviation of 0.29 ceilings, of the mean of 4,000 of 0.0046.
            let off = mean.abs_diff(ceiling / 2);
            assert!(off <= ceiling / 40, "round {round}: {mean:?}");
            assert!(waits.iter().any(|&wait| wait < ceiling / 100), "full jitter begins at none");
        }
    }

    #[test]
    fn extremes() {
        let mut rng = fastrand::Rng::with_seed(5);
        let none = Backoff { base: Duration::ZERO, cap: MS };
        assert_eq!(none.wait(u32::MAX, &mut rng), Duration::ZERO);
        let longest = Backoff { base: Duration::MAX, cap: Duration::MAX };
        let _any = longest.wait(u32::MAX, &mut rng);
    }
}
