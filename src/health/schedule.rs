//! When checks are due. Times are offsets from an origin of the caller's choice, on any clock that
//! only goes forwards.

use std::time::Duration;

/// First checks of a pool follow each other this closely, unless [`FIRST_SHARE`] says closer.
const FIRST_GAP: Duration = Duration::from_millis(1);

/// All first checks of a pool start within this fraction of the interval.
const FIRST_SHARE: u32 = 2;

/// Each wait is the interval give or take this fraction of it.
const JITTER_SHARE: u64 = 10;

/// When one backend is checked next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    interval: Duration,
    due: Duration,
}

impl Schedule {
    /// For backend `index` of `count`, first checked soon after `now`: a millisecond apart, so
    /// that a small pool is known at once, but all within half an interval, so that the first
    /// round of a large one ends in time and does not come as one burst.
    pub fn new(interval: Duration, index: usize, count: usize, now: Duration) -> Self {
        let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        let index = u32::try_from(index).unwrap_or(u32::MAX).min(count - 1);
        let gap = FIRST_GAP.min(interval / FIRST_SHARE / count);
        Schedule { interval, due: now + gap * index }
    }

    /// When the next check starts.
    pub fn due(&self) -> Duration {
        self.due
    }

    /// Called when the check that was due starts, at `now`. The next one is an interval later,
    /// ±10 % evenly distributed, so that checks from several machines or of several backends
    /// drift apart and stay apart. It counts from `now` and not from when this one was due: after
    /// a pause of the process, the turns that were missed are left out and not made up for.
    pub fn advance(&mut self, now: Duration, rng: &mut fastrand::Rng) {
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        let spread = interval / JITTER_SHARE;
        let wait = (interval - spread).saturating_add(rng.u64(0..=2 * spread));
        self.due = now.saturating_add(Duration::from_nanos(wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn first_checks_are_spread() {
        let check = |interval, count: usize, apart: Duration| {
            let now = Duration::from_secs(7);
            for index in 0..count {
                let due = Schedule::new(interval, index, count, now).due();
                assert_eq!(due, now + apart * index as u32, "{index} of {count}");
                assert!(due <= now + interval / 2);
            }
        };
        check(2000 * MS, 1, MS);
        check(2000 * MS, 3, MS);
        check(2000 * MS, 1000, MS);
        check(2000 * MS, 10_000, MS / 10);
        check(10 * MS, 10, MS / 2);
        check(Duration::ZERO, 3, Duration::ZERO);
    }

    /// Over an hour: one check an interval, none early or late by more than a tenth.
    #[test]
    fn one_check_an_interval() {
        let interval = 2000 * MS;
        let mut rng = fastrand::Rng::with_seed(21);
        let mut schedule = Schedule::new(interval, 0, 1, Duration::ZERO);
        let (mut shortest, mut longest) = (Duration::MAX, Duration::ZERO);
        for _ in 0..1800 {
            let due = schedule.due();
            schedule.advance(due, &mut rng);
            let wait = schedule.due() - due;
            shortest = shortest.min(wait);
            longest = longest.max(wait);
        }
        assert!((1800 * MS..=1805 * MS).contains(&shortest), "{shortest:?}");
        assert!((2195 * MS..=2200 * MS).contains(&longest), "{longest:?}");
        // A uniform ±10 % has a standard deviation of 115 ms; five of the sum of 1,800 are 25 s.
        let drift = schedule.due().abs_diff(Duration::from_secs(3600));
        assert!(drift <= Duration::from_secs(25), "{drift:?}");
    }

    #[test]
    fn equal_seeds_give_equal_times() {
        let times = |seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut schedule = Schedule::new(2000 * MS, 0, 1, Duration::ZERO);
            let next = |_| {
                schedule.advance(schedule.due(), &mut rng);
                schedule.due()
            };
            (0..5).map(next).collect::<Vec<_>>()
        };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }

    #[test]
    fn missed_turns_are_left_out() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut schedule = Schedule::new(2000 * MS, 0, 1, Duration::ZERO);
        let late = Duration::from_secs(3600);
        schedule.advance(late, &mut rng);
        assert!(schedule.due() >= late + 1800 * MS);
    }
}
