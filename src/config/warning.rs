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
    #[error("never matches: {by}; move it up, or remove it")]
    ShadowedRoute { by: Takers },
    #[error(
        "routes[{route}] asks for a `source`, but clients of unix sockets have no address: it \
         never matches; remove it"
    )]
    SourceOfUnix { route: usize },
    #[error(
        "hedge_after {} is not shorter than timeout {}: no attempt is pending for that long; \
         shorten it",
        .after,
        .timeout
    )]
    UselessHedge { after: Short, timeout: Short },
    #[error(
        "max_ejection {} is shorter than base_ejection {}, which is what counts then",
        .max,
        .base
    )]
    ShortMaxEjection { base: Short, max: Short },
    #[error(
        "total_timeout {} is shorter than timeout {}: no attempt gets its full time; make it longer",
        .total,
        .timeout
    )]
    ShortTotal { timeout: Short, total: Short },
    #[error("with one attempt there is nothing that `{key}` could start; raise `attempts`")]
    OneAttempt { key: &'static str },
    #[error("with one backend there is no other that a hello could go to; remove `replay_hello`")]
    ReplayToNobody,
    #[error(
        "no listener that leads here reads hellos, so `replay_hello` never applies; set \
         `preread.always` there, or remove it"
    )]
    ReplayWithoutHello,
    #[error(
        "`consecutive_failures` and `failure_percent` are both off, so nothing is ever ejected; \
         write `outlier: off`"
    )]
    NothingEjects,
    #[error("every backend is a backup, so all are used at once; make one a backend proper")]
    OnlyBackups,
    #[error("no backend has a `max_connections`, so nobody ever waits; set one, or remove `queue`")]
    UselessQueue,
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
    #[error(
        "with `on_timeout: default` a client that waits before its hello gets around every `sni` \
         and `alpn`; use it only where the route it falls to may serve any name"
    )]
    WayAroundNames,
    #[error("`v6_only` has an effect on [::] only, and no address here is that; remove it")]
    UselessV6Only,
    #[error(
        "`idle`, `lifetime`, `keepalive` and `user_timeout` are all off: a vanished client holds \
         its session forever; set one"
    )]
    EternalSessions,
    #[error("`idle` is off: a vanished client holds its flow forever; set it")]
    EternalFlows,
    #[error("`flows` and `rate` are both off, so nothing is limited; write `per_source: off`")]
    NothingLimited,
    #[error("has no effect: only UDP listeners use this pool; remove it")]
    KeyOfTcp,
    #[error(
        "with `udp.per_packet` no hello is read, so pool {pool}, which hashes `sni`, hashes \
         `source`; write that there"
    )]
    NameHashPerPacket { pool: Quoted },
    #[error("no UDP listener leads here, so no connection id is ever read; remove it")]
    QuicLbWithoutUdp,
    #[error("backends have a `server_id`, which only `quic_lb` reads; add that, or remove them")]
    UselessServerId,
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

/// The routes that take all of what another one would, ascending: indices and lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Takers(pub Vec<(usize, usize)>);

impl Takers {
    /// Shown of them; more are counted.
    const SHOWN: usize = 3;
}

impl fmt::Display for Takers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (route, line)) in self.0.iter().take(Self::SHOWN).enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(f, "{separator}routes[{route}] on line {line}")?;
        }
        match self.0.len() {
            0 | 1 => f.write_str(" takes all of it"),
            count if count <= Self::SHOWN => f.write_str(" take all of it together"),
            count => write!(f, " and {} more take all of it together", count - Self::SHOWN),
        }
    }
}
