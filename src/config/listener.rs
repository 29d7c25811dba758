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
use super::udp::{limits, udp};
use super::units::DurationFault;
use super::value::{Named, Table, Value};
use super::warning::Suspicion;
use super::{
    Action, Listener, OnTimeout, Pool, Preread, Protocol, Route, Timeouts, Udp, defaults, words,
};
use crate::address::Address;
use crate::balance::key::KeyKind;
use crate::limits::{
    DURATION_MAX, HELLO_MAX, HELLO_MIN, HELLOS_MAX, KEEPALIVE_MAX, USER_TIMEOUT_MAX, hello_cost,
};

pub(super) const LISTENER: &[&str] =
    &["bind", "protocol", "v6_only", "preread", "timeouts", "limits", "udp", "routes", "pool"];
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
    /// A backend of each that is a unix socket.
    unix: Vec<Option<Address>>,
}

impl<'a> Pools<'a> {
    pub(super) fn new(named: &[Named<'a>], pools: &[Pool]) -> Self {
        let names: Vec<&str> = named.iter().map(|named| named.name).collect();
        let index = names.iter().enumerate().map(|(index, name)| (*name, index)).collect();
        let unix = |pool: &Pool| {
            let mut addresses = pool.backends.iter().map(|backend| &backend.address);
            addresses.find(|address| address.unix().is_some()).cloned()
        };
        Pools { names, index, unix: pools.iter().map(unix).collect() }
    }
}

/// What the routes of a listener may say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leads<'a> {
    pub(super) pools: &'a Pools<'a>,
    /// `None` of a TCP listener.
    pub(super) udp: Option<Udp>,
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
    let protocol = protocol(&table, report);
    listener.protocol = protocol.unwrap_or(listener.protocol);
    listener.v6_only = table.read("v6_only", defaults::V6_ONLY, |v| v.boolean(report));
    // An address of who knows which protocol is in nobody's way.
    let (known, mut unknown) = (protocol.is_some(), Binds::default());
    let binds = if known { binds } else { &mut unknown };
    listener.bind = binds_of(named, &table, &listener, binds, report);
    if listener.protocol == Protocol::Udp {
        listener.timeouts = table.read("timeouts", defaults::UDP_TIMEOUTS, |v| idle(v, report));
    } else {
        listener.timeouts = table.read("timeouts", defaults::TIMEOUTS, |v| timeouts(v, report));
    }
    if protocol == Some(Protocol::Tcp) {
        only_for(Protocol::Udp, &["limits", "udp"], &table, report);
    } else {
        listener.limits = table.read("limits", defaults::LIMITS, |v| limits(v, report));
        listener.udp = table.read("udp", defaults::UDP, |v| udp(v, report));
    }
    let udp = Some(listener.udp).filter(|_| listener.protocol == Protocol::Udp);
    listener.preread = table.read("preread", defaults::PREREAD, |v| preread(v, udp, total, report));
    listener.routes = lead(named, &table, Leads { pools, udp }, report);
    let at = table.get("timeouts");
    if let Some((value, doubt)) = at.zip(timeout_doubt(&listener)) {
        value.warn(doubt, report);
    }
    listener
}

/// `None` where it is wrong, or a key that is wrong was taken for it.
fn protocol(table: &Table<'_>, report: &mut Report) -> Option<Protocol> {
    match table.get("protocol") {
        Some(value) => value.choice("protocol", &words::PROTOCOLS, report),
        None => table.lacks("protocol").then_some(Protocol::Tcp),
    }
}

/// Reports keys that listeners of another protocol have.
fn only_for(
    protocol: Protocol,
    keys: &'static [&'static str],
    table: &Table<'_>,
    report: &mut Report,
) {
    let protocol = protocol.name();
    for (key, value) in keys.iter().filter_map(|key| Some((key, table.get(key)?))) {
        value.error(Problem::KeyOfProtocol { key, protocol }, report);
    }
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
fn lead(named: &Named<'_>, table: &Table<'_>, leads: Leads<'_>, report: &mut Report) -> Vec<Route> {
    match (table.get("pool"), table.get("routes")) {
        (Some(_), Some(routes)) => {
            routes.error(Problem::TwoLeads { key: "routes", first: "pool" }, report);
            Vec::new()
        }
        (Some(pool), None) => {
            let pool = pool_index(pool, leads, report);
            pool.map(|pool| Route::unconditional(Action::Pool(pool))).into_iter().collect()
        }
        (None, Some(value)) => routes(value, leads, report),
        (None, None) => {
            if table.lacks("pool") && table.lacks("routes") {
                named.missing("pool", "name the pool its connections go to, or `routes`", report);
            }
            Vec::new()
        }
    }
}

/// `udp` of a UDP listener.
fn preread(
    value: Value<'_>,
    udp: Option<Udp>,
    total_bytes: &mut HelloTotal,
    report: &mut Report,
) -> Option<Preread> {
    let table = value.table(PREREAD, "a map of keys", report)?;
    let defaults = defaults::PREREAD;
    let hello = HELLO_MIN..=HELLO_MAX;
    let total = HELLO_MIN..=HELLOS_MAX;
    let explicit = table.get("total_bytes").and_then(|v| v.size(total, report));
    let preread = Preread {
        always: table.read("always", defaults.always, |v| {
            let always = v.boolean(report)?;
            if always && udp.is_some_and(|udp| udp.per_packet) {
                v.error(Problem::HelloPerPacket { key: "always" }, report);
            }
            Some(always)
        }),
        timeout: table.read("timeout", defaults.timeout, |v| {
            v.duration(Duration::from_millis(1)..=DURATION_MAX, report)
        }),
        max_bytes: table.read("max_bytes", defaults.max_bytes, |v| v.size(hello, report)),
        total_bytes: explicit.unwrap_or(defaults.total_bytes),
        on_timeout: table.read("on_timeout", defaults.on_timeout, |v| {
            let choice = v.choice("choice", &words::ON_TIMEOUT, report)?;
            if choice == OnTimeout::Default && udp.is_some() {
                v.error(Problem::UdpOnTimeout, report);
            }
            Some(choice)
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

/// The addresses of `listener`, as far as it has been read.
fn binds_of(
    named: &Named<'_>,
    table: &Table<'_>,
    listener: &Listener,
    binds: &mut Binds,
    report: &mut Report,
) -> Vec<Address> {
    let mut addresses = Vec::new();
    match table.get("bind") {
        Some(value) if value.is_list() => {
            for item in value.items("a list of addresses", report) {
                addresses.extend(bind(item, listener, binds, report));
            }
        }
        Some(value) => addresses.extend(bind(value, listener, binds, report)),
        None if table.lacks("bind") => {
            named.missing("bind", "write it like `bind: \"[::]:443\"`", report)
        }
        None => {}
    }
    addresses
}

fn bind(
    value: Value<'_>,
    listener: &Listener,
    binds: &mut Binds,
    report: &mut Report,
) -> Option<Address> {
    let text = value.text("an address or a list of addresses", report)?;
    let address = parse_address(text).map_err(|fault| value.error(fault, report)).ok()?;
    if listener.protocol == Protocol::Udp && address.unix().is_some() {
        value.error(Problem::UdpBind(Quoted::new(text)), report);
        return None;
    }
    let place = Place::Line(value.at().line);
    if let Err(problem) = binds.add(listener.protocol, &address, listener.v6_only, place) {
        value.error(problem, report);
    }
    relative(value, &address, report);
    Some(address)
}

pub(super) fn pool_index(
    value: Value<'_>,
    Leads { pools, udp }: Leads<'_>,
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
    let unix = index.and_then(|index| pools.unix.get(index)?.as_ref());
    if let Some(address) = unix.filter(|_| udp.is_some()) {
        let address = Quoted::new(&address.to_string());
        value.error(Problem::UdpToUnix { address }, report);
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

/// The timeouts of a UDP listener.
fn idle(value: Value<'_>, report: &mut Report) -> Option<Timeouts> {
    let table = value.table(TIMEOUTS, "a map with `idle`", report)?;
    let of_tcp = &["half_closed", "lifetime", "keepalive", "user_timeout"];
    only_for(Protocol::Tcp, of_tcp, &table, report);
    let defaults = defaults::UDP_TIMEOUTS;
    let any = Duration::from_millis(1)..=DURATION_MAX;
    Some(Timeouts { idle: limit(&table, "idle", defaults.idle, any, report), ..defaults })
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

fn timeout_doubt(listener: &Listener) -> Option<Suspicion> {
    let Timeouts { idle, half_closed: _, lifetime, keepalive, user_timeout } = listener.timeouts;
    if [idle, lifetime, keepalive, user_timeout].iter().any(|timeout| timeout.is_some()) {
        return None;
    }
    match listener.protocol {
        Protocol::Tcp => Some(Suspicion::EternalSessions),
        // Without answers to wait for, such a flow ends at once.
        Protocol::Udp if listener.udp.per_packet && listener.udp.responses == Some(0) => None,
        Protocol::Udp => Some(Suspicion::EternalFlows),
    }
}

impl Listener {
    /// Whether anything needs the hello of a connection to be read. `pools` are all there are.
    pub fn reads_hello(&self, pools: &[Pool]) -> bool {
        if self.udp.per_packet {
            return false;
        }
        let by_name = |pool: usize| pools.get(pool).is_some_and(hashes_name);
        let needs_it = |route: &Route| {
            // The alert is for those who speak TLS, and there is none over UDP.
            let alert = matches!(route.action, Action::Reject) && self.protocol == Protocol::Tcp;
            alert || route.conditions.need_hello() || route.action.pools().into_iter().any(by_name)
        };
        self.preread.always || self.routes.iter().any(needs_it)
    }

    /// The pools that its routes lead to, ascending, each once.
    pub(super) fn leads(&self) -> Vec<usize> {
        let mut leads: Vec<usize> =
            self.routes.iter().flat_map(|route| route.action.pools()).collect();
        leads.sort_unstable();
        leads.dedup();
        leads
    }
}

fn hashes_name(pool: &Pool) -> bool {
    pool.balance.policy.hashes() && pool.balance.key == KeyKind::Sni
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
    for pool in listener.leads().into_iter().filter_map(|pool| pools.get(pool)) {
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
    if listener.udp.per_packet && hashes_name(pool) {
        named.warn(Suspicion::NameHashPerPacket { pool: Quoted::new(&pool.name) }, report);
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
