//! Keeps a line that would repeat many times a second from filling the log.

use std::hash::Hash;
use std::time::{Duration, Instant};

use ahash::AHashMap;

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

/// A [`Repeat`] for each of the things that lines are about, of which so many may have one at a
/// time.
#[derive(Debug)]
pub struct Repeats<K> {
    every: Duration,
    most: usize,
    each: AHashMap<K, Repeat>,
}

impl<K: Hash + Eq> Repeats<K> {
    /// At most one line in `every` about one thing, and lines about `most` things.
    pub fn new(every: Duration, most: usize) -> Self {
        Repeats { every, most, each: AHashMap::new() }
    }

    /// As [`Repeat::admit`], of lines about `thing`. `None` as well, and not counted, if as many
    /// others as may be have had theirs.
    pub fn admit(&mut self, thing: K, now: Instant) -> Option<u64> {
        if self.each.len() >= self.most && !self.each.contains_key(&thing) {
            self.each.retain(|_, repeat| repeat.next.is_some_and(|next| now < next));
            if self.each.len() >= self.most {
                return None;
            }
        }
        self.each.entry(thing).or_insert_with(|| Repeat::new(self.every)).admit(now)
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

    #[test]
    fn each_thing_has_its_own_lines() {
        let start = Instant::now();
        let mut repeats = Repeats::new(Duration::from_secs(1), 2);
        for (ms, thing, expected) in [
            (0, 'a', Some(0)),
            (1, 'b', Some(0)),
            (2, 'a', None),
            (3, 'b', None),
            (4, 'b', None),
            // As many as may be.
            (999, 'c', None),
            // The first one's interval is over, and what it has suppressed is forgotten.
            (1000, 'c', Some(0)),
            (1000, 'a', None),
            (1001, 'b', Some(2)),
            (1001, 'c', None),
            (2000, 'c', Some(1)),
        ] {
            let now = start + Duration::from_millis(ms);
            assert_eq!(repeats.admit(thing, now), expected, "{thing} at {ms} ms");
            assert!(repeats.each.len() <= 2);
        }
    }
}
