//! A [`Config`] written out again, every default filled in, with the keys of the file.
//!
//! Reading the result gives an equal [`Config`], unless it hides secrets. Of `token_file` it shows
//! the path only.

use std::fmt::Display;
use std::time::Duration;

use serde::{Serialize, Serializer};

mod health;
mod listener;

use health::FileHealth;
use listener::FileListener;

use super::quic_lb::hex;
use super::units::Short;
use super::words::{LOG_FORMATS, LOG_LEVELS, ON_DOWN, word};
use super::{
    AccessLog, Admin, Backend, Config, HedgeAfter, LogTarget, MaxConnections, Outlier,
    PanicThreshold, Pool, QuicLb, Secret, Workers,
};
use crate::balance::{PolicyKind, Spec};
use crate::health::outlier::Thresholds;

/// Whether keys are written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrets {
    /// For the eyes of those who can read the file.
    Shown,
    /// In their place the word `hidden`, which is no key.
    Hidden,
}

/// `config` for any serde format.
pub fn effective(config: &Config, secrets: Secrets) -> impl Serialize + '_ {
    File(config, secrets)
}

/// `config` as a YAML file that says everything.
///
/// # Errors
///
/// What the YAML library says, on a configuration that no file could have.
pub fn effective_yaml(config: &Config, secrets: Secrets) -> Result<String, serde_yaml::Error> {
    serde_yaml::to_string(&effective(config, secrets))
}

struct File<'a>(&'a Config, Secrets);

impl Serialize for File<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let File(config, secrets) = *self;
        let listeners = config.listeners.iter().map(|l| (&*l.name, FileListener::new(l, config)));
        let pools = config.pools.iter().map(|p| (&*p.name, FilePool::new(p, secrets)));
        FileKeys {
            workers: match config.workers {
                Workers::Auto => Scalar::Word("auto"),
                Workers::Count(count) => Scalar::Number(count.get() as u64),
            },
            hash_seed: config.hash_seed,
            admin: off_or(config.admin.as_ref(), FileAdmin::new),
            log: FileLog {
                level: word(&LOG_LEVELS, &config.log.level),
                format: word(&LOG_FORMATS, &config.log.format),
            },
            access_log: off_or(config.access_log.as_ref(), FileAccessLog::new),
            shutdown: FileShutdown {
                delay: short(config.shutdown.delay),
                grace: short(config.shutdown.grace),
            },
            max_connections: match config.max_connections {
                MaxConnections::Auto => Scalar::Word("auto"),
                MaxConnections::Off => Scalar::Word("off"),
                MaxConnections::Count(count) => Scalar::Number(u64::from(count)),
            },
            listeners: Ordered(listeners.collect()),
            pools: Ordered(pools.collect()),
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
struct FileKeys<'a> {
    workers: Scalar,
    hash_seed: u64,
    admin: OffOr<FileAdmin>,
    log: FileLog,
    access_log: OffOr<FileAccessLog>,
    shutdown: FileShutdown,
    max_connections: Scalar,
    listeners: Ordered<'a, FileListener<'a>>,
    pools: Ordered<'a, FilePool<'a>>,
}

/// A map in the order of the file.
struct Ordered<'a, T>(Vec<(&'a str, T)>);

impl<T: Serialize> Serialize for Ordered<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// A word, a number, or what the operator wrote.
#[derive(Serialize)]
#[serde(untagged)]
enum Scalar {
    Word(&'static str),
    Number(u64),
    Decimal(f64),
    Text(String),
}

/// A map, or the word `off`.
#[derive(Serialize)]
#[serde(untagged)]
enum OffOr<T> {
    Off(&'static str),
    On(T),
}

fn off_or<F, T>(value: Option<F>, on: impl FnOnce(F) -> T) -> OffOr<T> {
    value.map_or(OffOr::Off("off"), |value| OffOr::On(on(value)))
}

fn text(value: &impl Display) -> String {
    value.to_string()
}

fn short(duration: Duration) -> String {
    text(&Short(duration))
}

#[derive(Serialize)]
struct FileAdmin {
    bind: String,
    token_file: Scalar,
}

impl FileAdmin {
    fn new(admin: &Admin) -> Self {
        let token_file = match &admin.token_file {
            Some(path) => Scalar::Text(text(&path.display())),
            None => Scalar::Word("off"),
        };
        FileAdmin { bind: text(&admin.bind), token_file }
    }
}

#[derive(Serialize)]
struct FileLog {
    level: &'static str,
    format: &'static str,
}

#[derive(Serialize)]
struct FileAccessLog {
    path: String,
    format: &'static str,
}

impl FileAccessLog {
    fn new(log: &AccessLog) -> Self {
        let path = match &log.target {
            LogTarget::Stdout => "stdout".to_owned(),
            LogTarget::Stderr => "stderr".to_owned(),
            LogTarget::File(path) => text(&path.display()),
        };
        FileAccessLog { path, format: word(&LOG_FORMATS, &log.format) }
    }
}

#[derive(Serialize)]
struct FileShutdown {
    delay: String,
    grace: String,
}

#[derive(Serialize)]
struct FilePool<'a> {
    balance: FileBalance,
    backends: Vec<FileBackend<'a>>,
    health: OffOr<FileHealth<'a>>,
    outlier: OffOr<FileOutlier>,
    panic_threshold: Scalar,
    connect: FileConnect,
    slow_start: OffOr<String>,
    on_down: &'static str,
    close_spread: String,
    max_connections: OffOr<u32>,
    queue: FileQueue,
    quic_lb: OffOr<FileQuicLb>,
}

impl<'a> FilePool<'a> {
    fn new(pool: &'a Pool, secrets: Secrets) -> Self {
        FilePool {
            balance: FileBalance::new(&pool.balance),
            backends: pool.backends.iter().map(FileBackend::new).collect(),
            health: off_or(pool.health.as_ref(), FileHealth::new),
            outlier: off_or(pool.outlier.as_ref(), FileOutlier::new),
            panic_threshold: match pool.panic_threshold {
                PanicThreshold::Percent(percent) => Scalar::Number(u64::from(percent)),
                PanicThreshold::Off => Scalar::Word("off"),
            },
            connect: FileConnect::new(pool),
            slow_start: off_or(pool.slow_start, short),
            on_down: word(&ON_DOWN, &pool.on_down),
            close_spread: short(pool.close_spread),
            max_connections: off_or(pool.max_connections, |max| max),
            queue: FileQueue {
                max: off_or(Some(pool.queue.max).filter(|&max| max > 0), |max| max),
                timeout: short(pool.queue.timeout),
            },
            quic_lb: off_or(pool.quic_lb.as_ref(), |quic_lb| FileQuicLb::new(quic_lb, secrets)),
        }
    }
}

/// Parameters that a policy does not have are left out, as the file must.
#[derive(Serialize)]
struct FileBalance {
    policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bounded_load: Option<Scalar>,
}

impl FileBalance {
    fn new(spec: &Spec) -> Self {
        FileBalance {
            policy: spec.policy.name(),
            key: spec.policy.hashes().then(|| spec.key.name()),
            table_size: (spec.policy == PolicyKind::Maglev).then_some(spec.table_size),
            bounded_load: spec.policy.hashes().then(|| match spec.bounded_load {
                Some(bound) => Scalar::Decimal(f64::from(bound.thousandths()) / 1000.0),
                None => Scalar::Word("off"),
            }),
        }
    }
}

#[derive(Serialize)]
struct FileBackend<'a> {
    name: &'a str,
    address: String,
    weight: u16,
    max_connections: OffOr<u32>,
    backup: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_id: Option<String>,
}

impl<'a> FileBackend<'a> {
    fn new(backend: &'a Backend) -> Self {
        FileBackend {
            name: &backend.name,
            address: text(&backend.address),
            weight: backend.weight,
            max_connections: off_or(backend.max_connections, |max| max),
            backup: backend.backup,
            server_id: backend.server_id.as_deref().map(hex),
        }
    }
}

#[derive(Serialize)]
struct FileQueue {
    max: OffOr<u32>,
    timeout: String,
}

#[derive(Serialize)]
struct FileOutlier {
    consecutive_failures: OffOr<u16>,
    failure_percent: OffOr<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum_volume: Option<u16>,
    early_close: bool,
    base_ejection: String,
    max_ejection: String,
    max_ejected_percent: u8,
    trial_connections: u8,
}

impl FileOutlier {
    fn new(outlier: &Outlier) -> Self {
        let Thresholds { consecutive, rate } = outlier.thresholds;
        FileOutlier {
            consecutive_failures: off_or(consecutive, |count| count),
            failure_percent: off_or(rate, |rate| rate.percent),
            window: rate.map(|rate| rate.window),
            minimum_volume: rate.map(|rate| rate.volume),
            early_close: outlier.early_close,
            base_ejection: short(outlier.terms.base_ejection),
            max_ejection: short(outlier.terms.max_ejection),
            max_ejected_percent: outlier.max_ejected_percent,
            trial_connections: outlier.terms.trial_connections,
        }
    }
}

#[derive(Serialize)]
struct FileConnect {
    timeout: String,
    attempts: usize,
    total_timeout: String,
    hedge_after: Scalar,
    retry_budget: OffOr<u8>,
    ready: OffOr<u16>,
    ready_max_age: String,
    replay_hello: bool,
}

impl FileConnect {
    fn new(pool: &Pool) -> Self {
        let connect = &pool.connect;
        FileConnect {
            timeout: short(connect.timeout),
            attempts: connect.attempts,
            total_timeout: short(connect.total_timeout),
            hedge_after: match connect.hedge_after {
                HedgeAfter::Off => Scalar::Word("off"),
                HedgeAfter::Auto => Scalar::Word("auto"),
                HedgeAfter::After(after) => Scalar::Text(short(after)),
            },
            retry_budget: off_or(connect.retry_budget, |percent| percent),
            ready: off_or(Some(pool.ready.count).filter(|&count| count > 0), |count| count),
            ready_max_age: short(pool.ready.max_age),
            replay_hello: pool.replay_hello,
        }
    }
}

#[derive(Serialize)]
struct FileQuicLb {
    config: u8,
    key: OffOr<String>,
    nonce_length: u8,
}

impl FileQuicLb {
    fn new(quic_lb: &QuicLb, secrets: Secrets) -> Self {
        let key = |key: &Secret| match secrets {
            Secrets::Shown => hex(key.bytes()),
            Secrets::Hidden => "hidden".to_owned(),
        };
        FileQuicLb {
            config: quic_lb.config,
            key: off_or(quic_lb.key.as_ref(), key),
            nonce_length: quic_lb.nonce_length,
        }
    }
}
