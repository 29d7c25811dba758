//! The comparison of policies as a table.

use std::fmt::Write as _;
use std::time::Duration;

use crate::cli::table::{Align, Table};
use crate::health::State;
use crate::simulate::report::{Change, Failure, Report};
use crate::simulate::scenario::{Load, Scenario};
use crate::simulate::units::Time;

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
        ]);
    }
    text += &table.render();
    for report in reports {
        text += &events(report);
    }
    text
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

/// Without zeros at the end, at most three digits behind the point.
pub fn milliseconds(time: Duration) -> String {
    let text = format!("{:.3}", time.as_nanos() as f64 / 1e6);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Of a share, with one digit behind the point.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
