//! How the backends of a pool are connected to.

use std::time::Duration;

use super::defaults;
use super::pool::ANY;
use super::report::Report;
use super::units::Short;
use super::value::Value;
use super::warning::Suspicion;
use crate::limits::{ATTEMPTS_MAX, READY_MAX, RETRY_BUDGET_MAX};

/// How a backend is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Of one attempt.
    pub timeout: Duration,
    /// Attempts of one connection, 1 to [`ATTEMPTS_MAX`]; on different backends while there
    /// are any.
    pub attempts: usize,
    /// Of all attempts of one connection, and the waits between them.
    pub total_timeout: Duration,
    /// When an attempt that is pending gets company.
    pub hedge_after: HedgeAfter,
    /// Attempts beyond the first, in percent of connections; `None`: however many.
    pub retry_budget: Option<u8>,
    /// Connections that each worker keeps ready to each backend, up to [`READY_MAX`]; 0: none.
    pub ready: u16,
    /// How long one of them is kept.
    pub ready_max_age: Duration,
    /// Whether a hello whose backend ends the connection without a byte goes to another one.
    pub replay_hello: bool,
}

/// When an attempt that is pending gets company.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeAfter {
    /// Never.
    Off,
    /// When it takes longer than nearly all connects of the pool lately.
    Auto,
    /// After this long.
    After(Duration),
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

pub(super) fn connect(value: Value<'_>, report: &mut Report) -> Option<Connect> {
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
        ready: table.read("ready", defaults.ready, |v| ready(v, report)),
        ready_max_age: table
            .read("ready_max_age", defaults.ready_max_age, |v| v.duration(ANY, report)),
        replay_hello: table.read("replay_hello", defaults.replay_hello, |v| v.boolean(report)),
    };
    if connect.total_timeout < connect.timeout {
        let (timeout, total) = (Short(connect.timeout), Short(connect.total_timeout));
        value.warn(Suspicion::ShortTotal { timeout, total }, report);
    }
    let needs_two = [
        ("hedge_after", connect.hedge_after != HedgeAfter::Off),
        ("replay_hello", connect.replay_hello),
    ];
    for (key, _) in needs_two.into_iter().filter(|(_, on)| *on && connect.attempts == 1) {
        value.warn(Suspicion::OneAttempt { key }, report);
    }
    Some(connect)
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
