//! A backend: its slots, its line, and whether it lives.

use std::collections::VecDeque;
use std::time::Duration;

use super::requests::RequestId;
use super::scenario::Backend;
use crate::limits::SIMULATE_SINGLE_TIME;

/// What connecting to it meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// A kernel that accepts, whatever the slots.
    Alive,
    /// A kernel that refuses.
    Dead,
    /// Nobody.
    Gone,
}

/// A backend at work.
#[derive(Debug)]
pub(super) struct Server {
    backend: Backend,
    slots: usize,
    condition: Condition,
    /// Requests in slots.
    serving: usize,
    /// Requests in line, the first first.
    waiting: VecDeque<RequestId>,
    /// Deaths so far: tells what was served before one from what is served after it.
    lives: u32,
}

impl Server {
    pub fn new(backend: Backend, slots: usize) -> Self {
        let waiting = VecDeque::new();
        Server { backend, slots, condition: Condition::Alive, serving: 0, waiting, lives: 0 }
    }

    pub fn condition(&self) -> Condition {
        self.condition
    }

    pub fn lives(&self) -> u32 {
        self.lives
    }

    /// How long it takes for what takes an ordinary one `service`.
    pub fn takes(&self, service: Duration) -> Duration {
        // Both are bounded, far from where a product would overflow.
        let slow = service.mul_f64(self.backend.factor) + self.backend.stall;
        slow.min(SIMULATE_SINGLE_TIME)
    }

    /// Takes a request in; whether it starts at once, or else waits.
    pub fn admit(&mut self, id: RequestId) -> bool {
        let starts = self.serving < self.slots;
        if starts {
            self.serving += 1;
        } else {
            self.waiting.push_back(id);
        }
        starts
    }

    /// One is served; the one that starts in its place.
    pub fn release(&mut self) -> Option<RequestId> {
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.serving -= 1;
        }
        next
    }

    /// Loses everything it has.
    pub fn die(&mut self, condition: Condition) {
        self.condition = condition;
        self.lives += 1;
        self.serving = 0;
        self.waiting.clear();
    }

    /// Is back.
    pub fn revive(&mut self) {
        self.condition = Condition::Alive;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_line() {
        let mut server = Server::new(Backend::default(), 2);
        let ids = [0, 1, 2, 3].map(RequestId);
        assert_eq!(ids.map(|id| server.admit(id)), [true, true, false, false]);
        assert_eq!([0; 4].map(|_| server.release()), [Some(ids[2]), Some(ids[3]), None, None]);
        assert!(server.admit(ids[0]));
    }

    #[test]
    fn death_forgets() {
        let mut server = Server::new(Backend::default(), 1);
        assert!(server.admit(RequestId(0)) && !server.admit(RequestId(1)));
        server.die(Condition::Dead);
        assert_eq!((server.condition(), server.lives()), (Condition::Dead, 1));
        server.revive();
        assert!(server.admit(RequestId(2)), "nobody is before it");
        assert_eq!(server.release(), None);
    }

    #[test]
    fn slow_and_stalling() {
        let ms = Duration::from_millis;
        let check = |factor, stall, service, expected| {
            let server = Server::new(Backend { factor, stall, ..Backend::default() }, 1);
            assert_eq!(server.takes(service), expected);
        };
        check(1.0, ms(0), ms(20), ms(20));
        check(6.0, ms(0), ms(20), ms(120));
        check(1.0, ms(30), Duration::from_micros(200), Duration::from_micros(30_200));
        check(0.5, ms(1), ms(20), ms(11));
        check(1e6, SIMULATE_SINGLE_TIME, SIMULATE_SINGLE_TIME, SIMULATE_SINGLE_TIME);
    }
}
