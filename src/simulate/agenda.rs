//! What will happen, in order.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

/// Events by time; of one time, in the order in which they were added.
#[derive(Debug)]
pub(super) struct Agenda<E> {
    entries: BinaryHeap<Reverse<Entry<E>>>,
    added: u64,
}

#[derive(Debug)]
struct Entry<E> {
    time: Duration,
    number: u64,
    event: E,
}

impl<E> Agenda<E> {
    pub fn new() -> Self {
        Agenda { entries: BinaryHeap::new(), added: 0 }
    }

    /// Adds an event.
    pub fn at(&mut self, time: Duration, event: E) {
        self.entries.push(Reverse(Entry { time, number: self.added, event }));
        self.added += 1;
    }

    /// Takes the next event.
    pub fn next(&mut self) -> Option<(Duration, E)> {
        self.entries.pop().map(|Reverse(entry)| (entry.time, entry.event))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_then_as_added() {
        let mut agenda = Agenda::new();
        for (ms, event) in [(5, 'd'), (1, 'a'), (5, 'e'), (3, 'b'), (3, 'c'), (5, 'f')] {
            agenda.at(Duration::from_millis(ms), event);
        }
        let order: String = std::iter::from_fn(|| agenda.next()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcdef");
    }
}
