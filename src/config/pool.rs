//! The section `pools`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::address::parse_address;
use super::compile::relative;
use super::error::{Place, Problem, Quoted};
use super::health::health;
use super::report::Report;
use super::value::{Named, Value, name_problem};
use super::warning::Suspicion;
use super::{Backend, Connect, PanicThreshold, Pool, defaults, words};
use crate::address::Address;
use crate::balance::{Bound, PolicyKind, Spec};
use crate::limits::{
    ATTEMPTS_MAX, BACKENDS_PER_POOL, DURATION_MAX, MAGLEV_TABLE_MAX, RING_POINTS,
    RING_POINTS_PER_WEIGHT, WEIGHT_MAX,
};

pub(super) const POOL: &[&str] = &["balance", "backends", "health", "panic_threshold", "connect"];
pub(super) const BALANCE: &[&str] = &["policy", "key", "table_size", "bounded_load"];
pub(super) const BACKEND: &[&str] = &["name", "address", "weight"];
pub(super) const CONNECT: &[&str] = &["timeout", "attempts"];

const ANY: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=DURATION_MAX;

/// Reads one pool. The result means something only if nothing was reported.
pub(super) fn pool(named: &Named<'_>, report: &mut Report) -> Pool {
    let mut pool = Pool {
        name: Arc::from(named.name),
        balance: defaults::BALANCE,
        backends: Vec::new(),
        health: Some(defaults::HEALTH),
        panic_threshold: defaults::PANIC_THRESHOLD,
        connect: defaults::CONNECT,
    };
    let Some(table) = named.value.table(POOL, "a map with `backends`", report) else { return pool };
    let mut count = 0;
    match table.get("backends") {
        Some(value) => {
            let items = value.items("a list of backends", report);
            count = items.len();
            pool.backends = backends(value, &items, report);
        }
        None if table.lacks("backends") => {
            named.missing("backends", "write it like `backends: [10.0.0.1:443]`", report)
        }
        None => {}
    }
    let weight = pool.backends.iter().map(|backend| usize::from(backend.weight)).sum();
    pool.balance = table.read("balance", pool.balance, |v| balance(v, count, weight, report));
    pool.health = table.read("health", pool.health, |v| health(v, &pool.backends, report));
    pool.panic_threshold =
        table.read("panic_threshold", pool.panic_threshold, |v| panic_threshold(v, report));
    pool.connect = table.read("connect", pool.connect, |v| connect(v, report));
    pool
}

/// What looks wrong in a valid pool.
pub(super) fn doubts(pool: &Pool, named: &Named<'_>, report: &mut Report) {
    if pool.backends.iter().all(|backend| backend.weight == 0) {
        named.warn(Suspicion::ZeroWeight, report);
    }
}

fn backends(list: Value<'_>, items: &[Value<'_>], report: &mut Report) -> Vec<Backend> {
    if items.len() > BACKENDS_PER_POOL {
        let problem = Problem::ManyBackends { count: items.len(), max: BACKENDS_PER_POOL };
        list.error(problem, report);
        return Vec::new();
    }
    let mut addresses: HashMap<Address, usize> = HashMap::new();
    let mut names: HashMap<Arc<str>, usize> = HashMap::new();
    let mut backends = Vec::with_capacity(items.len());
    for item in items {
        let Some(backend) = backend(*item, report) else { continue };
        let line = item.at().line;
        if let Some(first) = addresses.get(&backend.address) {
            let address = Quoted::new(&backend.address.to_string());
            item.error(Problem::BackendTwice { address, first: Place::Line(*first) }, report);
        } else if let Some(first) = names.get(&backend.name) {
            let name = Quoted::new(&backend.name);
            item.error(Problem::NameTwice { name, first: *first }, report);
        } else {
            addresses.insert(backend.address.clone(), line);
            names.insert(backend.name.clone(), line);
            backends.push(backend);
        }
    }
    backends
}

/// A backend in its short form, or a map.
fn backend(value: Value<'_>, report: &mut Report) -> Option<Backend> {
    if !value.is_map() {
        let (address, text) = backend_address(value, report)?;
        return Some(Backend { name: Arc::from(text), address, weight: defaults::WEIGHT });
    }
    let table = value.table(BACKEND, "a map with `address`", report)?;
    let weight = table.read("weight", defaults::WEIGHT, |v| {
        let weight = v.integer(0..=u64::from(WEIGHT_MAX), "a whole number", "1", report)?;
        u16::try_from(weight).ok()
    });
    let address = match table.get("address") {
        Some(address) => backend_address(address, report).map(|(a, text)| (a, text.to_owned())),
        None => {
            if table.lacks("address") {
                let example = "write `address: 10.0.0.1:443`";
                value.error(Problem::Missing { key: "address", example }, report);
            }
            None
        }
    };
    let Some(name) = table.get("name") else {
        let (address, text) = address?;
        return Some(Backend { name: Arc::from(text), address, weight });
    };
    let text = name.text("a name", report)?;
    // The name that a backend has by default may be spelled out, whatever is in it.
    let own = address.as_ref().is_some_and(|(_, address)| address == text);
    if let Some(problem) = name_problem(text).filter(|_| !own) {
        name.error(problem, report);
    }
    let (address, _) = address?;
    Some(Backend { name: Arc::from(text), address, weight })
}

/// The address of a backend, and how it was written.
fn backend_address<'a>(value: Value<'a>, report: &mut Report) -> Option<(Address, &'a str)> {
    let text = value.text("an address, or a map with `address`", report)?;
    let address = match parse_address(text) {
        Ok(address) => address,
        Err(fault) => {
            value.error(fault, report);
            return None;
        }
    };
    let quoted = || Quoted::new(text);
    let problem = match address.ip() {
        Some(ip) if ip.port() == 0 => Problem::BackendPort(quoted()),
        Some(ip) if ip.ip().is_unspecified() => Problem::BackendUnspecified(quoted()),
        _ => {
            relative(value, &address, report);
            return Some((address, text));
        }
    };
    value.error(problem, report);
    None
}

/// A policy's name, or a map with its parameters. `backends` as many as the file lists, with
/// `weight` in total.
fn balance(value: Value<'_>, backends: usize, weight: usize, report: &mut Report) -> Option<Spec> {
    let spec = if value.is_map() {
        balance_map(value, backends, report)?
    } else {
        let policy = value.choice(POLICY, &words::policies(), report)?;
        Spec { policy, ..defaults::BALANCE }
    };
    let max = RING_POINTS / RING_POINTS_PER_WEIGHT;
    if spec.policy == PolicyKind::Ring && weight > max {
        value.error(Problem::RingLarge { weight, max }, report);
    }
    Some(spec)
}

const POLICY: &str = "balancing policy";

fn balance_map(value: Value<'_>, backends: usize, report: &mut Report) -> Option<Spec> {
    let table = value.table(BALANCE, "a map with `policy`", report)?;
    let Some(policy) = table.get("policy") else {
        if table.lacks("policy") {
            let example = "write `policy: maglev`";
            value.error(Problem::Missing { key: "policy", example }, report);
        }
        return None;
    };
    let policy = policy.choice(POLICY, &words::policies(), report);
    let key = table
        .read("key", defaults::BALANCE.key, |v| v.choice("hash key", &words::key_kinds(), report));
    let table_size =
        table.read("table_size", defaults::BALANCE.table_size, |v| table_size(v, backends, report));
    let bounded_load =
        table.read("bounded_load", defaults::BALANCE.bounded_load, |v| bounded_load(v, report));
    let policy = policy?;
    if let Some(key) = table.get("key").filter(|_| !policy.hashes()) {
        key.error(Problem::KeyWithoutHash { policy: policy.name() }, report);
    }
    if let Some(size) = table.get("table_size").filter(|_| policy != PolicyKind::Maglev) {
        size.error(Problem::TableWithoutMaglev { policy: policy.name() }, report);
    }
    if let Some(bound) = table.get("bounded_load").filter(|_| !policy.hashes()) {
        bound.error(Problem::BoundWithoutHash { policy: policy.name() }, report);
    }
    Some(Spec { policy, key, table_size, bounded_load })
}

/// `Some(None)` is `off`.
fn bounded_load(value: Value<'_>, report: &mut Report) -> Option<Option<Bound>> {
    if value.is_off() {
        return Some(None);
    }
    if value.meant_off(report) {
        return None;
    }
    let expected = "`off` or a number with at most three decimals";
    let [min, max] = [Bound::MIN, Bound::MAX].map(|bound| u64::from(bound.thousandths()) / 1000);
    let thousandths = value.thousandths(min..=max, expected, "1.25", report)?;
    Some(Bound::new(thousandths))
}

fn table_size(value: Value<'_>, backends: usize, report: &mut Report) -> Option<usize> {
    let size = value.integer(2..=MAGLEV_TABLE_MAX as u64, "a prime", "65537", report)?;
    let size = usize::try_from(size).ok()?;
    if !is_prime(size) {
        let next = (size..=MAGLEV_TABLE_MAX).find(|n| is_prime(*n)).unwrap_or(MAGLEV_TABLE_MAX);
        value.error(Problem::TablePrime { size, next }, report);
    } else if size < backends {
        value.error(Problem::TableSmall { size, backends }, report);
    }
    Some(size)
}

fn is_prime(n: usize) -> bool {
    n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

fn panic_threshold(value: Value<'_>, report: &mut Report) -> Option<PanicThreshold> {
    if value.is_off() {
        return Some(PanicThreshold::Off);
    }
    if value.meant_off(report) {
        return None;
    }
    let expected = "`off` or a whole number of percent";
    let percent = value.integer(0..=100, expected, "off or 50", report)?;
    u8::try_from(percent).ok().map(PanicThreshold::Percent)
}

fn connect(value: Value<'_>, report: &mut Report) -> Option<Connect> {
    let table = value.table(CONNECT, "a map with `timeout` and `attempts`", report)?;
    let defaults = defaults::CONNECT;
    Some(Connect {
        timeout: table.read("timeout", defaults.timeout, |v| v.duration(ANY, report)),
        attempts: table.read("attempts", defaults.attempts, |v| {
            let attempts = v.integer(1..=ATTEMPTS_MAX as u64, "a whole number", "3", report)?;
            usize::try_from(attempts).ok()
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes() {
        for (n, expected) in [
            (0, false),
            (1, false),
            (2, true),
            (3, true),
            (4, false),
            (9, false),
            (65_536, false),
            (65_537, true),
            (MAGLEV_TABLE_MAX, true),
        ] {
            assert_eq!(is_prime(n), expected, "{n}");
        }
    }
}
