//! What the operator wants of a backend, and how control is told.

use std::fmt;

use crate::balance::BuildError;

/// Whether a backend is given connections, by the operator's word. Survives reloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AdminState {
    /// It takes connections.
    #[default]
    Ready = 0,
    /// It gets no new ones, not even in panic; those it has go on.
    Drain = 1,
    /// As drain, and it is not checked.
    Maintenance = 2,
}

impl AdminState {
    /// Every state.
    pub const ALL: [AdminState; 3] =
        [AdminState::Ready, AdminState::Drain, AdminState::Maintenance];

    /// The word in the admin API, metrics, status and logs.
    pub fn name(self) -> &'static str {
        match self {
            AdminState::Ready => "ready",
            AdminState::Drain => "drain",
            AdminState::Maintenance => "maintenance",
        }
    }

    /// The state of this name.
    pub fn find(name: &str) -> Option<AdminState> {
        AdminState::ALL.into_iter().find(|state| state.name() == name)
    }
}

impl fmt::Display for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the operator changes of a backend; `None` leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Its administrative state.
    pub admin: Option<AdminState>,
    /// Its weight; `Some(None)` is the configuration's.
    pub weight: Option<Option<u16>>,
}

/// Why nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unchanged {
    /// The configuration has no such pool.
    #[error("there is no such pool")]
    NoPool,
    /// The pool has no backend of this name or at this address.
    #[error("the pool has no such backend")]
    NoBackend,
    /// With this weight the policy has no table.
    #[error("{0}")]
    Weight(#[from] BuildError),
    /// Nothing is accepted any more.
    #[error("the process is stopping")]
    Stopping,
}
