//! The section `listeners`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::address::parse_address;
use super::bind::Binds;
use super::compile::relative;
use super::error::{Place, Problem, Quoted};
use super::report::Report;
use super::route::routes;
use super::units::DurationFault;
use super::value::{Named, Table, Value};
use super::warning::Suspicion;
use super::{Action, Listener, OnTimeout, Pool, Preread, Route, Timeouts, defaults, words};
use crate::address::Address;
use crate::balance::key::KeyKind;
use crate::limits::{
    DURATION_MAX, HELLO_MAX, HELLO_MIN, HELLOS_MAX, KEEPALIVE_MAX, USER_TIMEOUT_MAX, hello_cost,
};

pub(super) const LISTENER: &[&str] = &["bind", "v6_only", "preread", "timeouts", "routes", "pool"];
pub(super) const PREREAD: &[&str] =
    &["always", "timeout", "max_bytes", "total_bytes", "on_timeout"];
pub(super) const TIMEOUTS: &[&str] =
    &["idle", "half_closed", "lifetime", "keepalive", "user_timeout"];

/// The pools a listener can name.
#[derive(Debug)]
pub(super) struct Pools<'a> {
    /// In the order of the file.
    names: Vec<&'a str>,
    /// Where each is in [`super::Config::pools`].
    index: HashMap<&'a str, usize>,
}

impl<'a> Pools<'a> {
    pub(super) fn new(named: &[Named<'a>]) -> Self {
        let names: Vec<&str> = named.iter().map(|named| named.name).collect();
        let index = names.iter().enumerate().map(|(index, name)| (*name, index)).collect();
        Pools { names, index }
    }
}

/// Reads one listener. The result means something only if nothing was reported.
pub(super) fn listener(
    named: &Named<'_>,
    pools: &Pools<'_>,
    binds: &mut Binds,
    total: &mut HelloTotal,
    report: &mut Report,
) -> Listener {
    let mut listener = Listener::new(Arc::from(named.name), Vec::new(), Vec::new());
    let Some(table) =
        named.value.table(LISTENER, "a map with `bind` and `pool` or `routes`", report)
    else {
        return listener;
    };
    listener.v6_only = table.read("v6_only", defaults::V6_ONLY, |v| v.boolean(report));
    listener.timeouts = table.read("timeouts", defaults::TIMEOUTS, |v| timeouts(v, report));
    match table.get("bind") {
        Some(value) if value.is_list() => {
            for item in value.items("a list of addresses", report) {
                listener.bind.extend(bind(item, listener.v6_only, binds, report));
            }
        }
        Some(value) => listener.bind.extend(bind(value, listener.v6_only, binds, report)),
        None if table.lacks("bind") => {
            named.missing("bind", "write it like `bind: \"[::]:443\"`", report)
        }
        None => {}
    }
    listener.preread = table.read("preread", defaults::PREREAD, |v| preread(v, total, report));
    listener.routes = lead(named, &table, pools, report);
    if let Some(value) = table.get("timeouts") {
        timeout_doubts(&listener.timeouts, value, report);
    }
    listener
}

/// What the listeners read so far say of `preread.total_bytes`, which is one for the process.
#[derive(Debug, Default)]
pub(super) struct HelloTotal(Option<(usize, Place)>);

impl HelloTotal {
    /// The value for those that say nothing.
    pub(super) fn bytes(&self) -> usize {
        self.0.map_or(defaults::PREREAD.total_bytes, |(bytes, _)| bytes)
    }
}

/// `pool`, or `routes`.
fn lead(
    named: &Named<'_>,
    table: &Table<'_>,
    pools: &Pools<'_>,
    report: &mut Report,
) -> Vec<Route> {
    match (table.get("pool"), table.get("routes")) {
        (Some(_), Some(routes)) => {
            routes.error(Problem::TwoLeads { key: "routes", first: "pool" }, report);
            Vec::new()
        }
        (Some(pool), None) => {
            let pool = pool_index(pool, pools, report).unwrap_or_default();
            vec![Route::unconditional(Action::Pool(pool))]
        }
        (None, Some(value)) => routes(value, pools, report),
        (None, None) => {
            if table.lacks("pool") && table.lacks("routes") {
                named.missing("pool", "name the pool its connections go to, or `routes`", report);
            }
            Vec::new()
        }
    }
}

fn preread(value: Value<'_>, total_bytes: &mut HelloTotal, report: &mut Report) -> Option<Preread> {
    let table = value.table(PREREAD, "a map of keys", report)?;
    let defaults = defaults::PREREAD;
    let hello = HELLO_MIN..=HELLO_MAX;
    let total = HELLO_MIN..=HELLOS_MAX;
    let explicit = table.get("total_bytes").and_then(|v| v.size(total, report));
    let preread = Preread {
        always: table.read("always", defaults.always, |v| v.boolean(report)),
        timeout: table.read("timeout", defaults.timeout, |v| {
            v.duration(Duration::from_millis(1)..=DURATION_MAX, report)
        }),
        max_bytes: table.read("max_bytes", defaults.max_bytes, |v| v.size(hello, report)),
        total_bytes: explicit.unwrap_or(defaults.total_bytes),
        on_timeout: table.read("on_timeout", defaults.on_timeout, |v| {
            v.choice("choice", &words::ON_TIMEOUT, report)
        }),
    };
    if preread.total_bytes < hello_cost(preread.max_bytes + 1) {
        value.error(Problem::TotalBelowMax, report);
    }
    if let Some(value) = table.get("total_bytes").filter(|_| explicit.is_some()) {
        match total_bytes.0 {
            Some((first, place)) if first != preread.total_bytes => {
                value.error(Problem::TotalDiffers { first: place }, report);
            }
            _ => total_bytes.0 = Some((preread.total_bytes, Place::Line(value.at().line))),
        }
    }
    Some(preread)
}

fn bind(
    value: Value<'_>,
    v6_only: bool,
    binds: &mut Binds,
    report: &mut Report,
) -> Option<Address> {
    let text = value.text("an address or a list of addresses", report)?;
    match parse_address(text) {
        Ok(address) => {
            if let Err(problem) = binds.add(&address, v6_only, Place::Line(value.at().line)) {
                value.error(problem, report);
            }
            relative(value, &address, report);
            Some(address)
        }
        Err(fault) => {
            value.error(fault, report);
            None
        }
    }
}

pub(super) fn pool_index(
    value: Value<'_>,
    pools: &Pools<'_>,
    report: &mut Report,
) -> Option<usize> {
    let name = value.text("the name of a pool", report)?;
    let index = pools.index.get(name).copied();
    // Without any pool, that error is enough.
    if index.is_none() && !pools.names.is_empty() {
        let names = pools.names.iter().copied();
        let hint = report.hint(name, names, "define it under `pools`");
        value.error(Problem::UnknownPool { name: Quoted::new(name), hint }, report);
    }
    index
}

fn timeouts(value: Value<'_>, report: &mut Report) -> Option<Timeouts> {
    let table = value.table(TIMEOUTS, "a map of timeouts", report)?;
    let defaults = defaults::TIMEOUTS;
    let millisecond = Duration::from_millis(1);
    let any = millisecond..=DURATION_MAX;
    let keepalive = Duration::from_secs(1)..=KEEPALIVE_MAX;
    let timeouts = Timeouts {
        idle: limit(&table, "idle", defaults.idle, any.clone(), report),
        half_closed: limit(&table, "half_closed", defaults.half_closed, any.clone(), report),
        lifetime: limit(&table, "lifetime", defaults.lifetime, any, report),
        keepalive: limit(&table, "keepalive", defaults.keepalive, keepalive, report),
        user_timeout: limit(
            &table,
            "user_timeout",
            defaults.user_timeout,
            millisecond..=USER_TIMEOUT_MAX,
            report,
        ),
    };
    // The kernel counts keepalive in seconds.
    let fraction = timeouts.keepalive.is_some_and(|d| d.subsec_nanos() != 0);
    if let Some(value) = table.get("keepalive").filter(|_| fraction) {
        let text = value.text("a duration", report)?;
        value.error(DurationFault::Seconds(Quoted::new(text)), report);
    }
    Some(timeouts)
}

/// A duration, or `None` for `off`.
fn limit(
    table: &Table<'_>,
    key: &'static str,
    default: Option<Duration>,
    range: RangeInclusive<Duration>,
    report: &mut Report,
) -> Option<Duration> {
    table.read(key, default, |value| value.off_or(report, |v, report| v.duration(range, report)))
}

fn timeout_doubts(timeouts: &Timeouts, value: Value<'_>, report: &mut Report) {
    let Timeouts { idle, half_closed: _, lifetime, keepalive, user_timeout } = timeouts;
    if [idle, lifetime, keepalive, user_timeout].iter().all(|timeout| timeout.is_none()) {
        value.warn(Suspicion::EternalSessions, report);
    }
}

impl Listener {
    /// Whether anything needs the hello of a connection to be read. `pools` are all there are.
    pub fn reads_hello(&self, pools: &[Pool]) -> bool {
        let by_name = |pool: usize| {
            let balance = pools.get(pool).map(|pool| pool.balance);
            balance.is_some_and(|spec| spec.policy.hashes() && spec.key == KeyKind::Sni)
        };
        let needs_it = |route: &Route| {
            // The alert is for those who speak TLS.
            route.conditions.need_hello()
                || matches!(route.action, Action::Reject)
                || route.action.pools().into_iter().any(by_name)
        };
        self.preread.always || self.routes.iter().any(needs_it)
    }
}

/// What looks wrong in a valid listener and its pool.
pub(super) fn doubts(listener: &Listener, pools: &[Pool], named: &Named<'_>, report: &mut Report) {
    let by_hello = |route: &Route| route.conditions.need_hello();
    if listener.preread.on_timeout == OnTimeout::Default && listener.routes.iter().any(by_hello) {
        named.warn(Suspicion::WayAroundNames, report);
    }
    let wildcard = |a: &Address| a.ip().is_some_and(|a| a.is_ipv6() && a.ip().is_unspecified());
    if listener.v6_only && !listener.bind.iter().any(wildcard) {
        named.warn(Suspicion::UselessV6Only, report);
    }
    if listener.bind.iter().all(|address| address.ip().is_none()) {
        let asks = |route: &Route| !route.conditions.source.is_empty();
        if let Some(route) = listener.routes.iter().position(asks) {
            named.warn(Suspicion::SourceOfUnix { route }, report);
        }
    }
    let mut leads: Vec<usize> =
        listener.routes.iter().flat_map(|route| route.action.pools()).collect();
    leads.sort_unstable();
    leads.dedup();
    for pool in leads.into_iter().filter_map(|pool| pools.get(pool)) {
        pool_doubts(listener, pool, named, report);
    }
}

fn pool_doubts(listener: &Listener, pool: &Pool, named: &Named<'_>, report: &mut Report) {
    let unix = listener.bind.iter().find(|address| address.unix().is_some());
    if let Some(address) = unix.filter(|_| pool.balance.policy.hashes()) {
        let address = Quoted::new(&address.to_string());
        let policy = pool.balance.policy.name();
        named.warn(Suspicion::HashOfUnix { address, policy }, report);
    }
    for bind in &listener.bind {
        let reaches = |b: &&super::Backend| reaches(&b.address, bind);
        if let Some(backend) = pool.backends.iter().find(reaches) {
            let address = Quoted::new(&backend.address.to_string());
            named.warn(Suspicion::Circle { address }, report);
        }
    }
}

/// Whether a connection to `backend` ends up at `bind`, as far as addresses alone can tell.
fn reaches(backend: &Address, bind: &Address) -> bool {
    let local = |backend: IpAddr, bind: SocketAddr| {
        backend.is_loopback() && bind.ip().is_unspecified() && (bind.is_ipv6() || backend.is_ipv4())
    };
    match (backend.ip(), bind.ip()) {
        (Some(backend), Some(bind)) if backend.port() == bind.port() => {
            backend == bind || local(backend.ip(), bind)
        }
        (None, None) => backend == bind,
        _ => false,
    }
}
