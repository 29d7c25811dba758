//! Requests one after the other, a new connection each, to a service whose instances can be restarted.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::Socket;

use super::{HeldPort, PATIENCE, pass, wait_until};

/// How long the slow requests take.
pub const SLOW: Duration = Duration::from_millis(500);

/// Answers each connection with the byte that it gets, then closes: `s` after [`SLOW`], all else at
/// once. Its port stays its own while it is stopped.
#[derive(Debug)]
pub struct Instance {
    port: HeldPort,
    running: Option<Running>,
    requests: Arc<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    open: Mutex<HashMap<usize, Arc<TcpStream>>>,
    taken: AtomicUsize,
}

#[derive(Debug)]
struct Running {
    listener: Arc<Socket>,
    acceptor: JoinHandle<()>,
}

impl Instance {
    /// One that runs.
    pub fn start() -> Self {
        let mut instance =
            Instance { port: HeldPort::new("127.0.0.1"), running: None, requests: Arc::default() };
        instance.restart();
        instance
    }

    /// As the configuration names it.
    pub fn address(&self) -> String {
        self.port.address().to_string()
    }

    /// Requests that it has taken so far; those of checks are none.
    pub fn taken(&self) -> usize {
        self.requests.taken.load(SeqCst)
    }

    /// Requests under way.
    pub fn open(&self) -> usize {
        self.requests.open.lock().unwrap().len()
    }

    /// Runs again.
    pub fn restart(&mut self) {
        let listener = Arc::new(self.port.listen());
        let requests = self.requests.clone();
        let acceptor = std::thread::spawn({
            let listener = listener.clone();
            move || {
                while let Ok((socket, _)) = listener.accept() {
                    let requests = requests.clone();
                    std::thread::spawn(move || answer(socket.into(), &requests));
                }
            }
        });
        self.running = Some(Running { listener, acceptor });
    }

    /// Stops: connections are refused from now on, and requests under way are lost.
    pub fn stop(&mut self) {
        let Some(running) = self.running.take() else { return };
        let _wakes_it = running.listener.shutdown(Shutdown::Both);
        let ended = running.acceptor.join();
        assert!(ended.is_ok() || std::thread::panicking(), "the acceptor failed");
        for stream in self.requests.open.lock().unwrap().values() {
            let _lost = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.stop();
    }
}

fn answer(stream: TcpStream, requests: &Requests) {
    let (stream, mut byte) = (Arc::new(stream), [0]);
    // A check says nothing.
    if (&*stream).read_exact(&mut byte).is_err() {
        return;
    }
    let id = requests.taken.fetch_add(1, SeqCst);
    requests.open.lock().unwrap().insert(id, stream.clone());
    if byte == *b"s" {
        pass(SLOW);
    }
    // What is lost is the client's to complain of.
    let _lost = (&*stream).write_all(&byte);
    requests.open.lock().unwrap().remove(&id);
}

/// Clients that send requests until they are told to stop.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    answered: AtomicUsize,
    failures: Mutex<Vec<String>>,
}

impl Load {
    /// So many clients of each kind, quick and slow.
    pub fn start(address: &str, quick: usize, slow: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let client = |byte: u8| {
            let (address, shared) = (address.to_owned(), shared.clone());
            std::thread::spawn(move || {
                while !shared.stop.load(SeqCst) {
                    match request(&address, byte) {
                        Ok(()) => _ = shared.answered.fetch_add(1, SeqCst),
                        Err(error) => {
                            let failure = format!("{}: {error}", char::from(byte));
                            shared.failures.lock().unwrap().push(failure);
                        }
                    }
                    // Others have the machine as well.
                    pass(Duration::from_millis(1));
                }
            })
        };
        let kinds = std::iter::repeat_n(b'q', quick).chain(std::iter::repeat_n(b's', slow));
        let clients = kinds.map(client).collect();
        Load { shared, clients }
    }

    /// Waits for so many more answers.
    pub fn wait_for(&self, more: usize) {
        let wanted = self.shared.answered.load(SeqCst) + more;
        wait_until("answers", || self.shared.answered.load(SeqCst) >= wanted);
    }

    /// Ends it when all requests under way have been answered: how many were, and what became of
    /// the others.
    pub fn stop(self) -> (usize, Vec<String>) {
        self.shared.stop.store(true, SeqCst);
        for client in self.clients {
            client.join().expect("a client");
        }
        let failures = std::mem::take(&mut *self.shared.failures.lock().unwrap());
        (self.shared.answered.load(SeqCst), failures)
    }
}

fn request(address: &str, byte: u8) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[byte])?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer == [byte] { Ok(()) } else { Err(io::Error::other(format!("answer {answer:?}"))) }
}
