//! The comparison of policies as a table.

use std::fmt::Write as _;
use std::time::Duration;

use crate::cli::table::{Align, Table};
use crate::health::State;
use crate::simulate::report::{Change, Failure, Report};
use crate::simulate::scenario::{Load, Scenario};
use crate::simulate::units::Time;

/// Backends whose shares are listed one by one.
const SHARES: usize = 6;

/// Changes shown for a policy; `--format json` has them all.
const CHANGES: usize = 10;

pub fn render(scenario: &Scenario, reports: &[Report]) -> String {
    let mut text = said(scenario);
    let mut table = Table::new(&[
        ("POLICY", Align::Left),
        ("COMPLETED", Align::Right),
        ("FAILED", Align::Right),
        ("OPEN", Align::Right),
        ("TOTAL ms", Align::Right),
        ("MEAN ms", Align::Right),
        ("P50", Align::Right),
        ("P95", Align::Right),
        ("P99", Align::Right),
        ("MAX", Align::Right),
        ("MAX/MEAN", Align::Right),
        ("MOVED", Align::Right),
        ("SHARE %", Align::Left),
    ]);
    for report in reports {
        let none = || "-".to_owned();
        let latency = |of: fn(&crate::simulate::report::Latencies) -> Duration| {
            report.latency.as_ref().map_or_else(none, |latencies| milliseconds(of(latencies)))
        };
        table.row([
            report.policy.name().to_owned(),
            report.completed.to_string(),
            report.failures().to_string(),
            report.open.to_string(),
            milliseconds(report.elapsed),
            latency(|latencies| latencies.mean),
            latency(|latencies| latencies.p50),
            latency(|latencies| latencies.p95),
            latency(|latencies| latencies.p99),
            latency(|latencies| latencies.max),
            report.max_over_mean.map_or_else(none, |ratio| format!("{ratio:.2}")),
            report.keys_moved.map_or_else(none, percent),
            shares(report),
        ]);
    }
    text += &table.render();
    for report in reports {
        text += &events(report);
    }
    text
}

/// Of each backend, or of a large pool the least and the most.
fn shares(report: &Report) -> String {
    let percents = || report.backends.iter().map(|backend| backend.share * 100.0);
    if report.backends.len() <= SHARES {
        return percents().map(|share| format!("{share:.0}")).collect::<Vec<_>>().join("/");
    }
    let (least, most) = (percents().fold(f64::INFINITY, f64::min), percents().fold(0.0, f64::max));
    format!("{least:.1}–{most:.1}")
}

/// The scenario in a line or two.
fn said(scenario: &Scenario) -> String {
    let plural = |count: usize, word: &str| match count {
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    };
    let backends = plural(scenario.backends.len(), "backend");
    let mut text = format!("{backends} of {}", plural(scenario.slots, "slot"));
    let _ = write!(text, ", service {}, hop {}", scenario.service, Time(scenario.hop));
    match scenario.load {
        Load::Open(rate) => {
            let _ = write!(text, ", {rate}/s");
        }
        Load::Closed(clients, _) => {
            let _ = write!(text, ", {}", plural(clients, "client"));
        }
    }
    if let Some(requests) = scenario.requests {
        let _ = write!(text, ", {requests} requests");
    }
    if let Some(duration) = scenario.duration {
        let _ = write!(text, ", {}", Time(duration));
    }
    let _ = writeln!(text, ", seed {}", scenario.seed);
    match scenario.utilisation() {
        Some(load) if load >= 1.0 => {
            let _ = writeln!(
                text,
                "load {} of capacity: the queues grow as long as the run lasts",
                percent(load)
            );
        }
        Some(load) => {
            let _ = writeln!(text, "load {} of capacity", percent(load));
        }
        None => {}
    }
    text.push('\n');
    text
}

/// Why requests failed, and what checks have changed.
fn events(report: &Report) -> String {
    let failures = Failure::ALL.iter().zip(report.failed).filter(|&(_, count)| count > 0);
    let mut counts: Vec<String> =
        failures.map(|(failure, count)| format!("{} {count}", failure.name())).collect();
    if report.retries > 0 {
        counts.push(format!("retries {}", report.retries));
    }
    if counts.is_empty() && report.changes.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}: {}\n", report.policy, counts.join(", "));
    if counts.is_empty() {
        text = format!("\n{}:\n", report.policy);
    }
    for change in report.changes.iter().take(CHANGES) {
        text += &changed(change);
    }
    if let Some(more @ 1..) = report.changes.len().checked_sub(CHANGES) {
        let _ = writeln!(text, "  ... {more} more");
    }
    text
}

fn changed(change: &Change) -> String {
    let Change { at, backend, state, panic, moved } = change;
    let seconds = at.as_secs_f64();
    let mut text = format!("  {seconds:.2} s  backend {} {state}", backend + 1);
    if let Some(moved) = moved {
        let (all, others) = (percent(moved.all), percent(moved.between_others));
        let _ = write!(text, ": {all} of keys moved, {others} between the others");
    }
    if *panic && *state == State::Down {
        text += "; panic: states are ignored";
    }
    text.push('\n');
    text
}

/// With at most three digits behind the point, fewer for long times, and no zeros at the end.
pub fn milliseconds(time: Duration) -> String {
    let value = time.as_nanos() as f64 / 1e6;
    let digits = if value < 100.0 {
        3
    } else if value < 1000.0 {
        2
    } else {
        1
    };
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Of a share, with one digit behind the point.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_short() {
        for (microseconds, expected) in [
            (0, "0"),
            (200, "0.2"),
            (49_786, "49.786"),
            (100_000, "100"),
            (149_020, "149.02"),
            (149_026, "149.03"),
            (3_340_400, "3340.4"),
            (10_000_000, "10000"),
        ] {
            assert_eq!(milliseconds(Duration::from_micros(microseconds)), expected);
        }
    }
}
