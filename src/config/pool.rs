//! The section `pools`.

use std::sync::Arc;
use std::time::Duration;

use super::backend::backends;
use super::connect::connect;
use super::error::Problem;
use super::health::health;
use super::outlier::outlier;
use super::quic_lb::quic_lb;
use super::report::Report;
use super::value::{Named, Value};
use super::warning::Suspicion;
use super::{PanicThreshold, Pool, Queueing, defaults, words};
use crate::balance::{Bound, PolicyKind, Spec};
use crate::limits::{
    DURATION_MAX, MAGLEV_TABLE_MAX, QUEUE_MAX, RING_POINTS, RING_POINTS_PER_WEIGHT,
};

pub(super) const POOL: &[&str] = &[
    "balance",
    "backends",
    "health",
    "outlier",
    "panic_threshold",
    "connect",
    "slow_start",
    "on_down",
    "close_spread",
    "max_connections",
    "queue",
    "quic_lb",
];
pub(super) const BALANCE: &[&str] = &["policy", "key", "table_size", "bounded_load"];
pub(super) const QUEUE: &[&str] = &["max", "timeout"];

/// A duration that is some.
pub(super) const ANY: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=DURATION_MAX;

/// Reads one pool. The result means something only if nothing was reported.
pub(super) fn pool(named: &Named<'_>, report: &mut Report) -> Pool {
    let mut pool = Pool::new(Arc::from(named.name), Vec::new());
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
    pool.outlier = table.read("outlier", pool.outlier, |v| outlier(v, report));
    pool.panic_threshold =
        table.read("panic_threshold", pool.panic_threshold, |v| panic_threshold(v, report));
    if let Some(keys) = table.get("connect").and_then(|v| connect(v, report)) {
        pool.connect = keys.attempts;
        pool.ready = keys.ready;
        pool.replay_hello = keys.replay_hello;
    }
    pool.slow_start =
        table.read("slow_start", pool.slow_start, |v| v.off_or(report, |v, r| v.duration(ANY, r)));
    pool.on_down =
        table.read("on_down", pool.on_down, |v| v.choice("choice", &words::ON_DOWN, report));
    let spread = Duration::ZERO..=DURATION_MAX;
    pool.close_spread =
        table.read("close_spread", pool.close_spread, |v| v.duration(spread, report));
    pool.max_connections =
        table.read("max_connections", pool.max_connections, |v| max_connections(v, report));
    pool.queue = table.read("queue", pool.queue, |v| queue(v, report));
    pool.quic_lb = table.read("quic_lb", None, |v| quic_lb(v, &pool.backends, report));
    pool
}

/// Who uses a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    /// A TCP listener.
    pub tcp: bool,
    /// A UDP listener.
    pub udp: bool,
    /// A TCP listener that reads hellos.
    pub with_hellos: bool,
}

impl Used {
    /// Whether there are users, and no connection of theirs ever comes.
    pub(super) fn by_udp_alone(self) -> bool {
        self.udp && !self.tcp
    }
}

/// What looks wrong in a valid pool.
pub(super) fn doubts(pool: &Pool, used: Used, named: &Named<'_>, report: &mut Report) {
    if !used.tcp && !used.udp {
        named.warn(Suspicion::UnusedPool, report);
    }
    if used.by_udp_alone() {
        doubts_of_flows(pool, named, report);
    } else {
        doubts_of_connections(pool, used, named, report);
    }
    if let Some(value) =
        named.value.key("quic_lb").filter(|_| pool.quic_lb.is_some() && used.tcp && !used.udp)
    {
        value.warn(Suspicion::QuicLbWithoutUdp, report);
    }
    if pool.quic_lb.is_none() && pool.backends.iter().any(|b| b.server_id.is_some()) {
        named.warn(Suspicion::UselessServerId, report);
    }
    if pool.backends.iter().all(|backend| backend.weight == 0) {
        named.warn(Suspicion::ZeroWeight, report);
    }
    if pool.backends.iter().all(|backend| backend.backup) {
        named.warn(Suspicion::OnlyBackups, report);
    }
}

fn doubts_of_connections(pool: &Pool, used: Used, named: &Named<'_>, report: &mut Report) {
    if pool.replay_hello && used.tcp && !used.with_hellos {
        named.warn(Suspicion::ReplayWithoutHello, report);
    }
    if pool.replay_hello && pool.backends.len() == 1 {
        named.warn(Suspicion::ReplayToNobody, report);
    }
    if pool.queue.max > 0 && pool.backends.iter().all(|b| b.max_connections.is_none()) {
        named.warn(Suspicion::UselessQueue, report);
    }
}

/// Keys that change nothing for flows, where they say something else than by default.
fn doubts_of_flows(pool: &Pool, named: &Named<'_>, report: &mut Report) {
    let connect = pool.connect != defaults::CONNECT
        || pool.ready != defaults::READY
        || pool.replay_hello != defaults::REPLAY_HELLO;
    let changed = [
        ("connect", connect),
        ("on_down", pool.on_down != defaults::ON_DOWN),
        ("close_spread", pool.close_spread != defaults::CLOSE_SPREAD),
        ("queue", pool.queue != defaults::QUEUE),
    ];
    for (key, _) in changed.into_iter().filter(|(_, changed)| *changed) {
        if let Some(value) = named.value.key(key) {
            value.warn(Suspicion::KeyOfTcp, report);
        }
    }
    let early_close = pool.outlier.is_some_and(|outlier| outlier.early_close);
    if let Some(outlier) = named.value.key("outlier").filter(|_| early_close)
        && let Some(value) = outlier.key("early_close")
    {
        value.warn(Suspicion::KeyOfTcp, report);
    }
}

/// `Some(None)` is `off`.
pub(super) fn max_connections(value: Value<'_>, report: &mut Report) -> Option<Option<u32>> {
    value.off_or(report, |value, report| {
        let expected = "`off` or a whole number";
        let count = value.integer(1..=u64::from(u32::MAX - 1), expected, "off or 1000", report)?;
        u32::try_from(count).ok()
    })
}

fn queue(value: Value<'_>, report: &mut Report) -> Option<Queueing> {
    let defaults = defaults::QUEUE;
    if value.is_off() {
        return Some(defaults);
    }
    let table = value.table(QUEUE, "`off` or a map with `max` and `timeout`", report)?;
    let max = table.read("max", None, |v| {
        v.off_or(report, |value, report| {
            let expected = "`off` or a whole number";
            let max = value.integer(1..=u64::from(QUEUE_MAX), expected, "off or 100", report)?;
            u32::try_from(max).ok()
        })
    });
    let timeout = table.read("timeout", defaults.timeout, |v| v.duration(ANY, report));
    Some(Queueing { max: max.unwrap_or(defaults.max), timeout })
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
    value.off_or(report, |value, report| {
        let expected = "`off` or a number with at most three decimals";
        let [min, max] = [Bound::MIN, Bound::MAX].map(|b| u64::from(b.thousandths()) / 1000);
        Bound::new(value.thousandths(min..=max, expected, "1.25", report)?)
    })
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
