//! Rise and fall: how many results in a row change what is thought of a backend.

use super::State;

/// What the checks of one backend have said so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is thought of it: passes, or not; `None` before the first result.
    passes: Option<bool>,
    /// Results in a row that contradict `passes`.
    streak: u32,
    rise: u32,
    fall: u32,
}

impl Check {
    /// A backend that has not been checked. `rise` and `fall` are at least 1.
    pub fn new(rise: u32, fall: u32) -> Self {
        Check::with_state(State::Unknown, rise, fall)
    }

    /// A backend of which something is known, from before a reload or from another process. One
    /// that is ejected has passed its checks: else it would be down.
    pub fn with_state(state: State, rise: u32, fall: u32) -> Self {
        debug_assert!(rise > 0 && fall > 0);
        let passes = match state {
            State::Unknown => None,
            State::Up | State::Ejected => Some(true),
            State::Down => Some(false),
        };
        Check { passes, streak: 0, rise, fall }
    }

    /// What is thought of the backend: never [`State::Ejected`], of which checks know nothing.
    pub fn state(&self) -> State {
        match self.passes {
            None => State::Unknown,
            Some(true) => State::Up,
            Some(false) => State::Down,
        }
    }

    /// Whether the next result may decide something: nothing is known yet, or the latest result
    /// contradicts what is thought.
    pub fn in_doubt(&self) -> bool {
        self.state() == State::Unknown || self.streak > 0
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
        let (agrees, needed) = match self.passes {
            None => (false, 1),
            Some(true) => (passed, self.fall),
            Some(false) => (!passed, self.rise),
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
        self.passes = Some(passed);
        Some(self.state())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds results (`+` passed, `-` failed); the answer has a letter where the state changed.
    fn run(check: &mut Check, results: &str) -> String {
        let letter = |result| match check.on_result(result == '+') {
            None => '.',
            Some(State::Up) => 'U',
            Some(State::Down) => 'D',
            Some(state) => unreachable!("checks made it {state}"),
        };
        results.chars().map(letter).collect()
    }

    #[test]
    fn changes() {
        let check = |rise, fall, results: &str, expected: &str| {
            assert_eq!(run(&mut Check::new(rise, fall), results), expected, "{rise} {fall}");
        };
        check(2, 3, "+", "U");
        check(2, 3, "-", "D");
        check(2, 3, "+---++", "U..D.U");
        check(2, 3, "-++---", "D.U..D");
        // A flapping backend stays what it was.
        check(2, 3, "+-+--+--+-", "U.........");
        check(2, 3, "-+-+-+-", "D......");
        // Each change once.
        check(2, 3, "+----------", "U..D.......");
        check(1, 1, "+-+-", "UDUD");
        check(3, 1, "+-++-+++", "UD.....U");
    }

    /// From the first contrary result to the decision.
    #[test]
    fn doubts() {
        let mut check = Check::new(2, 3);
        assert!(check.in_doubt());
        for (result, expected) in
            "+----+-++".chars().zip([false, true, true, false, false, true, false, true, false])
        {
            check.on_result(result == '+');
            assert_eq!(check.in_doubt(), expected, "{check:?} after {result}");
        }
    }

    #[test]
    fn new_thresholds_keep_state_and_streak() {
        let mut check = Check::with_state(State::Up, 2, 3);
        assert_eq!(run(&mut check, "--"), "..");
        check.set_thresholds(2, 5);
        assert_eq!(run(&mut check, "---"), "..D");
        assert_eq!(run(&mut check, "+"), ".");
        check.set_thresholds(1, 5);
        assert_eq!(check.state(), State::Down);
        assert_eq!(run(&mut check, "+"), "U");
    }

    #[test]
    fn known_state_is_not_decided_again() {
        assert_eq!(run(&mut Check::with_state(State::Up, 2, 3), "-+"), "..");
        assert_eq!(run(&mut Check::with_state(State::Down, 2, 3), "+-"), "..");
        assert_eq!(run(&mut Check::with_state(State::Ejected, 2, 3), "+---"), "...D");
    }

    proptest! {
        /// After any history, `rise` or `fall` results in a row settle the state.
        #[test]
        fn settles(
            history in prop::collection::vec(any::<bool>(), 0..40),
            rise in 1..6u32,
            fall in 1..6u32,
        ) {
            let mut check = Check::new(rise, fall);
            for passed in history {
                let before = check.state();
                let change = check.on_result(passed);
                prop_assert_eq!(change.is_some(), check.state() != before);
                prop_assert_eq!(change.unwrap_or(before), check.state());
            }
            let _ = (0..rise).map(|_| check.on_result(true)).last();
            prop_assert_eq!(check.state(), State::Up);
            let _ = (0..fall).map(|_| check.on_result(false)).last();
            prop_assert_eq!(check.state(), State::Down);
        }
    }
}
