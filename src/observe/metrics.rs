//! `GET /metrics`: the shared counters as Prometheus text.
//!
//! Workers count in plain atomics; nothing here runs until someone scrapes. Each scrape fills a
//! recorder of its own, so that the series of what was removed disappear by themselves and no
//! label ever comes from anywhere but the configuration.

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use super::families;
use super::prometheus;
use super::readings;
use crate::snapshot::Snapshot;
use crate::state::Process;

/// A family of series: one line of the tables in [`families`], for things that read as `T`.
pub(super) struct Family<T> {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: Kind,
    /// Writes the series of one thing.
    pub emit: fn(&T, &mut Series<'_>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// One reading of something that has series, taken once a scrape so that they agree.
pub(super) trait Reading {
    /// The labels that all its series begin with.
    fn labels(&self) -> Vec<Label>;
}

/// Where a family writes the series of one reading.
pub(super) struct Series<'a> {
    recorder: &'a PrometheusRecorder,
    name: &'static str,
    kind: Kind,
    labels: &'a [Label],
}

/// Renders everything the process counts.
pub fn render(process: &Process, snapshot: &Snapshot) -> String {
    let mut text = String::new();
    publish(&mut text, families::LISTENER, &readings::listeners(process, snapshot));
    publish(&mut text, families::BACKEND, &readings::backends(process, snapshot));
    publish(&mut text, families::POOL, &readings::pools(process, snapshot));
    publish(&mut text, families::WORKER, &readings::workers(process));
    publish(&mut text, families::PROCESS, &[readings::process(process)]);
    let machine = readings::machine();
    publish(&mut text, families::MACHINE, std::slice::from_ref(&machine));

    // The exporter's counters are whole numbers.
    if let Some(seconds) = machine.cpu_seconds {
        prometheus::counter(&mut text, families::CPU_NAME, families::CPU_HELP, seconds);
    }
    // The exporter's histograms want every sample, which the data path has no time to hand over.
    let listeners = process.registry.listeners();
    for histogram in families::LISTENER_HISTOGRAMS {
        let series = listeners.iter().map(|l| (&*l.name, (histogram.read)(l)));
        prometheus::histogram(&mut text, histogram.name, histogram.help, "listener", series);
    }
    let pools = process.registry.pools();
    for histogram in families::POOL_HISTOGRAMS {
        let series = pools.iter().map(|p| (&*p.name, (histogram.read)(p)));
        prometheus::histogram(&mut text, histogram.name, histogram.help, "pool", series);
    }
    text
}

/// A recorder for each family keeps them in the order of the table, and its maps small: one for
/// all of them is slower with thousands of backends.
fn publish<T: Reading>(text: &mut String, families: &[Family<T>], readings: &[T]) {
    let labelled: Vec<_> = readings.iter().map(|reading| (reading, reading.labels())).collect();
    for &Family { name, help, kind, emit } in families {
        let recorder = PrometheusBuilder::new().build_recorder();
        let key = KeyName::from_const_str(name);
        match kind {
            Kind::Counter => recorder.describe_counter(key, None, help.into()),
            Kind::Gauge => recorder.describe_gauge(key, None, help.into()),
        }
        for (reading, labels) in &labelled {
            emit(reading, &mut Series { recorder: &recorder, name, kind, labels });
        }
        text.push_str(&recorder.handle().render());
    }
}

/// A label with a value that comes from the configuration.
pub(super) fn label(name: &'static str, value: &std::sync::Arc<str>) -> Label {
    // The exporter takes a lone backslash for the start of an escape that is already there;
    // doubled, it arrives as it was.
    if value.contains('\\') {
        return Label::new(name, value.replace('\\', "\\\\"));
    }
    Label::new(name, value.clone())
}

/// Where metrics come from; the exporter does not show it.
static METADATA: Metadata<'static> = Metadata::new("pointsman", Level::INFO, None);

impl Series<'_> {
    /// The one series of this reading.
    pub fn is(&mut self, value: u64) {
        self.put(self.labels.to_vec(), value);
    }

    /// The one series of this reading, if the value is known.
    pub fn maybe(&mut self, value: Option<u64>) {
        if let Some(value) = value {
            self.is(value);
        }
    }

    /// One of several, told apart by one more label.
    pub fn with(&mut self, name: &'static str, text: &'static str, value: u64) {
        let mut labels = Vec::with_capacity(self.labels.len() + 1);
        labels.extend_from_slice(self.labels);
        labels.push(Label::from_static_parts(name, text));
        self.put(labels, value);
    }

    /// The one series of a gauge that is not a whole number.
    pub fn ratio(&mut self, value: f64) {
        let key = Key::from_parts(self.name, self.labels.to_vec());
        self.recorder.register_gauge(&key, &METADATA).set(value);
    }

    fn put(&mut self, labels: Vec<Label>, value: u64) {
        let key = Key::from_parts(self.name, labels);
        match self.kind {
            Kind::Counter => self.recorder.register_counter(&key, &METADATA).absolute(value),
            Kind::Gauge => self.recorder.register_gauge(&key, &METADATA).set(value as f64),
        }
    }
}
#[cfg(test)]
mod tests;
