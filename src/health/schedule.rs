//! When checks are due. Times are offsets from an origin of the caller's choice, on any clock that
//! only goes forwards.

use std::time::Duration;

/// First checks of a pool follow each other this closely, unless [`FIRST_SHARE`] says closer.
const FIRST_GAP: Duration = Duration::from_millis(1);

/// All first checks of a pool start within this fraction of the interval.
const FIRST_SHARE: u32 = 2;

/// Each wait is the interval give or take this fraction of it.
const JITTER_SHARE: u64 = 10;

/// The same after a pause of the process.
const PAUSE_SHARE: u64 = 2;

/// When one backend is checked next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    interval: Duration,
    fast_interval: Duration,
    due: Duration,
    /// From the first check to the second, until that is due.
    second: Option<Duration>,
}

impl Schedule {
    /// For backend `index` of `count`, first checked soon after `now`: a millisecond apart, so
    /// that a small pool is known at once, but all within half an interval, so that the first
    /// round of a large one ends in time and does not come as one burst. The second checks are
    /// spread over the whole interval, so that from then on no moment has more than another.
    pub fn new(
        interval: Duration,
        fast_interval: Duration,
        index: usize,
        count: usize,
        now: Duration,
    ) -> Self {
        let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        let index = u32::try_from(index).unwrap_or(u32::MAX).min(count - 1);
        let first = FIRST_GAP.min(interval / FIRST_SHARE / count) * index;
        let second = interval.mul_f64(f64::from(index + 1) / f64::from(count));
        let second = Some(second.saturating_sub(first));
        Schedule { interval, fast_interval, due: now + first, second }
    }

    /// When the next check starts.
    pub fn due(&self) -> Duration {
        self.due
    }

    /// Called when the check that was due has ended; it had started at `started`. The next one is
    /// an interval after that, ±10 % evenly distributed, so that checks from several machines or
    /// of several backends drift apart and stay apart; while the state is `in_doubt`, a fast
    /// interval. It counts from `started` and not from when this one was due: after a pause of the
    /// process, the turns that were missed are left out and not made up for.
    pub fn advance(&mut self, started: Duration, in_doubt: bool, rng: &mut fastrand::Rng) {
        let second = self.second.take();
        // All that were due in a pause start at its end: they have to be spread anew.
        let missed = started.saturating_sub(self.due) > self.interval / 2;
        self.due = match second {
            _ if in_doubt => started + vary(self.fast_interval, JITTER_SHARE, rng),
            // Not from `started`: a large first round lags, and would drag the second along.
            Some(second) if !missed => self.due + vary(second, JITTER_SHARE, rng),
            _ if missed => started + vary(self.interval, PAUSE_SHARE, rng),
            _ => started + vary(self.interval, JITTER_SHARE, rng),
        };
    }
}

/// `wait`, give or take one part in `share` of it.
fn vary(wait: Duration, share: u64, rng: &mut fastrand::Rng) -> Duration {
    let wait = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
    let spread = wait / share;
    Duration::from_nanos((wait - spread).saturating_add(rng.u64(0..=2 * spread)))
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
                let due = Schedule::new(interval, interval, index, count, now).due();
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
        let mut schedule = Schedule::new(interval, interval, 0, 1, Duration::ZERO);
        let (mut shortest, mut longest) = (Duration::MAX, Duration::ZERO);
        for _ in 0..1800 {
            let due = schedule.due();
            schedule.advance(due, false, &mut rng);
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
            let mut schedule = Schedule::new(2000 * MS, 500 * MS, 0, 1, Duration::ZERO);
            let next = |_| {
                schedule.advance(schedule.due(), false, &mut rng);
                schedule.due()
            };
            (0..5).map(next).collect::<Vec<_>>()
        };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }

    #[test]
    fn doubt_is_fast() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut schedule = Schedule::new(2000 * MS, 500 * MS, 0, 1, Duration::ZERO);
        for (doubt, interval) in [(true, 500 * MS), (true, 500 * MS), (false, 2000 * MS)] {
            let due = schedule.due();
            schedule.advance(due, doubt, &mut rng);
            let wait = schedule.due() - due;
            assert!(wait >= interval * 9 / 10 && wait <= interval * 11 / 10, "{doubt}: {wait:?}");
        }
    }

    #[test]
    fn missed_turns_are_left_out() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut schedule = Schedule::new(2000 * MS, 500 * MS, 0, 1, Duration::ZERO);
        schedule.advance(Duration::ZERO, false, &mut rng);
        let late = Duration::from_secs(3600);
        schedule.advance(late, false, &mut rng);
        assert!(schedule.due() >= late + 1000 * MS && schedule.due() <= late + 3000 * MS);
        // From then on as ever.
        let due = schedule.due();
        schedule.advance(due, false, &mut rng);
        assert!(schedule.due() >= due + 1800 * MS && schedule.due() <= due + 2200 * MS);
    }

    /// A tenth of an interval has a tenth of the checks, and never half as many again, whether all
    /// began together or had to wait for a pause to end.
    #[test]
    fn no_moment_has_many_more_than_another() {
        const COUNT: usize = 1000;
        let interval = 2000 * MS;
        for paused in [false, true] {
            let mut rng = fastrand::Rng::with_seed(9);
            let mut moments = vec![0; 120];
            for index in 0..COUNT {
                let mut schedule = Schedule::new(interval, interval, index, COUNT, Duration::ZERO);
                if paused {
                    schedule.advance(schedule.due(), false, &mut rng);
                    schedule.advance(interval * 20, false, &mut rng);
                } else {
                    schedule.advance(schedule.due(), false, &mut rng);
                }
                let begun = if paused { interval * 41 / 2 } else { Duration::ZERO };
                loop {
                    let since = schedule.due().saturating_sub(begun);
                    let moment = (since.as_millis() / 200) as usize;
                    let Some(count) = moments.get_mut(moment) else { break };
                    *count += 1;
                    schedule.advance(schedule.due(), false, &mut rng);
                }
            }
            let most = moments[..100].iter().max().copied().unwrap_or(0);
            assert!((COUNT / 10..COUNT * 3 / 20).contains(&most), "{paused}: {moments:?}");
        }
    }
}
