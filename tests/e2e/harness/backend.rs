//! Scripted backends. They end when dropped, and so do their threads and connections.

use std::collections::HashMap;
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use super::stream::{Stream, bound};
use super::{PATIENCE, wait_until};

/// A backend with an address of its own.
#[derive(Debug)]
pub struct Backend {
    address: String,
    listener: Arc<Socket>,
    /// Connections that fill the backlog of [`Backend::black_hole`].
    fillers: Vec<Socket>,
    served: Option<Served>,
}

#[derive(Debug)]
struct Served {
    shared: Arc<Shared>,
    acceptor: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    stopping: AtomicBool,
    accepted: AtomicUsize,
    open: Mutex<HashMap<usize, Weak<Socket>>>,
    failures: Mutex<Vec<String>>,
}

impl Backend {
    /// The test itself takes the connections, with [`Backend::accept`].
    pub fn manual() -> Self {
        Self::listening("127.0.0.1:0")
    }

    /// As [`Backend::manual`], at this address (`IP:0` or `unix:PATH`).
    pub fn listening(address: &str) -> Self {
        let backend = Self::bound(address);
        backend.listener.listen(4096).unwrap();
        backend
    }

    /// Nobody listens, but the port is taken: connections are refused.
    pub fn refusing() -> Self {
        Self::bound("127.0.0.1:0")
    }

    /// Connections neither succeed nor fail: the backlog is full and nobody accepts.
    pub fn black_hole() -> Self {
        let mut backend = Self::bound("127.0.0.1:0");
        backend.listener.listen(0).unwrap();
        let address = backend.listener.local_addr().unwrap();
        loop {
            let filler = Socket::new(address.domain(), socket2::Type::STREAM, None).unwrap();
            if filler.connect_timeout(&address, Duration::from_millis(300)).is_err() {
                return backend;
            }
            backend.fillers.push(filler);
            assert!(backend.fillers.len() < 16, "the backlog never filled");
        }
    }

    /// Each connection is handed to `serve`, in a thread of its own, and closed when that
    /// returns. A panic in it fails the test.
    pub fn serving(serve: impl Fn(Stream) + Send + Sync + 'static) -> Self {
        let mut backend = Self::manual();
        backend.serve(serve);
        backend
    }

    /// Sends back what it receives, and FIN after FIN.
    pub fn echo() -> Self {
        Self::serving(|stream| {
            let socket = stream.socket();
            // It ends as its client ends, be it well or not.
            let _end = std::io::copy(&mut &**socket, &mut &**socket);
        })
    }

    /// Sends so many bytes of the pattern, then FIN. Its client, a health check perhaps, may leave
    /// before the end.
    pub fn source(bytes: u64) -> Self {
        Self::serving(move |mut stream| {
            while stream.sent() < bytes && stream.try_send(bytes - stream.sent()).is_ok() {}
        })
    }

    /// Takes the pattern to its end, and answers with its length as text.
    pub fn sink() -> Self {
        Self::serving(|mut stream| {
            let bytes = stream.receive_all().expect("a pattern and FIN");
            if bytes > 0 {
                stream.write(format!("{bytes}\n").as_bytes());
            }
        })
    }

    fn bound(address: &str) -> Self {
        let listener = bound(address);
        let local = listener.local_addr().unwrap();
        let address = local.as_socket().map_or_else(|| address.to_owned(), |ip| ip.to_string());
        Backend { address, listener: Arc::new(listener), fillers: Vec::new(), served: None }
    }

    /// Starts to serve what a manual backend has been left to wait.
    pub fn serve(&mut self, serve: impl Fn(Stream) + Send + Sync + 'static) {
        let (listener, shared) = (self.listener.clone(), Arc::new(Shared::default()));
        let acceptor = std::thread::spawn({
            let shared = shared.clone();
            move || accept_all(&listener, &shared, &Arc::new(serve))
        });
        self.served = Some(Served { shared, acceptor });
    }

    /// As the configuration names it.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Takes the next connection.
    pub fn accept(&self) -> Stream {
        assert!(self.readable(PATIENCE), "nobody connects to the backend");
        Stream::new(self.listener.accept().unwrap().0)
    }

    /// Whether somebody has connected whom nobody has accepted.
    pub fn has_waiting(&self) -> bool {
        self.readable(Duration::ZERO)
    }

    fn readable(&self, within: Duration) -> bool {
        let mut fds = [PollFd::new(&*self.listener, PollFlags::IN)];
        let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: 0 };
        poll(&mut fds, Some(&within)).unwrap() > 0
    }

    /// Connections that a serving backend has taken so far.
    pub fn accepted(&self) -> usize {
        self.served.as_ref().map_or(0, |served| served.shared.accepted.load(SeqCst))
    }

    /// Connections that a serving backend has open. One that its peer has seen closed is none.
    pub fn open(&self) -> usize {
        let Some(served) = &self.served else { return 0 };
        let open = served.shared.open.lock().unwrap();
        open.values().filter(|socket| socket.strong_count() > 0).count()
    }

    /// Waits until a serving backend has closed all connections.
    pub fn wait_idle(&self) {
        wait_until("the backend to be idle", || self.open() == 0);
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let Some(Served { shared, acceptor }) = self.served.take() else { return };
        shared.stopping.store(true, SeqCst);
        // Wakes who waits in accept.
        let _not_listening = self.listener.shutdown(Shutdown::Both);
        let ended = acceptor.join();
        let failures = shared.failures.lock().unwrap();
        if !std::thread::panicking() {
            assert!(ended.is_ok() && failures.is_empty(), "the backend failed: {failures:?}");
        }
    }
}

fn accept_all<F>(listener: &Socket, shared: &Arc<Shared>, serve: &Arc<F>)
where
    F: Fn(Stream) + Send + Sync + 'static,
{
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while let Ok((socket, _)) = listener.accept() {
        threads.retain(|thread| !thread.is_finished());
        let stream = Stream::new(socket);
        let id = shared.accepted.fetch_add(1, SeqCst);
        let mut open = shared.open.lock().unwrap();
        open.insert(id, Arc::downgrade(stream.socket()));
        drop(open);
        let (shared, serve) = (shared.clone(), serve.clone());
        threads.push(std::thread::spawn(move || serve_one(id, stream, &shared, &*serve)));
    }
    // The backend is being dropped: wakes whoever waits in a read or write.
    for socket in shared.open.lock().unwrap().values().filter_map(Weak::upgrade) {
        let _gone = socket.shutdown(Shutdown::Both);
    }
    for thread in threads {
        thread.join().expect("its panics are caught");
    }
}

fn serve_one(id: usize, stream: Stream, shared: &Shared, serve: &impl Fn(Stream)) {
    let outcome = catch_unwind(AssertUnwindSafe(|| serve(stream)));
    shared.open.lock().unwrap().remove(&id);
    if let Err(panic) = outcome
        && !shared.stopping.load(SeqCst)
    {
        let message = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        shared.failures.lock().unwrap().push(message.unwrap_or_default());
    }
}
