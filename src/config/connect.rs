//! How the backends of a pool are connected to.

use super::pool::ANY;
use super::report::Report;
use super::units::Short;
use super::value::Value;
use super::warning::Suspicion;
use super::{Connect, HedgeAfter, defaults};
use crate::limits::{ATTEMPTS_MAX, RETRY_BUDGET_MAX};

pub(super) const CONNECT: &[&str] =
    &["timeout", "attempts", "total_timeout", "hedge_after", "retry_budget"];

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
    };
    if connect.total_timeout < connect.timeout {
        let (timeout, total) = (Short(connect.timeout), Short(connect.total_timeout));
        value.warn(Suspicion::ShortTotal { timeout, total }, report);
    }
    if connect.attempts == 1 && connect.hedge_after != HedgeAfter::Off {
        value.warn(Suspicion::HedgeWithoutAttempts, report);
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
