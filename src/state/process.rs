//! What there is one of in a process: phase, generation, reload results, and the channel by
//! which the admin server asks control for something.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::counter::{Padded, Sharded};
use super::{BackendState, Change, Connections, LogMessage, Queries, Registry, Unchanged};
use crate::limits::{ACCESS_LOG_QUEUE, ALARMS, COMMANDS};

/// Shared by every thread of the process.
#[derive(Debug)]
pub struct Process {
    /// When it started.
    pub started: Instant,
    /// Everything that counts.
    pub registry: Registry,
    /// How often it was asked to stop: once is gracefully, twice at once. Signals and the owner
    /// of the service write, control watches.
    pub stops: watch::Sender<u32>,
    /// It stops because a part of a worker panicked. Any worker writes.
    pub panicked: AtomicBool,
    /// Where the process is in its life. Control writes, workers and observe watch.
    pub phase: watch::Sender<Phase>,
    /// Listeners are bound and the first round of checks is over. Control writes.
    pub serving: AtomicBool,
    /// Generation of the published configuration. Control writes.
    pub generation: AtomicU64,
    /// Reloads that succeeded and failed. Control writes.
    pub reloads: [AtomicU64; 2],
    /// Whether the last reload succeeded. Control writes.
    pub last_reload_ok: AtomicBool,
    /// To the writer of the access log. Workers try to send and never wait.
    pub access_log: SyncSender<LogMessage>,
    /// Access log records that found the queue full. Any worker writes.
    pub access_log_dropped: AtomicU64,
    /// Sessions of the process, for `max_connections`. Any worker writes, through a guard.
    pub sessions: Padded<AtomicU32>,
    /// Bytes of all unfinished hellos, for `preread.total_bytes`. Any worker writes, through a
    /// guard.
    pub hello_bytes: Padded<AtomicUsize>,
    /// The same of QUIC hellos, apart: datagrams with forged addresses cost nothing, and must not
    /// push the hellos of connections out. Any worker writes, through a guard.
    pub quic_hello_bytes: Padded<AtomicUsize>,
    /// The bound on [`Process::hello_bytes`], and on those of QUIC. Control writes.
    pub max_hello_bytes: AtomicUsize,
    /// The bound on [`Process::sessions`]. Control writes.
    pub max_sessions: AtomicU32,
    /// The flows among [`Process::sessions`]. Any worker writes, through a guard.
    pub flows: Padded<AtomicU32>,
    /// The bound on [`Process::flows`]. Control writes.
    pub max_flows: AtomicU32,
    /// Connections kept ready, and attempts at them. Any worker writes, through a guard.
    pub ready: Padded<AtomicU32>,
    /// The bound on [`Process::ready`]. Control writes.
    pub max_ready: AtomicU32,
    /// On which backend QUIC connections are. Any worker learns and asks.
    pub connections: Connections,
    /// One a worker.
    pub workers: Sharded<WorkerState>,
    /// Backends that control should look at, for what connections have met there. Workers try to
    /// send and never wait: who asks in vain asks again at the next failure.
    pub alarms: mpsc::Sender<Arc<BackendState>>,
    /// Requests to control.
    pub commands: mpsc::Sender<Command>,
}

/// What a worker shows of itself.
#[derive(Debug)]
pub struct WorkerState {
    /// Its sessions. The worker writes.
    pub active: AtomicU32,
    /// Connections handed to it that it has not taken yet. Any worker writes.
    pub incoming: AtomicU32,
    /// Share of the last second it was not waiting, in thousandths. Control writes.
    pub busy_permille: AtomicU32,
    /// Newest generation it has taken over. The worker writes.
    pub generation: AtomicU64,
    /// When its oldest unfinished hello began, in nanoseconds of the process; `u64::MAX` without
    /// one. The worker writes, the others read.
    pub oldest_hello: AtomicU64,
    /// Other workers ask it to close that one.
    pub close_oldest: Notify,
    /// What the admin server asks it of its sessions.
    pub queries: Queries,
}

impl Default for WorkerState {
    fn default() -> Self {
        WorkerState {
            active: AtomicU32::new(0),
            incoming: AtomicU32::new(0),
            busy_permille: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            oldest_hello: AtomicU64::new(u64::MAX),
            close_oldest: Notify::new(),
            queries: Queries::default(),
        }
    }
}

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Accepting.
    Running,
    /// `shutdown.delay`: not ready any more, still accepting.
    Leaving,
    /// `shutdown.grace`: not accepting; sessions may finish until this instant.
    Draining {
        /// When grace began.
        since: Instant,
        /// When it ends.
        until: Instant,
    },
    /// Everything that is left ends now.
    Stopping,
}

/// A request to control.
#[derive(Debug)]
pub enum Command {
    /// Read the configuration again.
    Reload(oneshot::Sender<Result<u64, Vec<String>>>),
    /// Change what the operator wants of a backend.
    Change {
        /// The pool's name.
        pool: String,
        /// The backend's name, or its address.
        backend: String,
        /// What is to change.
        change: Change,
        /// Gets the backend when it is done.
        answer: oneshot::Sender<Result<Arc<BackendState>, Unchanged>>,
    },
}

/// The receiving ends of a process' channels.
#[derive(Debug)]
pub struct Inbox {
    /// For control: backends to look at.
    pub alarms: mpsc::Receiver<Arc<BackendState>>,
    /// For control.
    pub commands: mpsc::Receiver<Command>,
    /// For the writer of the access log.
    pub records: Receiver<LogMessage>,
}

impl Process {
    /// A process that is not serving yet, and the receiving ends of its channels.
    pub fn new(workers: usize) -> (Arc<Self>, Inbox) {
        let (commands, received) = mpsc::channel(COMMANDS);
        let (alarms, alarmed) = mpsc::channel(ALARMS);
        let (access_log, records) = sync_channel(ACCESS_LOG_QUEUE);
        let process = Process {
            started: Instant::now(),
            registry: Registry::new(workers),
            stops: watch::Sender::new(0),
            panicked: AtomicBool::new(false),
            phase: watch::Sender::new(Phase::Running),
            serving: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            reloads: Default::default(),
            last_reload_ok: AtomicBool::new(true),
            access_log,
            access_log_dropped: AtomicU64::new(0),
            sessions: Padded::default(),
            hello_bytes: Padded::default(),
            quic_hello_bytes: Padded::default(),
            max_hello_bytes: AtomicUsize::new(usize::MAX),
            max_sessions: AtomicU32::new(u32::MAX),
            flows: Padded::default(),
            max_flows: AtomicU32::new(u32::MAX),
            ready: Padded::default(),
            max_ready: AtomicU32::new(u32::MAX),
            connections: Connections::default(),
            workers: Sharded::new(workers),
            alarms,
            commands,
        };
        (Arc::new(process), Inbox { alarms: alarmed, commands: received, records })
    }

    /// Listeners bound, first round of checks over, not leaving.
    pub fn ready(&self) -> bool {
        self.serving.load(Relaxed) && *self.phase.borrow() == Phase::Running
    }

    /// Whether unfinished QUIC hellos hold more than they may.
    pub fn holds_too_many_quic_hellos(&self) -> bool {
        self.quic_hello_bytes.0.load(Relaxed) > self.max_hello_bytes.load(Relaxed)
    }
}
