//! What the operator wrote, parsed: once a [`Config`] exists it is valid.
//!
//! ```text
//! text → document (tree with places) → value (typed reading) → compile, listener, pool → Config
//! ```
//!
//! One pass over the tree finds every error: a reader that reports one answers `None`, and its
//! caller goes on with the default. So there is no second error that only follows from a first,
//! and a [`Config`] is handed out only if nothing was reported.

use std::fs::File;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::address::Address;
use crate::balance;
use crate::health::outlier::{Terms, Thresholds};
use crate::limits::CONFIG_BYTES;

mod address;
mod backend;
mod bind;
mod compile;
mod connect;
mod defaults;
mod document;
mod effective;
mod error;
mod flags;
mod health;
mod listener;
mod outlier;
mod pool;
mod prefix;
mod quic_lb;
mod report;
mod route;
mod summary;
mod udp;
mod units;
mod value;
mod warning;
mod words;

#[cfg(test)]
mod tests;

pub use address::{AddressFault, parse_address};
pub use connect::Ready;
pub use effective::{Secrets, effective, effective_yaml};
pub use error::{Error, Errors, Hint, Place, Position, Problem, Quoted};
pub use flags::from_flags;
pub use health::{Exchange, HealthCheck, Http, Probe, Tls};
pub use prefix::{PrefixFault, parse_prefix};
pub use quic_lb::{QuicLb, Secret};
pub use route::{Action, Route, Share};
pub use summary::{conditions, summary};
pub use udp::{Limits, PerSource, Protocol, Udp};
pub use units::{
    Bytes, DurationFault, PerSecond, RateFault, Short, SizeFault, parse_duration, parse_rate,
    parse_size,
};
pub use warning::{Suspicion, Takers, Warning};

pub use crate::health::connect::{Connect, HedgeAfter};

use report::Report;

/// A valid configuration, and what looks wrong in it all the same.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The configuration.
    pub config: Config,
    /// In the order of the file.
    pub warnings: Vec<Warning>,
}

/// Reads the configuration in the file at `path`; opens nothing else.
///
/// # Errors
///
/// Every error of the file, or that it cannot be read.
pub fn load(path: &Path) -> Result<Config, Errors> {
    check_file(path).map(|checked| checked.config)
}

/// Reads a configuration; `name` is what errors call the file.
///
/// # Errors
///
/// Every error of the text.
pub fn parse(text: &str, name: &str) -> Result<Config, Errors> {
    check_text(text, name).map(|checked| checked.config)
}

/// Like [`load`], with warnings.
///
/// # Errors
///
/// Every error of the file, or that it cannot be read.
pub fn check_file(path: &Path) -> Result<Checked, Errors> {
    let name = path.display().to_string();
    let bytes = read(path).map_err(|problem| whole_file(&name, None, problem))?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => check_text(text, &name),
        Err(error) => {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let at = document::end_of(&String::from_utf8_lossy(valid));
            Err(whole_file(&name, Some(at), Problem::NotUtf8))
        }
    }
}

/// Like [`parse`], with warnings.
///
/// # Errors
///
/// Every error of the text.
pub fn check_text(text: &str, name: &str) -> Result<Checked, Errors> {
    if text.len() as u64 > CONFIG_BYTES {
        return Err(whole_file(name, None, Problem::TooLarge));
    }
    let mut report = Report::default();
    let root = document::read(text, &mut report);
    let config = root.and_then(|root| compile::compile(&root, &mut report));
    let warnings = report.finish(name)?;
    let config = config.expect("a reader that gives up has reported why");
    Ok(Checked { config, warnings })
}

fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    let file = File::open(path).map_err(Problem::Unreadable)?;
    let mut bytes = Vec::new();
    // One byte more than allowed tells a file that is too large from one that just fits.
    file.take(CONFIG_BYTES + 1).read_to_end(&mut bytes).map_err(Problem::Unreadable)?;
    if bytes.len() as u64 > CONFIG_BYTES {
        return Err(Problem::TooLarge);
    }
    Ok(bytes)
}

fn whole_file(name: &str, at: Option<Position>, problem: Problem) -> Errors {
    let error = Error { at, path: String::new(), problem };
    Errors { name: name.to_owned(), list: vec![error], more: 0 }
}

/// A whole valid configuration, every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Data-plane threads.
    pub workers: Workers,
    /// Seed of every hash policy.
    pub hash_seed: u64,
    /// The admin server, if there is one.
    pub admin: Option<Admin>,
    /// The program's own log.
    pub log: Log,
    /// The access log, if there is one.
    pub access_log: Option<AccessLog>,
    /// What SIGTERM does.
    pub shutdown: Shutdown,
    /// Sessions of the whole process.
    pub max_connections: MaxConnections,
    /// In the order of the file; names are unique.
    pub listeners: Vec<Listener>,
    /// In the order of the file; names are unique.
    pub pools: Vec<Pool>,
}

/// How many data-plane threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// What affinity and cgroup quota allow.
    Auto,
    /// Exactly this many.
    Count(NonZeroUsize),
}

/// The admin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens.
    pub bind: Address,
    /// File with the bearer token for changes from elsewhere than loopback.
    pub token_file: Option<PathBuf>,
}

/// The program's own log, on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Least severe level written.
    pub level: LogLevel,
    /// Text or JSON.
    pub format: LogFormat,
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Form of log lines and access log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogFormat {
    Text,
    Json,
}

/// One record an accepted connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where the records go.
    pub target: LogTarget,
    /// Text or JSON.
    pub format: LogFormat,
}

/// Where access log records go.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogTarget {
    Stdout,
    Stderr,
    File(PathBuf),
}

/// What happens between SIGTERM and the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Not ready any more, still accepting.
    pub delay: Duration,
    /// Existing sessions may finish.
    pub grace: Duration,
}

/// A bound on the sessions of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxConnections {
    /// What the descriptor limit allows.
    Auto,
    /// This many.
    Count(u32),
    /// No bound but the descriptor limit.
    Off,
}

/// An address that clients connect to, and the pool its connections go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Name, unique in the configuration.
    pub name: Arc<str>,
    /// Addresses, at least one, each once in the configuration for each protocol; of UDP never a
    /// unix socket.
    pub bind: Vec<Address>,
    /// What clients speak.
    pub protocol: Protocol,
    /// `[::]` serves IPv6 alone.
    pub v6_only: bool,
    /// When silent or old sessions end; of UDP all are off but `idle`.
    pub timeouts: Timeouts,
    /// How much clients may take; of UDP alone.
    pub limits: Limits,
    /// When flows end; of UDP alone.
    pub udp: Udp,
    /// What is read of a connection before it is routed.
    pub preread: Preread,
    /// In order: the first one whose conditions hold wins. `pool` in the file is one route
    /// without conditions.
    pub routes: Vec<Route>,
}

impl Listener {
    /// A TCP listener that says nothing but its name, addresses and routes.
    pub fn new(name: Arc<str>, bind: Vec<Address>, routes: Vec<Route>) -> Self {
        Listener {
            name,
            bind,
            protocol: Protocol::Tcp,
            v6_only: defaults::V6_ONLY,
            timeouts: defaults::TIMEOUTS,
            limits: defaults::LIMITS,
            udp: defaults::UDP,
            preread: defaults::PREREAD,
            routes,
        }
    }
}

/// What is read of a connection before it is routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preread {
    /// Also where no route needs it.
    pub always: bool,
    /// From accepted to a complete hello.
    pub timeout: Duration,
    /// The largest hello, as received.
    pub max_bytes: usize,
    /// All unfinished hellos of the process; beyond, the oldest is closed.
    pub total_bytes: usize,
    /// What becomes of a client that is silent for `timeout`.
    pub on_timeout: OnTimeout,
}

/// What becomes of a client that sends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTimeout {
    /// It is closed.
    Close,
    /// It is routed as one that does not speak TLS.
    Default,
}

/// When silent or old sessions of a listener end. `None` is `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// No byte in either direction.
    pub idle: Option<Duration>,
    /// Takes the place of `idle` after the first FIN.
    pub half_closed: Option<Duration>,
    /// Age of a session.
    pub lifetime: Option<Duration>,
    /// TCP keepalive on both sides.
    pub keepalive: Option<Duration>,
    /// TCP_USER_TIMEOUT on both sides.
    pub user_timeout: Option<Duration>,
}

/// A group of interchangeable backends and the policy that picks among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Name, unique in the configuration.
    pub name: Arc<str>,
    /// How a backend is picked.
    pub balance: balance::Spec,
    /// At least one; addresses and names unique in the pool; in the order of the file.
    pub backends: Vec<Backend>,
    /// Active checks; `None` when off.
    pub health: Option<HealthCheck>,
    /// What real connections say of backends; `None` when off.
    pub outlier: Option<Outlier>,
    /// When the state of backends is ignored.
    pub panic_threshold: PanicThreshold,
    /// How a backend is connected to.
    pub connect: Connect,
    /// What is connected to them before anybody needs it.
    pub ready: Ready,
    /// Whether a hello whose backend ends the connection without a byte goes to another one.
    pub replay_hello: bool,
    /// How long a backend that has come up gets less than its share.
    pub slow_start: Option<Duration>,
    /// What becomes of the sessions of a backend that goes down.
    pub on_down: OnDown,
    /// The time over which they are closed.
    pub close_spread: Duration,
    /// Sessions and attempts of all backends together.
    pub max_connections: Option<u32>,
    /// Who may wait when all backends are full.
    pub queue: Queueing,
    /// How connection ids of QUIC name a backend; then each backend has a `server_id`. `None` when
    /// off.
    pub quic_lb: Option<QuicLb>,
}

impl Pool {
    /// A pool that says nothing but its name and backends.
    pub fn new(name: Arc<str>, backends: Vec<Backend>) -> Self {
        Pool {
            name,
            balance: defaults::BALANCE,
            backends,
            health: Some(defaults::HEALTH),
            outlier: Some(defaults::OUTLIER),
            panic_threshold: defaults::PANIC_THRESHOLD,
            connect: defaults::CONNECT,
            ready: defaults::READY,
            replay_hello: defaults::REPLAY_HELLO,
            slow_start: None,
            on_down: defaults::ON_DOWN,
            close_spread: defaults::CLOSE_SPREAD,
            max_connections: None,
            queue: defaults::QUEUE,
            quic_lb: None,
        }
    }
}

/// One address that connections are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Defaults to the address as written.
    pub name: Arc<str>,
    /// Never port 0, never the unspecified address.
    pub address: Address,
    /// 0 to [`crate::limits::WEIGHT_MAX`]; 0 gets no new connections.
    pub weight: u16,
    /// Sessions and attempts at a time.
    pub max_connections: Option<u32>,
    /// Used only when no other backend can be.
    pub backup: bool,
    /// What it is called in connection ids of QUIC, 1 to 15 bytes; unique in the pool.
    pub server_id: Option<Box<[u8]>>,
}

impl Backend {
    /// A backend that says nothing but its name and address.
    pub fn new(name: Arc<str>, address: Address) -> Self {
        let (weight, backup) = (defaults::WEIGHT, defaults::BACKUP);
        Backend { name, address, weight, max_connections: None, backup, server_id: None }
    }
}

/// What becomes of the sessions of a backend that goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDown {
    /// They go on for as long as they can.
    Keep,
    /// They are closed.
    Close,
}

/// Who may wait for a place when all backends of a pool are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queueing {
    /// Connections at a time; 0: none, they end at once.
    pub max: u32,
    /// Of one connection.
    pub timeout: Duration,
}

/// When a pool ignores the state of its backends (never their admin state or weight 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanicThreshold {
    /// Below this percentage of the weight usable; 0 = only when nothing is.
    Percent(u8),
    /// Never.
    Off,
}

/// Passive detection: backends that real connections fail on are ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlier {
    /// What makes a backend an outlier.
    pub thresholds: Thresholds,
    /// Whether a connection counts as failed that the backend ends before its first byte.
    pub early_close: bool,
    /// How long ejections last, and how they end.
    pub terms: Terms,
    /// Backends of the pool that may be ejected at a time.
    pub max_ejected_percent: u8,
}
