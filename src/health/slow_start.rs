//! Slow start: a backend that has come up gets its share by and by, for caches and compilers to
//! warm up (HAProxy's `slowstart`, Envoy's slow start mode).

use std::time::Duration;

/// The level of a full share; level `n` is `n` of this many parts. Every step changes what picks
/// go by, so there are few of them.
pub const LEVELS: u8 = 10;

/// A level in percent of a full share.
pub const PERCENT_PER_LEVEL: u8 = 100 / LEVELS;

const _: () = assert!(PERCENT_PER_LEVEL * LEVELS == 100);

/// The level of a backend that came up `since` ago, where the ramp lasts `ramp`: 1 (10 %) at the
/// beginning, [`LEVELS`] at the end, in steps below a straight line.
pub fn level(since: Duration, ramp: Duration) -> u8 {
    let (since, ramp) = (since.as_nanos(), ramp.as_nanos());
    if since >= ramp {
        return LEVELS;
    }
    // `since` is below `ramp`: fewer than all steps.
    1 + (since * u128::from(LEVELS - 1) / ramp) as u8
}

/// When the next level is due, as time since it came up; `None` when the share is full.
pub fn next_step(since: Duration, ramp: Duration) -> Option<Duration> {
    let steps = level(since, ramp);
    if steps == LEVELS {
        return None;
    }
    // Up to the nanosecond at which the level is reached.
    let next = (ramp.as_nanos() * u128::from(steps)).div_ceil(u128::from(LEVELS - 1));
    let (seconds, rest) = (next / 1_000_000_000, next % 1_000_000_000);
    Some(Duration::new(u64::try_from(seconds).unwrap_or(u64::MAX), rest as u32))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn ramp() {
        let check = |since: u32, ramp: u32, expected: u8, next: Option<u32>| {
            assert_eq!(level(since * MS, ramp * MS), expected, "{since} of {ramp}");
            assert_eq!(next_step(since * MS, ramp * MS), next.map(|ms| ms * MS));
        };
        check(0, 9000, 1, Some(1000));
        check(999, 9000, 1, Some(1000));
        check(1000, 9000, 2, Some(2000));
        check(4500, 9000, 5, Some(5000));
        check(8999, 9000, 9, Some(9000));
        check(9000, 9000, 10, None);
        check(u32::MAX, 9000, 10, None);
        check(0, 0, 10, None);
    }

    proptest! {
        /// The steps are LEVELS − 1, each by one, each when it is due, on or below the line.
        #[test]
        fn steps(ramp in 1..1u64 << 60) {
            let ramp = Duration::from_nanos(ramp.max(100));
            let (mut since, mut seen) = (Duration::ZERO, 1);
            prop_assert_eq!(level(since, ramp), 1);
            while let Some(next) = next_step(since, ramp) {
                prop_assert_eq!(level(next - Duration::from_nanos(1), ramp), seen);
                seen += 1;
                prop_assert_eq!(level(next, ramp), seen);
                let line = 0.1 + 0.9 * next.as_secs_f64() / ramp.as_secs_f64();
                prop_assert!(f64::from(seen) / f64::from(LEVELS) <= line + 1e-9);
                since = next;
            }
            prop_assert_eq!((since, seen), (ramp, LEVELS));
        }

        #[test]
        fn never_out_of_range(since: u64, ramp: u64) {
            let (since, ramp) = (Duration::from_secs(since), Duration::from_secs(ramp));
            prop_assert!((1..=LEVELS).contains(&level(since, ramp)));
            prop_assert!(next_step(since, ramp).is_none_or(|next| next > since));
        }
    }
}
