//! Health logic as state machines that take the time as an argument.

use std::fmt;

pub mod check;
pub mod schedule;

pub mod outlier;
pub mod standing;

pub mod panic;
pub mod slow_start;

pub mod connect;

pub mod backoff;
pub mod budget;
pub mod hedge;

pub use check::Check;
pub use panic::in_panic;
pub use schedule::Schedule;
pub use standing::Standing;

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
    /// Passed its checks, or is not checked, but failed real connections.
    Ejected = 3,
}

impl State {
    /// Every state.
    pub const ALL: [State; 4] = [State::Unknown, State::Up, State::Down, State::Ejected];

    /// The word in metrics, status and logs.
    pub fn name(self) -> &'static str {
        match self {
            State::Unknown => "unknown",
            State::Up => "up",
            State::Down => "down",
            State::Ejected => "ejected",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
