//! A listener, written out again.

use serde::Serialize;

use super::{OffOr, Scalar, off_or, short, text};
use crate::config::units::{Bytes, PerSecond};
use crate::config::words::{ON_TIMEOUT, word};
use crate::config::{
    Action, Config, Limits, Listener, PerSource, Preread, Protocol, Route, Share, Udp,
};
use crate::route::RouteSpec;

/// Keys that listeners of the protocol do not have are left out, as the file must.
#[derive(Serialize)]
pub(super) struct FileListener<'a> {
    bind: Vec<String>,
    protocol: &'static str,
    v6_only: bool,
    preread: FilePreread,
    timeouts: FileTimeouts,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<FileLimits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    udp: Option<FileUdp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    routes: Option<Vec<FileRoute<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'a str>,
}

impl<'a> FileListener<'a> {
    pub(super) fn new(listener: &'a Listener, config: &'a Config) -> Self {
        let alone = match listener.routes.as_slice() {
            [Route { conditions, action: Action::Pool(pool) }]
                if *conditions == RouteSpec::default() =>
            {
                Some(pool_name(config, *pool))
            }
            _ => None,
        };
        let routes = || listener.routes.iter().map(|route| FileRoute::new(route, config)).collect();
        let udp = listener.protocol == Protocol::Udp;
        FileListener {
            bind: listener.bind.iter().map(text).collect(),
            protocol: listener.protocol.name(),
            v6_only: listener.v6_only,
            preread: FilePreread::new(&listener.preread),
            timeouts: FileTimeouts::new(listener),
            limits: udp.then(|| FileLimits::new(&listener.limits)),
            udp: udp.then(|| FileUdp::new(&listener.udp)),
            routes: alone.is_none().then(routes),
            pool: alone,
        }
    }
}

fn pool_name(config: &Config, pool: usize) -> &str {
    config.pools.get(pool).map_or("", |pool| &pool.name)
}

#[derive(Serialize)]
struct FilePreread {
    always: bool,
    timeout: String,
    max_bytes: String,
    total_bytes: String,
    on_timeout: &'static str,
}

impl FilePreread {
    fn new(preread: &Preread) -> Self {
        FilePreread {
            always: preread.always,
            timeout: short(preread.timeout),
            max_bytes: text(&Bytes(preread.max_bytes as u64)),
            total_bytes: text(&Bytes(preread.total_bytes as u64)),
            on_timeout: word(&ON_TIMEOUT, &preread.on_timeout),
        }
    }
}

/// Conditions that a route does not have are left out.
#[derive(Serialize)]
struct FileRoute<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sni: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alpn: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    source: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    split: Option<Vec<FileShare<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
}

#[derive(Serialize)]
struct FileShare<'a> {
    pool: &'a str,
    weight: u32,
}

impl<'a> FileRoute<'a> {
    fn new(route: &Route, config: &'a Config) -> Self {
        let conditions = &route.conditions;
        let mut file = FileRoute {
            sni: conditions.sni.iter().map(text).collect(),
            alpn: conditions.alpn.iter().map(|name| String::from_utf8_lossy(name).into()).collect(),
            source: conditions.source.iter().map(text).collect(),
            pool: None,
            split: None,
            action: None,
        };
        match &route.action {
            Action::Pool(pool) => file.pool = Some(pool_name(config, *pool)),
            Action::Split { shares, .. } => {
                let share =
                    |s: &Share| FileShare { pool: pool_name(config, s.pool), weight: s.weight };
                file.split = Some(shares.iter().map(share).collect());
            }
            Action::Reject => file.action = Some("reject"),
            Action::Reset => file.action = Some("reset"),
        }
        file
    }
}

#[derive(Serialize)]
struct FileTimeouts {
    idle: OffOr<String>,
    #[serde(flatten)]
    connections: Option<FileConnectionTimeouts>,
}

#[derive(Serialize)]
struct FileConnectionTimeouts {
    half_closed: OffOr<String>,
    lifetime: OffOr<String>,
    keepalive: OffOr<String>,
    user_timeout: OffOr<String>,
}

impl FileTimeouts {
    fn new(listener: &Listener) -> Self {
        let timeouts = &listener.timeouts;
        let connections = || FileConnectionTimeouts {
            half_closed: off_or(timeouts.half_closed, short),
            lifetime: off_or(timeouts.lifetime, short),
            keepalive: off_or(timeouts.keepalive, short),
            user_timeout: off_or(timeouts.user_timeout, short),
        };
        FileTimeouts {
            idle: off_or(timeouts.idle, short),
            connections: (listener.protocol == Protocol::Tcp).then(connections),
        }
    }
}

#[derive(Serialize)]
struct FileLimits {
    flows: u32,
    per_source: OffOr<FilePerSource>,
}

#[derive(Serialize)]
struct FilePerSource {
    flows: OffOr<u32>,
    rate: OffOr<String>,
    prefix_v4: u8,
    prefix_v6: u8,
}

impl FileLimits {
    fn new(limits: &Limits) -> Self {
        let per_source = |source: PerSource| FilePerSource {
            flows: off_or(source.flows, |flows| flows),
            rate: off_or(source.rate, |rate| text(&PerSecond(rate))),
            prefix_v4: source.prefix_v4,
            prefix_v6: source.prefix_v6,
        };
        FileLimits { flows: limits.flows, per_source: off_or(limits.per_source, per_source) }
    }
}

#[derive(Serialize)]
struct FileUdp {
    responses: OffOr<u32>,
    requests: OffOr<u32>,
    per_packet: bool,
    receive_buffer: Scalar,
}

impl FileUdp {
    fn new(udp: &Udp) -> Self {
        FileUdp {
            responses: off_or(udp.responses, |count| count),
            requests: off_or(udp.requests, |count| count),
            per_packet: udp.per_packet,
            receive_buffer: match udp.receive_buffer {
                Some(bytes) => Scalar::Text(text(&Bytes(bytes as u64))),
                None => Scalar::Word("auto"),
            },
        }
    }
}
