//! The program's own log: stderr, text or JSON, both changeable while running.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::{self, Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

use super::log_queue::Queue;
use crate::config::{Log, LogFormat, LogLevel};

/// Changes the log of a running process.
#[derive(Clone, Debug)]
pub struct LogHandle {
    level: reload::Handle<LevelFilter, Registry>,
    json: Arc<AtomicBool>,
    queue: Queue,
}

/// Why logging did not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Someone else has set it up in this process.
    #[error("logging is set up already")]
    AlreadySet,
    /// No thread could be had.
    #[error("cannot start logging: {0}")]
    Thread(#[from] io::Error),
}

/// Starts logging to stderr. Once a process.
pub fn init(log: Log) -> Result<LogHandle, LogError> {
    let queue = Queue::start(io::stderr())?;
    let (filter, level) = reload::Layer::new(level_filter(log.level));
    let json = Arc::new(AtomicBool::new(log.format == LogFormat::Json));
    let line = Line { json: json.clone(), as_text: Format::default(), as_json: json_format() };
    let output = tracing_subscriber::fmt::layer()
        .event_format(line)
        .with_ansi(io::stderr().is_terminal())
        // It would report a failed write with `eprintln!`, which panics when stderr is gone.
        .log_internal_errors(false)
        .with_writer(queue.clone());
    let subscriber = tracing_subscriber::registry().with(filter).with(output);
    subscriber.try_init().map_err(|_| LogError::AlreadySet)?;
    Ok(LogHandle { level, json, queue })
}

impl LogHandle {
    /// Waits for the lines so far to be written, but not longer than `patience`.
    pub fn flush(&self, patience: Duration) {
        self.queue.flush(patience);
    }

    /// Takes over level and format.
    pub fn set(&self, log: Log) {
        self.json.store(log.format == LogFormat::Json, Relaxed);
        // Fails only when the subscriber is gone, and then nobody logs.
        let _ = self.level.reload(level_filter(log.level));
    }
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

fn json_format() -> Format<format::Json> {
    Format::default().json().flatten_event(true).with_current_span(false).with_span_list(false)
}

/// One log line in whichever format is asked for at the moment. Time stamps are RFC 3339 in UTC.
struct Line {
    json: Arc<AtomicBool>,
    as_text: Format<format::Full>,
    as_json: Format<format::Json>,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        if self.json.load(Relaxed) {
            self.as_json.format_event(context, writer, event)
        } else {
            self.as_text.format_event(context, writer, event)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn level_and_format_change_while_running() {
        let captured = Captured::default();
        let writer = captured.clone();
        let (filter, level) = reload::Layer::new(LevelFilter::INFO);
        let json = Arc::new(AtomicBool::new(false));
        let line = Line { json: json.clone(), as_text: Format::default(), as_json: json_format() };
        let output = tracing_subscriber::fmt::layer()
            .event_format(line)
            .with_ansi(false)
            .with_writer(move || writer.clone());
        let queue = Queue::start(io::sink()).unwrap();
        let handle = LogHandle { level, json, queue };
        let subscriber = tracing_subscriber::registry().with(filter).with(output);
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!("hidden");
            tracing::info!(backend = "b1", "shown");
            handle.set(Log { level: LogLevel::Debug, format: LogFormat::Json });
            tracing::debug!(backend = "b2", "now shown");
        });
        let text = captured.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].ends_with("shown backend=\"b1\""), "{text}");
        let time = lines[0].split_whitespace().next().unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok() && time.ends_with('Z'), "{time}");
        let json: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!((&json["message"], &json["backend"]), (&"now shown".into(), &"b2".into()));
    }
}
