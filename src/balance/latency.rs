//! How long a backend takes, as `peak_ewma` sees it: a moving average that jumps up with every
//! sample above it and comes down by and by (Finagle's `PeakEwma`). One slow answer is news at
//! once; that it was an exception takes [`TAU`] to believe.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::fixed;

/// After this long an old sample weighs 1/e.
pub const TAU: Duration = Duration::from_secs(10);

/// Bits behind the point of a nanosecond: with many samples a second each moves the average by
/// little.
const FRACTION: u32 = 16;

/// An average and when it was last moved. Any worker writes and reads. The two are not written
/// together: who reads in between sees the average of a moment ago.
#[derive(Debug, Default)]
pub struct Latency {
    /// Nanoseconds with [`FRACTION`]; 0: no sample yet.
    average: AtomicU64,
    /// Nanoseconds on the clock of `now`.
    moved: AtomicU64,
}

impl Latency {
    /// Takes in a sample: at once if it is above the average, else by its age. `now` is the time
    /// since some fixed moment, the same one in every call.
    pub fn record_peak(&self, now: Duration, took: Duration) {
        self.record(now, took, |average, sample| sample >= average);
    }

    /// Takes in a sample by its age: a plain moving average.
    pub fn record_mean(&self, now: Duration, took: Duration) {
        self.record(now, took, |_, _| false);
    }

    fn record(&self, now: Duration, took: Duration, at_once: impl Fn(u64, u64) -> bool) {
        let now = nanoseconds(now);
        // Whatever comes between two samples is the age of exactly one of them.
        let age = now.saturating_sub(self.moved.fetch_max(now, Relaxed));
        let sample = (nanoseconds(took).min(u64::MAX >> FRACTION) << FRACTION).max(1);
        let old = decay(age);
        let blend = |average: u64| match average {
            0 => sample,
            _ if at_once(average, sample) => sample,
            _ => blend(average, sample, old).max(1),
        };
        // Never refuses; another worker's sample in between makes it try again.
        let _before = self.average.fetch_update(Relaxed, Relaxed, |average| Some(blend(average)));
    }

    /// Nanoseconds to expect. What was measured long ago says little: with age the average turns
    /// into `prior`, what is known of the whole pool, and so it is for a backend never measured. It
    /// thus looks neither better nor worse than the others, whereas decay to 0 would send everybody
    /// to whoever has been idle for long.
    pub fn estimate(&self, now: Duration, prior: u64) -> u64 {
        match (self.average.load(Relaxed), prior) {
            (0, prior) => prior,
            (average, 0) => average >> FRACTION,
            (average, prior) => {
                let age = nanoseconds(now).saturating_sub(self.moved.load(Relaxed));
                blend(average, prior.min(u64::MAX >> FRACTION) << FRACTION, decay(age)) >> FRACTION
            }
        }
    }

    /// The average as it was left, in nanoseconds; 0 before the first sample.
    pub fn average(&self) -> u64 {
        self.average.load(Relaxed) >> FRACTION
    }
}

/// `a × share + b × (1 − share)`, `share` in Q32 and at most 1.
fn blend(a: u64, b: u64, share: u64) -> u64 {
    let (a, b, share) = (u128::from(a), u128::from(b), u128::from(share));
    ((a * share + b * ((1 << 32) - share)) >> 32) as u64
}

/// e^(−age / τ), Q32.
fn decay(age: u64) -> u64 {
    // Beyond 64 τ nothing is left, and the shift cannot overflow.
    let age = u128::from(age.min(TAU.as_nanos() as u64 * 64));
    fixed::exp_neg(((age << 32) / TAU.as_nanos()) as u64)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn near(found: u64, expected_us: u64) {
        let off = found.abs_diff(expected_us * 1000);
        assert!(off <= 1000, "{found} ns, not {expected_us} us");
    }

    #[test]
    fn up_at_once_down_by_age() {
        let latency = Latency::default();
        latency.record_peak(Duration::ZERO, 2 * MS);
        assert_eq!(latency.average(), 2_000_000);
        latency.record_peak(Duration::ZERO, 10 * MS);
        assert_eq!(latency.average(), 10_000_000);
        latency.record_peak(Duration::ZERO, 2 * MS);
        assert_eq!(latency.average(), 10_000_000, "no time has passed");
        // 2 + 8 / e
        latency.record_peak(TAU, 2 * MS);
        near(latency.average(), 4_943);
        latency.record_peak(TAU + MS, 10 * MS);
        assert_eq!(latency.average(), 10_000_000);
    }

    /// Many small steps are one large one.
    #[test]
    fn rate_of_samples_is_irrelevant() {
        let latency = Latency::default();
        latency.record_peak(Duration::ZERO, 10 * MS);
        for step in 1..=100_000 {
            latency.record_peak(TAU / 100_000 * step, 2 * MS);
        }
        near(latency.average(), 4_943);
    }

    #[test]
    fn mean_goes_both_ways() {
        let latency = Latency::default();
        latency.record_mean(Duration::ZERO, 2 * MS);
        latency.record_mean(TAU, 10 * MS);
        // 10 − 8 / e
        near(latency.average(), 7_057);
    }

    #[test]
    fn knowledge_ages_into_the_prior() {
        let latency = Latency::default();
        assert_eq!(latency.estimate(TAU, 5_000_000), 5_000_000);
        assert_eq!(latency.estimate(TAU, 0), 0);
        latency.record_peak(Duration::ZERO, 10 * MS);
        assert_eq!(latency.estimate(Duration::ZERO, 2_000_000), 10_000_000);
        assert_eq!(latency.estimate(TAU, 0), 10_000_000);
        near(latency.estimate(TAU, 2_000_000), 4_943);
        near(latency.estimate(100 * TAU, 2_000_000), 2_000);
        near(latency.estimate(Duration::MAX, 2_000_000), 2_000);
    }

    #[test]
    fn extremes() {
        let latency = Latency::default();
        latency.record_peak(Duration::MAX, Duration::ZERO);
        assert_eq!(latency.average(), 0);
        assert_eq!(latency.estimate(Duration::MAX, u64::MAX), 0);
        latency.record_peak(Duration::ZERO, Duration::MAX);
        assert_eq!(latency.estimate(Duration::ZERO, u64::MAX), u64::MAX >> FRACTION);
    }
}
