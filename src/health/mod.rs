//! Health logic as state machines that take the time as an argument.

use std::fmt;

pub mod check;
pub mod panic;
pub mod schedule;

pub use check::Check;
pub use panic::in_panic;
pub use schedule::Schedule;

/// What checks and connections say of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Not checked yet.
    Unknown = 0,
    /// Passed its checks, or is not checked.
    Up = 1,
    /// Failed its checks.
    Down = 2,
}

impl State {
    /// Every state.
    pub const ALL: [State; 3] = [State::Unknown, State::Up, State::Down];

    /// The word in metrics, status and logs.
    pub fn name(self) -> &'static str {
        match self {
            State::Unknown => "unknown",
            State::Up => "up",
            State::Down => "down",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
