//! Rise and fall: how many results in a row change what is thought of a backend.

use super::State;

/// What the checks of one backend have said so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    state: State,
    /// Results in a row that contradict `state`.
    streak: u32,
    rise: u32,
    fall: u32,
}

impl Check {
    /// A backend that has not been checked. `rise` and `fall` are at least 1.
    pub fn new(rise: u32, fall: u32) -> Self {
        Check::with_state(State::Unknown, rise, fall)
    }

    /// A backend of which something is known, from before a reload or from another process.
    pub fn with_state(state: State, rise: u32, fall: u32) -> Self {
        debug_assert!(rise > 0 && fall > 0);
        Check { state, streak: 0, rise, fall }
    }

    /// What is thought of the backend.
    pub fn state(&self) -> State {
        self.state
    }

    /// A reload's new numbers; the state and the streak stay. A streak that is now long enough
    /// counts with the next result, not by itself.
    pub fn set_thresholds(&mut self, rise: u32, fall: u32) {
        debug_assert!(rise > 0 && fall > 0);
        (self.rise, self.fall) = (rise, fall);
    }

    /// Takes a result; returns the new state if it changed.
    ///
    /// The first result of an unknown backend decides alone: waiting for `rise` would keep a whole
    /// pool from starting, and waiting for `fall` would leave it undecided.
    pub fn on_result(&mut self, passed: bool) -> Option<State> {
        let (agrees, needed) = match self.state {
            State::Unknown => (false, 1),
            State::Up => (passed, self.fall),
            State::Down => (!passed, self.rise),
        };
        if agrees {
            self.streak = 0;
            return None;
        }
        self.streak += 1;
        if self.streak < needed {
            return None;
        }
        self.streak = 0;
        self.state = if passed { State::Up } else { State::Down };
        Some(self.state)
    }
}
