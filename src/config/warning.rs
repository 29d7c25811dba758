//! What is legal in a configuration but probably not meant.

use std::fmt;

use super::error::{Position, Quoted};
use super::units::Short;

/// One warning, displayed as `LINE:COLUMN: PATH: what looks wrong; what to do`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where it is.
    pub at: Option<Position>,
    /// The key it is about.
    pub path: String,
    /// What looks wrong.
    pub suspicion: Suspicion,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.at {
            write!(f, "{}:{}: ", at.line, at.column)?;
        }
        write!(f, "{}: {}", self.path, self.suspicion)
    }
}

/// What can look wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Suspicion {
    #[error("no listener uses this pool; its backends are checked all the same")]
    UnusedPool,
    #[error("all weights are 0, so every connection ends with `no_backend`; give one a weight")]
    ZeroWeight,
    #[error(
        "clients of the unix socket {address} have no IP address, so {policy} sends them all to \
         one backend; use another policy"
    )]
    HashOfUnix { address: Quoted, policy: &'static str },
    #[error(
        "timeout {} is longer than interval {}: the next check waits for it; shorten the timeout",
        .timeout,
        .interval
    )]
    SlowCheck { timeout: Short, interval: Short },
    #[error("`v6_only` has an effect on [::] only, and no address here is that; remove it")]
    UselessV6Only,
    #[error(
        "`idle`, `lifetime`, `keepalive` and `user_timeout` are all off: a vanished client holds \
         its session forever; set one"
    )]
    EternalSessions,
    #[error("backend {address} is this listener itself: connections go round in a circle")]
    Circle { address: Quoted },
    #[error(
        "reachable from other machines without `token_file`: those can read metrics, but change \
         nothing; set it, or bind to 127.0.0.1"
    )]
    AdminWithoutToken,
    #[error("{path} is relative to the directory the process starts in; write an absolute path")]
    RelativePath { path: Quoted },
}
