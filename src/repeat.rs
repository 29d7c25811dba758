//! Keeps a line that would repeat many times a second from filling the log.

use std::time::{Duration, Instant};

/// Lets one line through each interval, and counts the others for the next one to mention.
#[derive(Debug)]
pub struct Repeat {
    every: Duration,
    next: Option<Instant>,
    suppressed: u64,
}

impl Repeat {
    /// At most one line in `every`.
    pub const fn new(every: Duration) -> Self {
        Repeat { every, next: None, suppressed: 0 }
    }

    /// Asks to write one line. `Some(n)`: write it, `n` were suppressed since the last one.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.next.is_some_and(|next| now < next) {
            self.suppressed += 1;
            return None;
        }
        self.next = Some(now + self.every);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_an_interval_with_the_count_of_the_others() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut repeat = Repeat::new(Duration::from_secs(1));
        for (ms, expected) in [
            (0, Some(0)),
            (1, None),
            (999, None),
            (1000, Some(2)),
            (1500, None),
            (5000, Some(1)),
            (6000, Some(0)),
        ] {
            assert_eq!(repeat.admit(at(ms)), expected, "at {ms} ms");
        }
    }
}
