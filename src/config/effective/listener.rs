//! A listener, written out again.

use serde::Serialize;

use super::{OffOr, off_or, short, text};
use crate::config::units::Bytes;
use crate::config::words::{ON_TIMEOUT, word};
use crate::config::{Action, Config, Listener, Preread, Route, Share, Timeouts};
use crate::route::RouteSpec;

#[derive(Serialize)]
pub(super) struct FileListener<'a> {
    bind: Vec<String>,
    v6_only: bool,
    preread: FilePreread,
    timeouts: FileTimeouts,
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
        FileListener {
            bind: listener.bind.iter().map(text).collect(),
            v6_only: listener.v6_only,
            preread: FilePreread::new(&listener.preread),
            timeouts: FileTimeouts::new(&listener.timeouts),
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
    half_closed: OffOr<String>,
    lifetime: OffOr<String>,
    keepalive: OffOr<String>,
    user_timeout: OffOr<String>,
}

impl FileTimeouts {
    fn new(timeouts: &Timeouts) -> Self {
        FileTimeouts {
            idle: off_or(timeouts.idle, short),
            half_closed: off_or(timeouts.half_closed, short),
            lifetime: off_or(timeouts.lifetime, short),
            keepalive: off_or(timeouts.keepalive, short),
            user_timeout: off_or(timeouts.user_timeout, short),
        }
    }
}
