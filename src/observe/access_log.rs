//! The writer of the access log: one thread that takes records from the workers' queue.
//!
//! It writes when the queue runs empty or its buffer is full, and waits for the next message
//! without a timer. When a record has come it gathers more for a moment, so that a busy worker does
//! not pay for waking the writer, nor the writer for writing, once a record. Whatever happens to
//! the target, records are counted as dropped and workers never notice.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::access_format::encode;
use super::access_sink::Sink;
use crate::config::AccessLog;
use crate::limits::{ACCESS_LOG_BUFFER, ACCESS_LOG_GATHER, FLOOD_RECORDS_PER_SECOND};
use crate::repeat::Repeat;
use crate::state::{LogMessage, Process, Record, Termination};

/// How often a target that could not be opened is tried again, and a failure is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// Starts the thread. It ends on [`LogMessage::Finish`].
pub fn start(process: Arc<Process>, records: Receiver<LogMessage>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("access-log".to_owned())
        .spawn(move || Writer::new(process).run(&records))
}

/// Opens the target once and closes it: whether a configuration could be written to.
pub fn probe(config: &AccessLog) -> io::Result<()> {
    Sink::open(&config.target).map(drop)
}

#[derive(Debug)]
struct Writer {
    process: Arc<Process>,
    config: Option<AccessLog>,
    /// `None` without a configuration, or if its target could not be opened.
    sink: Option<Sink>,
    /// Not before then is it opened again.
    retry: Option<Instant>,
    buffer: Vec<u8>,
    /// Records in the buffer.
    buffered: u64,
    /// By termination: one of them must not hide another.
    floods: [Flood; Termination::ALL.len()],
    failures: Repeat,
}

impl Writer {
    fn new(process: Arc<Process>) -> Self {
        Writer {
            process,
            config: None,
            sink: None,
            retry: None,
            buffer: Vec::with_capacity(ACCESS_LOG_BUFFER),
            buffered: 0,
            floods: Default::default(),
            failures: Repeat::new(10 * RETRY),
        }
    }

    fn run(mut self, records: &Receiver<LogMessage>) {
        loop {
            let message = match records.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Empty) => {
                    self.flush();
                    match self.wait(records) {
                        Ok(message) => {
                            if let LogMessage::Record(_) = message {
                                // Not a wait for a message, which would be woken by each.
                                std::thread::park_timeout(ACCESS_LOG_GATHER);
                            }
                            message
                        }
                        Err(RecvTimeoutError::Timeout) => {
                            let now = Instant::now();
                            self.report_floods(|flood| flood.take(now));
                            continue;
                        }
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
                Err(TryRecvError::Disconnected) => return self.flush(),
            };
            match message {
                LogMessage::Record(record) => self.record(&record),
                LogMessage::Configure(config) => self.configure(config),
                LogMessage::Reopen => self.reopen(),
                LogMessage::Finish(done) => {
                    self.flush();
                    self.report_floods(Flood::close);
                    // Whoever asked may have stopped waiting.
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    /// Waits for a message; only while a flood is unreported also for its second to end.
    fn wait(&self, records: &Receiver<LogMessage>) -> Result<LogMessage, RecvTimeoutError> {
        match self.floods.iter().filter_map(Flood::ends).min() {
            Some(end) => records.recv_timeout(end.saturating_duration_since(Instant::now())),
            None => records.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    fn record(&mut self, record: &Record) {
        let Some(config) = &self.config else { return };
        if record.floods() {
            let admitted = self.floods[record.termination as usize].admit(Instant::now());
            if let Some(left_out) = admitted.left_out {
                warn_flood(record.termination, left_out);
            }
            if !admitted.write {
                return;
            }
        }
        encode(&mut self.buffer, record, config.format);
        self.buffered += 1;
        if self.buffer.len() >= ACCESS_LOG_BUFFER {
            self.flush();
        }
    }

    /// Says what `due` gives of each kind.
    fn report_floods(&mut self, due: impl Fn(&mut Flood) -> Option<u64>) {
        for (flood, termination) in self.floods.iter_mut().zip(Termination::ALL) {
            if let Some(left_out) = due(flood) {
                warn_flood(termination, left_out);
            }
        }
    }

    fn configure(&mut self, config: Option<AccessLog>) {
        self.flush();
        if self.config == config {
            return;
        }
        self.config = config;
        self.sink = None;
        self.retry = None;
        self.open();
    }

    /// A target that cannot be opened any more is tried again, and leaves the old one in use
    /// meanwhile: better a renamed file than none.
    fn reopen(&mut self) {
        self.flush();
        self.open();
    }

    fn open(&mut self) {
        let Some(config) = &self.config else { return };
        match Sink::open(&config.target) {
            Ok(sink) => {
                self.sink = Some(sink);
                self.retry = None;
            }
            Err(error) => {
                // Records in a file that has no name any more would be lost without a count.
                self.sink.take_if(|sink| sink.is_nameless());
                self.retry = Some(Instant::now() + RETRY);
                if let Some(suppressed) = self.failures.admit(Instant::now()) {
                    let target = &config.target;
                    tracing::error!(?target, %error, suppressed, "cannot open the access log");
                }
            }
        }
    }

    fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let due = match self.retry {
            Some(retry) => retry <= Instant::now(),
            None => self.sink.is_none(),
        };
        if due {
            self.open();
        }
        let lost = match &mut self.sink {
            Some(sink) => sink.write(&self.buffer).err().map(|lost| (lost.lines, Some(lost.error))),
            None => Some((self.buffered, None)),
        };
        self.buffer.clear();
        self.buffered = 0;
        let Some((lines, error)) = lost else { return };
        self.process.access_log_dropped.fetch_add(lines, Relaxed);
        let Some(error) = error else { return };
        if let Some(suppressed) = self.failures.admit(Instant::now()) {
            tracing::warn!(%error, lines, suppressed, "access log records lost");
        }
    }
}

fn warn_flood(termination: Termination, left_out: u64) {
    let termination = termination.name();
    tracing::warn!(termination, left_out, "a flood: access log records left out");
}

/// Bounds the records of one termination to so many a second, and counts the others.
#[derive(Debug, Default)]
struct Flood {
    /// When the second under way began.
    began: Option<Instant>,
    written: u32,
    left_out: u64,
}

/// What to do about a record of a flood.
#[derive(Debug, PartialEq, Eq)]
struct Admitted {
    write: bool,
    /// Records left out in a second that has ended.
    left_out: Option<u64>,
}

impl Flood {
    fn admit(&mut self, now: Instant) -> Admitted {
        let left_out = self.take(now);
        if self.began.is_none() {
            self.began = Some(now);
        }
        let write = self.written < FLOOD_RECORDS_PER_SECOND;
        if write {
            self.written += 1;
        } else {
            self.left_out += 1;
        }
        Admitted { write, left_out }
    }

    /// When the count of what was left out is due.
    fn ends(&self) -> Option<Instant> {
        self.began.filter(|_| self.left_out > 0).map(|began| began + Duration::from_secs(1))
    }

    /// Ends the second if it is over; what was left out in it.
    fn take(&mut self, now: Instant) -> Option<u64> {
        self.began.filter(|&began| now.saturating_duration_since(began).as_secs() >= 1)?;
        self.close()
    }

    /// Ends the second under way; what was left out in it.
    fn close(&mut self) -> Option<u64> {
        let left_out = std::mem::take(self).left_out;
        Some(left_out).filter(|&n| n > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::mpsc::channel;

    use super::super::access_format::tests::record;
    use super::*;
    use crate::config::{LogFormat, LogTarget, Protocol};

    /// A directory of this test's own, removed with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let id = format!("pointsman-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(id);
            std::fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn to(path: &Path) -> LogMessage {
        LogMessage::Configure(Some(AccessLog {
            target: LogTarget::File(path.into()),
            format: LogFormat::Text,
        }))
    }

    fn one(listener: &str) -> LogMessage {
        LogMessage::Record(Box::new(Record { listener: listener.into(), ..record() }))
    }

    /// Sends everything, ends the thread, and says how many records were dropped.
    fn write(messages: Vec<LogMessage>) -> u64 {
        let (process, inbox) = Process::new(1);
        let thread = start(process.clone(), inbox.records).unwrap();
        for message in messages {
            process.access_log.send(message).unwrap();
        }
        let (done, finished) = channel();
        process.access_log.send(LogMessage::Finish(done)).unwrap();
        finished.recv().unwrap();
        thread.join().unwrap();
        process.access_log_dropped.load(Relaxed)
    }

    fn listeners(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let name = |line: &str| line.split(" listener=").nth(1)?.split(' ').next().map(Into::into);
        text.lines().filter_map(name).collect()
    }

    #[test]
    fn records_go_where_the_configuration_says() {
        let scratch = Scratch::new("configure");
        let (a, b) = (scratch.0.join("a"), scratch.0.join("b"));
        let off = LogMessage::Configure(None);
        let messages =
            vec![one("none"), to(&a), one("x"), to(&b), one("y"), to(&a), one("z"), off, one("q")];
        assert_eq!(write(messages), 0);
        assert_eq!(listeners(&a), ["x", "z"]);
        assert_eq!(listeners(&b), ["y"]);
    }

    #[test]
    fn reopen_follows_a_rename() {
        let scratch = Scratch::new("reopen");
        let (path, old) = (scratch.0.join("log"), scratch.0.join("log.1"));
        let (process, inbox) = Process::new(1);
        let thread = start(process.clone(), inbox.records).unwrap();
        let send = |message| process.access_log.send(message).unwrap();
        send(to(&path));
        send(one("before"));
        let deadline = Instant::now() + Duration::from_secs(10);
        while listeners(&path).is_empty() {
            assert!(Instant::now() < deadline, "not flushed when the queue ran empty");
            std::thread::yield_now();
        }
        std::fs::rename(&path, &old).unwrap();
        send(LogMessage::Reopen);
        send(one("after"));
        let (done, finished) = channel();
        send(LogMessage::Finish(done));
        finished.recv().unwrap();
        thread.join().unwrap();
        assert_eq!(listeners(&old), ["before"]);
        assert_eq!(listeners(&path), ["after"]);
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        let full = Path::new("/dev/full");
        assert_eq!(write(vec![to(full), one("a"), one("b")]), 2);
        let missing = Path::new("/nonexistent/log");
        assert_eq!(write(vec![to(missing), one("a"), LogMessage::Reopen, one("b")]), 2);
    }

    #[test]
    fn flood_is_bounded_a_second_and_counted() {
        let start = Instant::now();
        let mut flood = Flood::default();
        let limit = u64::from(FLOOD_RECORDS_PER_SECOND);
        let written = (0..limit + 5).filter(|_| flood.admit(start).write).count() as u64;
        assert_eq!(written, limit);
        let second = start + Duration::from_secs(1);
        assert_eq!(flood.ends(), Some(second));
        assert_eq!(flood.take(start + Duration::from_millis(999)), None);
        assert_eq!(flood.admit(second), Admitted { write: true, left_out: Some(5) });
        assert_eq!(flood.ends(), None);
    }

    /// What costs a client nothing is left out beyond the limit, each kind by itself.
    #[test]
    fn records_of_floods_beyond_the_limit_are_left_out() {
        let limit = FLOOD_RECORDS_PER_SECOND as usize;
        let udp = |termination| Record {
            protocol: Protocol::Udp,
            backend: None,
            termination,
            ..record()
        };
        let served = Record { backend: record().backend, ..udp(Termination::IdleTimeout) };
        for (flooding, bounded) in [
            (Record { termination: Termination::Overload, ..record() }, true),
            (Record { backend: record().backend, ..udp(Termination::Limit) }, true),
            (udp(Termination::NoRoute), true),
            (udp(Termination::Rejected), true),
            (udp(Termination::NoBackend), true),
            (udp(Termination::ConnectFailed), true),
            (udp(Termination::PrereadInvalid), true),
            (udp(Termination::Shutdown), true),
            (Record { protocol: Protocol::Tcp, ..udp(Termination::NoRoute) }, false),
            (served, false),
        ] {
            let scratch = Scratch::new("flood");
            let path = scratch.0.join("log");
            let other = Record { listener: "other".into(), ..udp(Termination::PrereadTimeout) };
            let same = || LogMessage::Record(Box::new(flooding.clone()));
            let flood = (0..50 * limit).map(|_| same());
            let last = LogMessage::Record(Box::new(other));
            assert_eq!(write([to(&path)].into_iter().chain(flood).chain([last]).collect()), 0);
            let lines = listeners(&path);
            // However slow the machine, it is not fifty seconds.
            let written = if bounded { limit + 1..40 * limit } else { 50 * limit + 1..usize::MAX };
            assert!(written.contains(&lines.len()), "{flooding:?}: {}", lines.len());
            assert_eq!(lines.last().map(String::as_str), Some("other"));
        }
    }
}
