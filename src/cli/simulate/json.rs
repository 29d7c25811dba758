//! Answers for programs. Keys are only ever added.

use std::time::Duration;

use serde::Serialize;

use crate::health::State;
use crate::health::standing::Reason;
use crate::simulate::report::{Failure, Latencies, Report};
use crate::simulate::scenario::{Load, Scenario};

/// What was simulated and what came of it; times in milliseconds, shares from 0 to 1, backends by
/// their number.
#[derive(Debug, Serialize)]
pub struct Answer {
    scenario: Said,
    policies: Vec<Policy>,
}

#[derive(Debug, Serialize)]
struct Said {
    backends: usize,
    slots: usize,
    hop_ms: f64,
    service: String,
    rate: Option<f64>,
    clients: Option<usize>,
    think: Option<String>,
    requests: Option<u64>,
    duration_ms: Option<f64>,
    utilisation: Option<f64>,
    seed: u64,
}

#[derive(Debug, Serialize)]
struct Policy {
    policy: &'static str,
    offered: u64,
    completed: u64,
    failed: u64,
    failures: Failures,
    open: u64,
    retries: u64,
    hedges: u64,
    budget_exhausted: u64,
    ejections: u64,
    total_ms: f64,
    latency_ms: Option<Percentiles>,
    connect_ms: Option<Percentiles>,
    max_over_mean: Option<f64>,
    keys_moved: Option<f64>,
    backends: Vec<Backend>,
    changes: Vec<Change>,
    column_ms: f64,
}

#[derive(Debug, Serialize)]
struct Failures {
    no_backend: u64,
    connect_failed: u64,
    lost: u64,
    overload: u64,
}

#[derive(Debug, Serialize)]
struct Percentiles {
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    max: f64,
}

#[derive(Debug, Serialize)]
struct Backend {
    backend: usize,
    weight: u16,
    picked: u64,
    share: f64,
    completed: u64,
    connect_failures: u64,
    most_active: u32,
    ejections: u64,
    /// Mean of what was under way, by column.
    load: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Change {
    at_ms: f64,
    backend: usize,
    state: &'static str,
    reason: &'static str,
    ejected_for_ms: Option<f64>,
    panic: bool,
    keys_moved: Option<f64>,
    keys_moved_between_others: Option<f64>,
}

impl Answer {
    pub fn new(scenario: &Scenario, reports: &[Report]) -> Answer {
        let (rate, clients, think) = match scenario.load {
            Load::Open(rate) => (Some(rate), None, None),
            Load::Closed(clients, think) => (None, Some(clients), Some(think.to_string())),
        };
        let scenario = Said {
            backends: scenario.backends.len(),
            slots: scenario.slots,
            hop_ms: ms(scenario.hop),
            service: scenario.service.to_string(),
            rate,
            clients,
            think,
            requests: scenario.requests,
            duration_ms: scenario.duration.map(ms),
            utilisation: scenario.utilisation(),
            seed: scenario.seed,
        };
        Answer { scenario, policies: reports.iter().map(Policy::new).collect() }
    }
}

impl Policy {
    fn new(report: &Report) -> Policy {
        let failed = |failure: Failure| report.failed[failure as usize];
        Policy {
            policy: report.policy.name(),
            offered: report.offered,
            completed: report.completed,
            failed: report.failures(),
            failures: Failures {
                no_backend: failed(Failure::NoBackend),
                connect_failed: failed(Failure::Connect),
                lost: failed(Failure::Lost),
                overload: failed(Failure::Overload),
            },
            open: report.open,
            retries: report.retries,
            hedges: report.hedges,
            budget_exhausted: report.exhausted,
            ejections: report.ejections(),
            total_ms: ms(report.elapsed),
            latency_ms: report.latency.map(Percentiles::new),
            connect_ms: report.connect.map(Percentiles::new),
            max_over_mean: report.max_over_mean,
            keys_moved: report.keys_moved,
            backends: backends(report),
            changes: report.changes.iter().map(Change::new).collect(),
            column_ms: ms(report.load.width),
        }
    }
}

fn backends(report: &Report) -> Vec<Backend> {
    let rows = report.backends.iter().zip(&report.load.backends).enumerate();
    rows.map(|(index, (backend, load))| Backend {
        backend: index + 1,
        weight: backend.weight,
        picked: backend.picked,
        share: backend.share,
        completed: backend.completed,
        connect_failures: backend.refused,
        most_active: backend.most_active,
        ejections: backend.ejections,
        load: load.clone(),
    })
    .collect()
}

impl Percentiles {
    fn new(latencies: Latencies) -> Percentiles {
        let Latencies { mean, p50, p95, p99, max } = latencies;
        Percentiles { mean: ms(mean), p50: ms(p50), p95: ms(p95), p99: ms(p99), max: ms(max) }
    }
}

impl Change {
    fn new(change: &crate::simulate::report::Change) -> Change {
        let (reason, ejected_for) = match change.reason {
            Reason::Checks => ("checks", None),
            Reason::Ejected { lasts, .. } => ("failures", Some(lasts)),
            Reason::Tried => ("trials", None),
            Reason::Disproved => ("disproved", None),
            Reason::Pardoned => ("pardoned", None),
        };
        Change {
            at_ms: ms(change.at),
            backend: change.backend + 1,
            state: State::name(change.state),
            reason,
            ejected_for_ms: ejected_for.map(ms),
            panic: change.panic,
            keys_moved: change.moved.map(|moved| moved.all),
            keys_moved_between_others: change.moved.map(|moved| moved.between_others),
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// With a line break at the end.
pub fn pretty(answer: &impl Serialize) -> anyhow::Result<String> {
    let mut text = serde_json::to_string_pretty(answer)?;
    text.push('\n');
    Ok(text)
}
