//! The comparison of policies as a table.

use std::fmt::Write as _;
use std::time::Duration;

use crate::cli::table::{Align, Table};
use crate::health::State;
use crate::health::standing::Reason;
use crate::simulate::report::{Change, Failure, Latencies, Report};
use crate::simulate::scenario::{Load, Scenario};
use crate::simulate::units::Time;

/// Backends whose shares are listed one by one.
const SHARES: usize = 6;

/// Changes shown for a policy; `--format json` has them all.
const CHANGES: usize = 10;

/// A column: its header, what it shows of a report, and whether that is worth showing.
type Column = (&'static str, fn(&Report) -> String, fn(&Report) -> bool);

/// Shown for all policies if it is worth it for one; the shares follow.
const COLUMNS: [Column; 15] = [
    ("COMPLETED", |report| report.completed.to_string(), |_| true),
    ("FAILED", |report| report.failures().to_string(), |_| true),
    ("OPEN", |report| report.open.to_string(), |_| true),
    ("TOTAL ms", |report| milliseconds(report.elapsed), |_| true),
    ("MEAN ms", |report| of(report.latency, |latency| latency.mean), |_| true),
    ("P50", |report| of(report.latency, |latency| latency.p50), |_| true),
    ("P95", |report| of(report.latency, |latency| latency.p95), |_| true),
    ("P99", |report| of(report.latency, |latency| latency.p99), |_| true),
    ("MAX", |report| of(report.latency, |latency| latency.max), |_| true),
    ("CONNECT P99", |report| of(report.connect, |connect| connect.p99), is_troubled),
    ("RETRIES", |report| report.retries.to_string(), |report| report.retries > 0),
    ("HEDGES", |report| report.hedges.to_string(), |report| report.hedges > 0),
    ("EJECTED", |report| report.ejections().to_string(), |report| report.ejections() > 0),
    ("MAX/MEAN", |report| ratio(report.max_over_mean), |_| true),
    ("MOVED", |report| report.keys_moved.map_or_else(none, percent), |_| true),
];

pub fn render(scenario: &Scenario, reports: &[Report]) -> String {
    let mut text = said(scenario);
    let shown = |column: &&Column| reports.iter().any(column.2);
    let columns: Vec<&Column> = COLUMNS.iter().filter(shown).collect();
    let headers = columns.iter().map(|column| (column.0, Align::Right));
    let headers = [("POLICY", Align::Left)].into_iter().chain(headers);
    let headers: Vec<_> = headers.chain([("SHARE %", Align::Left)]).collect();
    let mut table = Table::new(&headers);
    for report in reports {
        let cells = columns.iter().map(|column| column.1(report));
        let cells = [report.policy.name().to_owned()].into_iter().chain(cells);
        table.row(cells.chain([shares(report)]));
    }
    text += &table.render();
    for report in reports {
        text += &events(report);
    }
    text
}

fn is_troubled(report: &Report) -> bool {
    report.retries > 0 || report.hedges > 0
}

fn of(latencies: Option<Latencies>, which: fn(Latencies) -> Duration) -> String {
    latencies.map_or_else(none, |latencies| milliseconds(which(latencies)))
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(none, |ratio| format!("{ratio:.2}"))
}

fn none() -> String {
    "-".to_owned()
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

/// Why requests failed, and what happened to backends.
fn events(report: &Report) -> String {
    let failures = Failure::ALL.iter().zip(report.failed).filter(|&(_, count)| count > 0);
    let mut counts: Vec<String> =
        failures.map(|(failure, count)| format!("{} {count}", failure.name())).collect();
    if report.exhausted > 0 {
        counts.push(format!("retry budget exhausted {}", report.exhausted));
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
    let Change { at, backend, state, reason, panic, moved } = change;
    let seconds = at.as_secs_f64();
    let mut text = format!("  {seconds:.2} s  backend {} {state}{}", backend + 1, why(*reason));
    if let Some(moved) = moved.filter(|moved| moved.all > 0.0) {
        let (all, others) = (percent(moved.all), percent(moved.between_others));
        let _ = write!(text, ": {all} of keys moved, {others} between the others");
    }
    if *panic && *state != State::Up {
        text += "; panic: states are ignored";
    }
    text.push('\n');
    text
}

/// Where it is not the checks by their thresholds.
fn why(reason: Reason) -> String {
    match reason {
        Reason::Checks => String::new(),
        Reason::Ejected { causes, lasts, .. } => format!(" for {} ({causes})", Time(lasts)),
        Reason::Tried => " (a trial succeeded)".to_owned(),
        Reason::Disproved => " (a check passed)".to_owned(),
        Reason::Pardoned => " (too few are left)".to_owned(),
    }
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
