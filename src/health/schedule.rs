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
    /// drift apart and stay apart. It counts from when this one was due: delays do not add up.
    /// Turns that were missed altogether are left out, not made up for.
    pub fn advance(&mut self, now: Duration, rng: &mut fastrand::Rng) {
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        let spread = interval / JITTER_SHARE;
        let wait = (interval - spread).saturating_add(rng.u64(0..=2 * spread));
        self.due = self.due.saturating_add(Duration::from_nanos(wait)).max(now);
    }

    /// A reload's new interval, at `now`: a check that was due later than one interval from now
    /// comes forward, any other stays where it was.
    pub fn set_interval(&mut self, interval: Duration, now: Duration) {
        self.interval = interval;
        self.due = self.due.min(now + interval);
    }
}
