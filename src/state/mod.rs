//! What threads share: counters, the status of backends, leases, and the channels between the
//! admin server, control and workers. Control is the only writer of a backend's status; workers
//! are the only writers of counts, each of its own shard.

pub mod admin;
pub mod backend;
pub mod check;
pub mod closing;
pub mod connections;
pub mod counter;
pub mod histogram;
pub mod listener;
pub mod outcome;
pub mod pool;
pub mod process;
pub mod queue;
pub mod ready;
pub mod record;
pub mod registry;
pub mod session;
pub mod sources;
pub mod standing;

pub use admin::{AdminState, Change, Unchanged};
pub use backend::{BackendState, Full, Lease};
pub use check::{CheckFailure, CheckReport};
pub use closing::Closing;
pub use connections::{Chosen, Connection, Connections};
pub use listener::{FlowPlace, ListenerState};
pub use outcome::{
    AttemptOutcome, ConnectError, ConnectFailure, Direction, DropReason, Termination,
};
pub use pool::PoolState;
pub use process::{Phase, Process};
pub use ready::{Kept, ReadyCounts};
pub use record::{Asked, Attempt, LogMessage, Record};
pub use registry::Registry;
pub use session::{Queries, Query, SessionReport, SessionReports, Stage};
pub use sources::{SourcePlace, Sources};
pub use standing::{Standing, Words};
