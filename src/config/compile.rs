//! The tree to a [`Config`]: the keys of the whole process, and what ties listeners to pools.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::address::parse_address;
use super::bind::Binds;
use super::document::Node;
use super::error::{Place, Problem, Quoted};
use super::pool::Used;
use super::report::Report;
use super::value::{Named, Table, Value};
use super::warning::Suspicion;
use super::{
    AccessLog, Admin, Config, Listener, Log, LogTarget, MaxConnections, Pool, Protocol, Shutdown,
    Workers, defaults, listener, pool, quic_lb, words,
};
use crate::address::Address;
use crate::limits::{DURATION_MAX, WORKERS_MAX};

pub(super) const TOP: &[&str] = &[
    "workers",
    "hash_seed",
    "admin",
    "log",
    "access_log",
    "shutdown",
    "max_connections",
    "listeners",
    "pools",
];
pub(super) const ADMIN: &[&str] = &["bind", "token_file"];
pub(super) const LOG: &[&str] = &["level", "format"];
pub(super) const ACCESS_LOG: &[&str] = &["path", "format"];
pub(super) const SHUTDOWN: &[&str] = &["delay", "grace"];

/// Reads the tree. The result means something only if the report has no error in the end.
pub(super) fn compile(root: &Node, report: &mut Report) -> Option<Config> {
    let root = Value::top(root);
    let top = root.table(TOP, "a map with `listeners` and `pools`", report)?;
    let mut binds = Binds::default();
    let admin = top.get("admin").and_then(|v| admin(v, &mut binds, report));
    let example = "an entry is `NAME: { bind: \"[::]:443\", pool: POOL }`";
    let listeners_value = section(&top, root, "listeners", example, report);
    let example = "an entry is `NAME: { backends: [...] }`";
    let pools_value = section(&top, root, "pools", example, report);
    let named_pools =
        pools_value.as_ref().map(|v| v.named("a map of pools by name", report)).unwrap_or_default();
    let mut pools: Vec<Pool> = named_pools.iter().map(|named| pool::pool(named, report)).collect();
    let by_name = listener::Pools::new(&named_pools, &pools);

    let named_listeners = listeners_value
        .as_ref()
        .map(|v| v.named("a map of listeners by name", report))
        .unwrap_or_default();
    let mut total = listener::HelloTotal::default();
    let mut listeners: Vec<Listener> = named_listeners
        .iter()
        .map(|named| listener::listener(named, &by_name, &mut binds, &mut total, report))
        .collect();
    listeners.iter_mut().for_each(|listener| listener.preread.total_bytes = total.bytes());
    for (listener, named) in listeners.iter().zip(&named_listeners) {
        quic_lb::ambiguities(listener, &pools, named, report);
    }
    let used = uses(&listeners, &pools);
    for ((pool, used), named) in pools.iter_mut().zip(&used).zip(&named_pools) {
        if used.by_udp_alone() && named.value.key("health").is_none() {
            // A check by TCP would find down what serves UDP.
            pool.health = None;
        }
    }

    let config = Config {
        workers: top.read("workers", defaults::WORKERS, |v| workers(v, report)),
        hash_seed: top.read("hash_seed", defaults::HASH_SEED, |v| {
            v.integer(0..=u64::MAX, "a whole number", "0", report)
        }),
        admin,
        log: top.read("log", defaults::LOG, |v| log(v, report)),
        access_log: top.get("access_log").and_then(|v| access_log(v, report)),
        shutdown: top.read("shutdown", defaults::SHUTDOWN, |v| shutdown(v, report)),
        max_connections: top
            .read("max_connections", defaults::MAX_CONNECTIONS, |v| max_connections(v, report)),
        listeners,
        pools,
    };
    if !report.has_errors() {
        doubts(&config, &named_listeners, &named_pools, &used, report);
    }
    Some(config)
}

/// A section that must be there.
fn section<'t>(
    top: &'t Table<'_>,
    root: Value<'_>,
    key: &'static str,
    example: &'static str,
    report: &mut Report,
) -> Option<Value<'t>> {
    let value = top.get(key);
    if top.lacks(key) {
        root.error(Problem::Missing { key, example }, report);
    }
    value
}

/// Who uses each pool.
fn uses(listeners: &[Listener], pools: &[Pool]) -> Vec<Used> {
    let mut all = vec![Used::default(); pools.len()];
    for listener in listeners {
        let reads_hello = listener.reads_hello(pools);
        for pool in listener.routes.iter().flat_map(|route| route.action.pools()) {
            let Some(used) = all.get_mut(pool) else { continue };
            match listener.protocol {
                Protocol::Udp => used.udp = true,
                Protocol::Tcp => {
                    used.tcp = true;
                    used.with_hellos |= reads_hello;
                }
            }
        }
    }
    all
}

/// What only listeners and pools together can show.
fn doubts(
    config: &Config,
    listeners: &[Named<'_>],
    pools: &[Named<'_>],
    used: &[Used],
    report: &mut Report,
) {
    for (listener, named) in config.listeners.iter().zip(listeners) {
        listener::doubts(listener, &config.pools, named, report);
    }
    for ((pool, used), named) in config.pools.iter().zip(used).zip(pools) {
        pool::doubts(pool, *used, named, report);
    }
}

fn workers(value: Value<'_>, report: &mut Report) -> Option<Workers> {
    let expected = "`auto` or a whole number";
    if value.text(expected, report)? == "auto" {
        return Some(Workers::Auto);
    }
    let count = value.integer(1..=WORKERS_MAX as u64, expected, "auto or 4", report)?;
    usize::try_from(count).ok().and_then(NonZeroUsize::new).map(Workers::Count)
}

fn max_connections(value: Value<'_>, report: &mut Report) -> Option<MaxConnections> {
    let expected = "`auto`, `off` or a whole number";
    if value.is_off() {
        return Some(MaxConnections::Off);
    }
    if value.meant_off(report) {
        return None;
    }
    if value.text(expected, report)? == "auto" {
        return Some(MaxConnections::Auto);
    }
    let count = value.integer(1..=u64::from(u32::MAX), expected, "auto or 50000", report)?;
    u32::try_from(count).ok().map(MaxConnections::Count)
}

fn admin(value: Value<'_>, binds: &mut Binds, report: &mut Report) -> Option<Admin> {
    if value.is_off() || value.meant_off(report) {
        return None;
    }
    let table = value.table(ADMIN, "`off` or a map with `bind`", report)?;
    let token_file = table.get("token_file").and_then(|v| match v.is_off() {
        true => None,
        false => path(v, "a path or `off`", report),
    });
    let Some(bind) = table.get("bind") else {
        if table.lacks("bind") {
            let example = "write `bind: 127.0.0.1:9901`";
            value.error(Problem::Missing { key: "bind", example }, report);
        }
        return None;
    };
    let text = bind.text("an address", report)?;
    match parse_address(text) {
        Ok(address) => {
            if let Err(problem) =
                binds.add(Protocol::Tcp, &address, false, Place::Line(bind.at().line))
            {
                bind.error(problem, report);
            }
            let open = address.ip().is_some_and(|ip| !ip.ip().is_loopback());
            if open && table.get("token_file").is_none_or(|v| v.is_off()) {
                bind.warn(Suspicion::AdminWithoutToken, report);
            }
            relative(bind, &address, report);
            Some(Admin { bind: address, token_file })
        }
        Err(fault) => {
            bind.error(fault, report);
            None
        }
    }
}

fn log(value: Value<'_>, report: &mut Report) -> Option<Log> {
    let table = value.table(LOG, "a map with `level` and `format`", report)?;
    Some(Log {
        level: table.read("level", defaults::LOG.level, |v| {
            v.choice("log level", &words::LOG_LEVELS, report)
        }),
        format: table.read("format", defaults::LOG.format, |v| {
            v.choice("log format", &words::LOG_FORMATS, report)
        }),
    })
}

fn access_log(value: Value<'_>, report: &mut Report) -> Option<AccessLog> {
    if value.is_off() || value.meant_off(report) {
        return None;
    }
    let table = value.table(ACCESS_LOG, "`off` or a map with `path`", report)?;
    let format = table.read("format", defaults::ACCESS_LOG_FORMAT, |v| {
        v.choice("log format", &words::LOG_FORMATS, report)
    });
    let Some(place) = table.get("path") else {
        if table.lacks("path") {
            let example = "write `path: stdout`, `stderr` or a file";
            value.error(Problem::Missing { key: "path", example }, report);
        }
        return None;
    };
    let target = match place.text("`stdout`, `stderr` or a file", report)? {
        "stdout" => LogTarget::Stdout,
        "stderr" => LogTarget::Stderr,
        _ => LogTarget::File(path(place, "`stdout`, `stderr` or a file", report)?),
    };
    Some(AccessLog { target, format })
}

/// A path of a file.
fn path(value: Value<'_>, expected: &'static str, report: &mut Report) -> Option<PathBuf> {
    let text = value.text(expected, report)?;
    let hint = match text {
        "" => "write a path, or remove the key",
        _ if text.contains('\0') => "remove the NUL",
        _ if text.ends_with('/') => "it names a directory, write a file",
        _ => {
            if !text.starts_with('/') {
                value.warn(Suspicion::RelativePath { path: Quoted::new(text) }, report);
            }
            return Some(PathBuf::from(text));
        }
    };
    value.error(Problem::Path { text: Quoted::new(text), hint }, report);
    None
}

/// Warns of a unix socket in whatever directory the process happens to start.
pub(super) fn relative(value: Value<'_>, address: &Address, report: &mut Report) {
    if let Some(path) = address.unix().filter(|path| path.is_relative()) {
        let path = Quoted::new(&path.to_string_lossy());
        value.warn(Suspicion::RelativePath { path }, report);
    }
}

fn shutdown(value: Value<'_>, report: &mut Report) -> Option<Shutdown> {
    let table = value.table(SHUTDOWN, "a map with `delay` and `grace`", report)?;
    let any = Duration::ZERO..=DURATION_MAX;
    Some(Shutdown {
        delay: table.read("delay", defaults::SHUTDOWN.delay, |v| v.duration(any.clone(), report)),
        grace: table.read("grace", defaults::SHUTDOWN.grace, |v| v.duration(any.clone(), report)),
    })
}
