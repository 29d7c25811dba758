//! Flows of which something is to be seen to at a time.

use std::collections::VecDeque;
use std::time::Instant;

use super::FlowId;

/// Flows by when they are due. Nearly all are added last, so that costs nothing, but the time from
/// adding to being due may change: what is due earlier than others that are there does not wait for
/// them.
#[derive(Debug, Default)]
pub struct Deadlines(VecDeque<(Instant, FlowId)>);

impl Deadlines {
    /// Adds a flow, behind those that are due at the same time.
    pub fn add(&mut self, due: Instant, id: FlowId) {
        let at = self.0.partition_point(|(other, _)| *other <= due);
        self.0.insert(at, (due, id));
    }

    /// The first one.
    pub fn first(&self) -> Option<FlowId> {
        self.0.front().map(|(_, id)| *id)
    }

    /// When that is due.
    pub fn next(&self) -> Option<Instant> {
        self.0.front().map(|(due, _)| *due)
    }

    /// Takes the first one away.
    pub fn take_first(&mut self) -> Option<FlowId> {
        self.0.pop_front().map(|(_, id)| id)
    }

    /// Takes the first one away if it is due.
    pub fn take_due(&mut self, now: Instant) -> Option<FlowId> {
        self.next().filter(|due| *due <= now).and_then(|_| self.take_first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Key, Table};
    use std::time::Duration;

    #[test]
    fn whatever_is_due_first_comes_first() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut table = Table::new(start);
        let mut deadlines = Deadlines::default();
        let mut add = |port: u16, due| {
            let key = Key::new(([127, 0, 0, 1], port).into(), [127, 0, 0, 2].into());
            let id = table.insert(key, (), start);
            deadlines.add(at(due), id);
            id
        };
        // The time given was 10 s first, then 2 s, then 10 s again.
        let ids = [add(1, 10), add(2, 11), add(3, 3), add(4, 4), add(5, 4), add(6, 15)];
        assert_eq!((deadlines.next(), deadlines.first()), (Some(at(3)), Some(ids[2])));
        let due = |deadlines: &mut Deadlines, now| -> Vec<_> {
            std::iter::from_fn(|| deadlines.take_due(at(now))).collect()
        };
        assert_eq!(due(&mut deadlines, 2), []);
        assert_eq!(due(&mut deadlines, 4), [ids[2], ids[3], ids[4]]);
        assert_eq!(due(&mut deadlines, 10), [ids[0]]);
        assert_eq!(deadlines.take_first(), Some(ids[1]));
        assert_eq!(due(&mut deadlines, 20), [ids[5]]);
        assert_eq!((deadlines.next(), deadlines.take_first()), (None, None));
    }
}
