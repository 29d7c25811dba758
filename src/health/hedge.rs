//! `hedge_after: auto`: how long a connect may take before a second attempt starts beside it. What
//! 95 of 100 recent connects stayed below, so that at most about 5 % of connects are hedged (Dean
//! and Barroso, "The Tail at Scale", CACM 2013).

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// The least delay: within it nothing is slow.
pub const HEDGE_MIN: Duration = Duration::from_millis(5);

/// The most: the bound of the last bucket.
pub const HEDGE_MAX: Duration = Duration::from_millis(5 << 12);

/// The delay before there are 16 connects to go by: long enough for any healthy path, short
/// against any timeout.
pub const HEDGE_UNKNOWN: Duration = Duration::from_millis(100);

/// Connects between two answers; the first comes after as many.
const FIRST_ANSWER: u32 = 16;

/// Connects in each half of the memory.
const HALF: u32 = 256;

/// In percent.
const QUANTILE: u32 = 95;

/// Buckets of four to an octave from [`HEDGE_MIN`] to [`HEDGE_MAX`].
const BUCKETS: usize = 4 * 12 + 1;

/// Upper bounds in nanoseconds.
const BOUNDS: [u64; BUCKETS] = {
    // 2^(n/4), in 10,000ths.
    const QUARTERS: [u64; 4] = [10_000, 11_892, 14_142, 16_818];
    let mut bounds = [0; BUCKETS];
    let mut index = 0;
    while index < BUCKETS {
        bounds[index] = (HEDGE_MIN.as_nanos() as u64 / 10_000 * QUARTERS[index % 4]) << (index / 4);
        index += 1;
    }
    bounds
};

const _: () = assert!(BOUNDS[0] == HEDGE_MIN.as_nanos() as u64);
const _: () = assert!(BOUNDS[BUCKETS - 1] == HEDGE_MAX.as_nanos() as u64);
// `count` may wrap around; a bucket counts no more than a half.
const _: () = assert!(HALF.is_power_of_two() && HALF <= u16::MAX as u32);
const _: () = assert!(FIRST_ANSWER.is_power_of_two() && FIRST_ANSWER <= HALF);

/// How long the connects of one pool took lately. Any worker writes and reads.
///
/// Buckets whose bounds grow by 2^¼: an answer is above the true quantile by less than 19 %, and
/// never below. It is that of the last 256 to 512 connects, two halves of which the older is
/// emptied when the newer is full; and it is up to 15 connects old, so that asking costs one load.
/// A worker that counts while another empties the half may be forgotten: a few in 256.
#[derive(Debug)]
pub struct ConnectTimes {
    /// All connects, modulo 2^32.
    count: AtomicU32,
    /// Bucket of the answer; [`BUCKETS`] or more: none yet.
    answer: AtomicU8,
    halves: [[AtomicU16; BUCKETS]; 2],
}

impl Default for ConnectTimes {
    fn default() -> Self {
        let half = || [const { AtomicU16::new(0) }; BUCKETS];
        ConnectTimes {
            count: AtomicU32::new(0),
            answer: AtomicU8::new(u8::MAX),
            halves: [half(), half()],
        }
    }
}

impl ConnectTimes {
    /// Notes how long a connect took that was established. Those that failed are not noted: else
    /// a backend that drops packets would make the pool wait for it.
    pub fn record(&self, took: Duration) {
        let count = self.count.fetch_add(1, Relaxed);
        let half = &self.halves[(count / HALF % 2) as usize];
        if count.is_multiple_of(HALF) {
            half.iter().for_each(|bucket| bucket.store(0, Relaxed));
        }
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|&bound| bound < took).min(BUCKETS - 1);
        half[bucket].fetch_add(1, Relaxed);
        if count % FIRST_ANSWER == FIRST_ANSWER - 1 {
            self.answer.store(self.quantile(), Relaxed);
        }
    }

    /// How long to wait before a second attempt: from [`HEDGE_MIN`] to [`HEDGE_MAX`].
    pub fn hedge_after(&self) -> Duration {
        let bucket = usize::from(self.answer.load(Relaxed));
        BOUNDS.get(bucket).map_or(HEDGE_UNKNOWN, |&bound| Duration::from_nanos(bound))
    }

    fn quantile(&self) -> u8 {
        let [a, b] = &self.halves;
        // Read once: others empty and fill them meanwhile.
        let counts: [u32; BUCKETS] = std::array::from_fn(|index| {
            u32::from(a[index].load(Relaxed)) + u32::from(b[index].load(Relaxed))
        });
        let total: u32 = counts.iter().sum();
        let mut below = 0;
        let bucket = counts.iter().position(|count| {
            below += count;
            below * 100 >= total * QUANTILE
        });
        bucket.unwrap_or(BUCKETS - 1) as u8
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn record(times: &ConnectTimes, took: Duration, count: u32) {
        (0..count).for_each(|_| times.record(took));
    }

    #[test]
    fn unknown_then_known() {
        let times = ConnectTimes::default();
        record(&times, 20 * MS, FIRST_ANSWER - 1);
        assert_eq!(times.hedge_after(), HEDGE_UNKNOWN);
        record(&times, 20 * MS, 1);
        assert_eq!(times.hedge_after(), 20 * MS);
    }

    #[test]
    fn bounded() {
        let check = |took: Duration, expected| {
            let times = ConnectTimes::default();
            record(&times, took, 16);
            assert_eq!(times.hedge_after(), expected, "{took:?}");
        };
        check(Duration::ZERO, HEDGE_MIN);
        check(MS, HEDGE_MIN);
        check(5 * MS, HEDGE_MIN);
        check(HEDGE_MAX, HEDGE_MAX);
        check(HEDGE_MAX + MS, HEDGE_MAX);
        check(Duration::MAX, HEDGE_MAX);
    }

    /// Slower connects are believed when they are more than 5 %, and forgotten after 512 others.
    #[test]
    fn recent() {
        let times = ConnectTimes::default();
        record(&times, MS, 1024);
        record(&times, 40 * MS, 32);
        assert_eq!(times.hedge_after(), 40 * MS);
        record(&times, MS, 512);
        assert_eq!(times.hedge_after(), HEDGE_MIN);
        record(&times, 40 * MS, 8);
        record(&times, MS, 8);
        assert_eq!(times.hedge_after(), HEDGE_MIN);
    }

    #[test]
    fn counts_on_when_the_count_wraps() {
        let times = ConnectTimes { count: AtomicU32::new(u32::MAX - 100), ..Default::default() };
        record(&times, 40 * MS, 300);
        assert_eq!(times.hedge_after(), 40 * MS);
        record(&times, MS, 512);
        assert_eq!(times.hedge_after(), HEDGE_MIN);
    }

    /// Between threads little is lost, and the answer stays one that was measured.
    #[test]
    fn threads() {
        let times = ConnectTimes::default();
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let times = &times;
                scope.spawn(move || {
                    for index in 0..20_000u32 {
                        times.record(if (index + thread) % 10 == 0 { 40 * MS } else { MS });
                        let answer = times.hedge_after();
                        assert!(
                            [HEDGE_UNKNOWN, 40 * MS, HEDGE_MIN].contains(&answer),
                            "{answer:?}"
                        );
                    }
                });
            }
        });
        record(&times, MS, 512);
        record(&times, 20 * MS, 512);
        assert_eq!(times.hedge_after(), 20 * MS);
    }

    proptest! {
        /// Against the sorted list: not below the quantile, less than 19 % above it.
        #[test]
        fn near_the_true_quantile(us in prop::collection::vec(0..3_000_000u64, 256)) {
            let times = ConnectTimes::default();
            us.iter().for_each(|&us| times.record(Duration::from_micros(us)));
            let mut sorted = us;
            sorted.sort_unstable();
            let exact = Duration::from_micros(sorted[(256 * 95usize).div_ceil(100) - 1]);
            let answer = times.hedge_after();
            let most = HEDGE_MIN.max(exact.mul_f64(1.1893));
            prop_assert!((exact..=most).contains(&answer), "{:?} {:?}", answer, exact);
        }
    }
}
