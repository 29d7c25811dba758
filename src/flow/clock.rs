//! Times as a word.

use std::time::{Duration, Instant};

/// Nanoseconds since the clock was made: half of an [`Instant`], and 584 years of them.
///
/// It never goes backwards, so that what is moved to the end of a list is the latest there even
/// where somebody passes a time read earlier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    epoch: Instant,
    latest: u64,
}

impl Clock {
    pub(super) fn new(now: Instant) -> Self {
        Clock { epoch: now, latest: 0 }
    }

    /// `now`, or what was latest so far if that is later.
    pub(super) fn advance(&mut self, now: Instant) -> u64 {
        self.latest = self.latest.max(self.ticks(now));
        self.latest
    }

    /// What was latest so far.
    pub(super) fn latest(&self) -> u64 {
        self.latest
    }

    pub(super) fn ticks(&self, now: Instant) -> u64 {
        nanos(now.saturating_duration_since(self.epoch))
    }

    /// `None` beyond what an [`Instant`] holds.
    pub(super) fn instant(&self, ticks: u64) -> Option<Instant> {
        self.epoch.checked_add(Duration::from_nanos(ticks))
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_backwards() {
        let epoch = Instant::now();
        let mut clock = Clock::new(epoch);
        let second = Duration::from_secs(1);
        assert_eq!(clock.advance(epoch + second), 1_000_000_000);
        assert_eq!(clock.advance(epoch), 1_000_000_000);
        assert_eq!(clock.advance(epoch + second * 2), 2_000_000_000);
        assert_eq!(clock.instant(clock.latest()), Some(epoch + second * 2));
        if let Some(before) = epoch.checked_sub(second) {
            assert_eq!(clock.ticks(before), 0);
        }
    }
}
