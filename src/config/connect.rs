//! How the backends of a pool are connected to.

use std::time::Duration;

use super::pool::ANY;
use super::report::Report;
use super::units::Short;
use super::value::Value;
use super::warning::Suspicion;
use super::{Connect, HedgeAfter, defaults};
use crate::limits::{ATTEMPTS_MAX, READY_MAX, RETRY_BUDGET_MAX};

/// Connections to backends that are established before anybody needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// To each backend, of each worker, up to [`READY_MAX`]; 0: none.
    pub count: u16,
    /// How long one of them is kept.
    pub max_age: Duration,
}

/// All that `connect` says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connecting {
    pub attempts: Connect,
    pub ready: Ready,
    pub replay_hello: bool,
}

pub(super) const CONNECT: &[&str] = &[
    "timeout",
    "attempts",
    "total_timeout",
    "hedge_after",
    "retry_budget",
    "ready",
    "ready_max_age",
    "replay_hello",
];

pub(super) fn connect(value: Value<'_>, report: &mut Report) -> Option<Connecting> {
    let table = value.table(CONNECT, "a map with `timeout` and `attempts`", report)?;
    let defaults = defaults::CONNECT;
    let connect = Connect {
        timeout: table.read("timeout", defaults.timeout, |v| v.duration(ANY, report)),
        attempts: table.read("attempts", defaults.attempts, |v| {
            let attempts = v.integer(1..=ATTEMPTS_MAX as u64, "a whole number", "3", report)?;
            usize::try_from(attempts).ok()
        }),
        total_timeout: table
            .read("total_timeout", defaults.total_timeout, |v| v.duration(ANY, report)),
        hedge_after: table.read("hedge_after", defaults.hedge_after, |v| hedge_after(v, report)),
        retry_budget: table.read("retry_budget", defaults.retry_budget, |v| {
            v.off_or(report, |value, report| {
                let expected = "`off` or a whole number of percent";
                let max = u64::from(RETRY_BUDGET_MAX);
                u8::try_from(value.integer(0..=max, expected, "off or 20", report)?).ok()
            })
        }),
    };
    let ready = Ready {
        count: table.read("ready", defaults::READY.count, |v| ready(v, report)),
        max_age: table.read("ready_max_age", defaults::READY.max_age, |v| v.duration(ANY, report)),
    };
    let replay_hello = table.read("replay_hello", defaults::REPLAY_HELLO, |v| v.boolean(report));
    if connect.total_timeout < connect.timeout {
        let (timeout, total) = (Short(connect.timeout), Short(connect.total_timeout));
        value.warn(Suspicion::ShortTotal { timeout, total }, report);
    }
    if let HedgeAfter::After(after) = connect.hedge_after
        && after >= connect.timeout
    {
        let (after, timeout) = (Short(after), Short(connect.timeout));
        value.warn(Suspicion::UselessHedge { after, timeout }, report);
    }
    let needs_two =
        [("hedge_after", connect.hedge_after != HedgeAfter::Off), ("replay_hello", replay_hello)];
    for (key, _) in needs_two.into_iter().filter(|(_, on)| *on && connect.attempts == 1) {
        value.warn(Suspicion::OneAttempt { key }, report);
    }
    Some(Connecting { attempts: connect, ready, replay_hello })
}

fn hedge_after(value: Value<'_>, report: &mut Report) -> Option<HedgeAfter> {
    let after = value.off_or(report, |value, report| {
        if value.text("`off`, `auto` or a duration", report)? == "auto" {
            return Some(HedgeAfter::Auto);
        }
        value.duration(ANY, report).map(HedgeAfter::After)
    })?;
    Some(after.unwrap_or(HedgeAfter::Off))
}

fn ready(value: Value<'_>, report: &mut Report) -> Option<u16> {
    let count = value.off_or(report, |value, report| {
        let expected = "`off` or a whole number";
        let count = value.integer(1..=u64::from(READY_MAX), expected, "off or 4", report)?;
        u16::try_from(count).ok()
    })?;
    Some(count.unwrap_or(0))
}
