//! What rise and fall mean, said in another way than the program says it: by looking back over
//! all results since the last change, where the program counts.

use pointsman::health::State;

/// All results of one backend since its state last changed.
#[derive(Debug)]
pub struct Oracle {
    state: State,
    results: Vec<bool>,
}

impl Oracle {
    pub fn new() -> Self {
        Oracle { state: State::Unknown, results: Vec::new() }
    }

    /// Panics unless `change` is what this result had to bring about.
    pub fn judge(&mut self, passed: bool, rise: u32, fall: u32, change: Option<State>) {
        self.results.push(passed);
        let (needed, against) = match self.state {
            State::Unknown => (1, passed),
            State::Up => (fall, false),
            State::Down => (rise, true),
            State::Ejected => unreachable!("checks eject nobody"),
        };
        let latest = self.results.iter().rev().take(needed as usize);
        let due = self.results.len() >= needed as usize
            && latest.into_iter().all(|&result| result == against);
        let expected = due.then_some(if against { State::Up } else { State::Down });
        assert_eq!(change, expected, "{self:?} with rise {rise}, fall {fall}");
        if let Some(state) = change {
            self.state = state;
            self.results.clear();
        }
    }

    pub fn state(&self) -> State {
        self.state
    }
}
