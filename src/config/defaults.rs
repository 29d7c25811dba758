//! Every default, in one place. `conf/full.yaml` shows them; a test holds the two together.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{
    Connect, Exchange, HealthCheck, HedgeAfter, Limits, Log, LogFormat, LogLevel, MaxConnections,
    OnDown, OnTimeout, Outlier, PanicThreshold, PerSource, Preread, Probe, Queueing, Ready,
    Shutdown, Timeouts, Udp, Workers,
};
use crate::balance::key::KeyKind;
use crate::balance::{PolicyKind, Spec};
use crate::health::outlier::{Rate, Terms, Thresholds};

pub(super) const WORKERS: Workers = Workers::Auto;
pub(super) const HASH_SEED: u64 = 0;
pub(super) const LOG: Log = Log { level: LogLevel::Info, format: LogFormat::Text };
pub(super) const ACCESS_LOG_FORMAT: LogFormat = LogFormat::Json;
pub(super) const SHUTDOWN: Shutdown =
    Shutdown { delay: Duration::ZERO, grace: Duration::from_secs(30) };
pub(super) const MAX_CONNECTIONS: MaxConnections = MaxConnections::Auto;

pub(super) const V6_ONLY: bool = false;
pub(super) const PREREAD: Preread = Preread {
    always: false,
    timeout: Duration::from_secs(3),
    max_bytes: 64 * 1024,
    total_bytes: 64 * 1024 * 1024,
    on_timeout: OnTimeout::Close,
};
pub(super) const TIMEOUTS: Timeouts = Timeouts {
    idle: Some(Duration::from_secs(600)),
    half_closed: Some(Duration::from_secs(300)),
    lifetime: None,
    keepalive: Some(Duration::from_secs(30)),
    user_timeout: Some(Duration::from_secs(120)),
};

pub(super) const UDP_TIMEOUTS: Timeouts = Timeouts {
    idle: Some(Duration::from_secs(30)),
    half_closed: None,
    lifetime: None,
    keepalive: None,
    user_timeout: None,
};
pub(super) const LIMITS: Limits = Limits { flows: 100_000, per_source: None };
pub(super) const PER_SOURCE: PerSource =
    PerSource { flows: None, rate: None, prefix_v4: 32, prefix_v6: 64 };
pub(super) const UDP: Udp =
    Udp { responses: None, requests: None, per_packet: false, receive_buffer: None };
/// Of `udp.responses` where each datagram is a flow of its own.
pub(super) const PER_PACKET_RESPONSES: u32 = 1;

pub(super) const BALANCE: Spec = Spec {
    policy: PolicyKind::LeastConn,
    key: KeyKind::FiveTuple,
    table_size: 65_537,
    bounded_load: None,
};
pub(super) const WEIGHT: u16 = 1;
pub(super) const BACKUP: bool = false;
pub(super) const HEALTH: HealthCheck = HealthCheck {
    probe: Probe::Tcp(Exchange { send: None, expect: None }),
    port: None,
    interval: Duration::from_secs(2),
    fast_interval: Duration::from_millis(500),
    timeout: Duration::from_secs(1),
    rise: 2,
    fall: 3,
};
pub(super) const CHECK_PATH: &str = "/";
pub(super) const CHECK_STATUS: RangeInclusive<u16> = 200..=399;
/// Where Debian and its kin keep the public authorities.
pub(super) const CA_FILE: &str = "/etc/ssl/certs/ca-certificates.crt";
pub(super) const PANIC_THRESHOLD: PanicThreshold = PanicThreshold::Percent(0);
pub(super) const FAILURE_WINDOW: u16 = 100;
pub(super) const FAILURE_VOLUME: u16 = 20;
pub(super) const OUTLIER: Outlier = Outlier {
    thresholds: Thresholds {
        consecutive: Some(3),
        rate: Some(Rate { percent: 50, window: FAILURE_WINDOW, volume: FAILURE_VOLUME }),
    },
    early_close: false,
    terms: Terms {
        base_ejection: Duration::from_secs(10),
        max_ejection: Duration::from_secs(300),
        trial_connections: 1,
    },
    max_ejected_percent: 50,
};
pub(super) const CONNECT: Connect = Connect {
    timeout: Duration::from_secs(1),
    attempts: 3,
    total_timeout: Duration::from_secs(5),
    hedge_after: HedgeAfter::Off,
    retry_budget: Some(20),
};
// Below the 20 s after which Apache closes a connection that says nothing.
pub(super) const READY: Ready = Ready { count: 0, max_age: Duration::from_secs(15) };
pub(super) const REPLAY_HELLO: bool = false;
pub(super) const ON_DOWN: OnDown = OnDown::Keep;
pub(super) const CLOSE_SPREAD: Duration = Duration::from_secs(2);
pub(super) const NONCE_LENGTH: u8 = 4;
pub(super) const QUEUE: Queueing = Queueing { max: 0, timeout: Duration::from_secs(1) };
