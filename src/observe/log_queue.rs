//! Lines of the program's log on their way to stderr: a bounded queue and a thread of its own, so
//! that a stderr that nobody reads stops neither control nor a worker.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use crate::limits::LOG_QUEUE;

/// Takes lines, and drops and counts those that find the queue full.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    messages: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// The sender hears when everything before it has been written.
    Flush(Sender<()>),
}

impl Queue {
    /// Starts the thread that writes to `output`; it ends with the last queue.
    pub fn start(output: impl Write + Send + 'static) -> io::Result<Queue> {
        let (messages, received) = sync_channel(LOG_QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let queue = Queue { messages, lost: lost.clone() };
        let thread = std::thread::Builder::new().name("log".to_owned());
        thread.spawn(move || write(&received, &lost, output))?;
        Ok(queue)
    }

    /// Waits for what is queued to be written, but not longer than `patience`.
    pub fn flush(&self, patience: Duration) {
        let (done, written) = mpsc::channel();
        if self.messages.try_send(Message::Flush(done)).is_ok() {
            // There is nobody left to tell that the last lines were not written.
            let _late = written.recv_timeout(patience);
        }
    }
}

fn write(received: &Receiver<Message>, lost: &AtomicU64, mut output: impl Write) {
    for message in received {
        // What cannot be written to stderr cannot be reported anywhere.
        let _unwritten = match message {
            Message::Line(line) => output.write_all(&line),
            Message::Flush(done) => done.send(()).or(Ok(())),
        };
        let missing = lost.swap(0, Relaxed);
        if missing > 0 {
            let _unwritten = writeln!(output, "{missing} log lines lost: stderr took no more");
        }
    }
}

/// One line under construction; sent when dropped.
#[derive(Debug)]
pub(super) struct Line {
    queue: Queue,
    bytes: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { queue: self.clone(), bytes: Vec::new() }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = std::mem::take(&mut self.bytes);
        if !line.is_empty() && self.queue.messages.try_send(Message::Line(line)).is_err() {
            self.queue.lost.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Takes nothing before it is told to.
    struct Gate(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // A closed channel leaves the gate open.
            let _open = self.0.recv();
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_output_holds_nobody_up_and_losses_are_told() {
        let (open, gate) = mpsc::channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let queue = Queue::start(Gate(gate, written.clone())).unwrap();
        for number in 0..2 * LOG_QUEUE {
            writeln!(queue.make_writer(), "{number}").unwrap();
        }
        queue.flush(Duration::from_millis(1));
        drop(open);
        let numbers =
            |text: &str| text.lines().filter(|line| line.parse::<usize>().is_ok()).count();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        let text = loop {
            let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
            if text.contains(" log lines lost") && numbers(&text) >= LOG_QUEUE {
                break text;
            }
            assert!(std::time::Instant::now() < deadline, "{} lines", numbers(&text));
            queue.flush(Duration::from_millis(10));
        };
        assert!(numbers(&text) <= LOG_QUEUE + 1, "{}", numbers(&text));
    }
}
