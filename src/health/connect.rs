//! How a connection gets to a backend: how many attempts, how long, and when two at a time.

use std::time::Duration;

use super::hedge::ConnectTimes;

/// How the backends of a pool are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Of one attempt.
    pub timeout: Duration,
    /// Attempts of one connection, 1 to [`crate::limits::ATTEMPTS_MAX`]; on different backends
    /// while there are any.
    pub attempts: usize,
    /// Of all attempts of one connection, and the waits between them.
    pub total_timeout: Duration,
    /// When an attempt that is pending gets company.
    pub hedge_after: HedgeAfter,
    /// Attempts beyond the first, in percent of connections; `None`: however many.
    pub retry_budget: Option<u8>,
}

/// When an attempt that is pending gets company.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeAfter {
    /// Never.
    Off,
    /// When it takes longer than nearly all connects of the pool lately.
    Auto,
    /// After this long.
    After(Duration),
}

impl HedgeAfter {
    /// After how long, in a pool whose connects took `times`; `None`: never.
    pub fn delay(self, times: &ConnectTimes) -> Option<Duration> {
        match self {
            HedgeAfter::Off => None,
            HedgeAfter::Auto => Some(times.hedge_after()),
            HedgeAfter::After(after) => Some(after),
        }
    }
}
