//! UDP: backends that answer, record or are silent, and clients.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::PATIENCE;

/// Room for the largest datagram.
const ROOM: usize = 1 << 16;

/// How often a backend looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes that a socket of the tests may have waiting: what is lost is to be lost elsewhere.
const BUFFER: usize = 8 << 20;

/// A datagram as a backend got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub from: SocketAddr,
    /// What it said.
    pub bytes: Vec<u8>,
}

/// A backend at a port of its own, with a thread that ends when it is dropped.
#[derive(Debug)]
pub struct UdpBackend {
    address: SocketAddr,
    socket: Arc<UdpSocket>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopping: AtomicBool,
    count: AtomicUsize,
    received: Mutex<Vec<Received>>,
}

impl UdpBackend {
    /// Answers each datagram with its name, a colon, and what it got.
    pub fn echo(name: &str) -> Self {
        Self::named("127.0.0.1:0", name)
    }

    /// As [`UdpBackend::echo`], at this address.
    pub fn named(address: &str, name: &str) -> Self {
        let name = format!("{name}:").into_bytes();
        Self::serving(address, false, move |socket, bytes, from| {
            answer(socket, &[&name, bytes].concat(), from);
        })
    }

    /// Sends back each datagram as it is.
    pub fn mirror() -> Self {
        Self::mirror_at("127.0.0.1:0")
    }

    /// As [`UdpBackend::mirror`], at this address.
    pub fn mirror_at(address: &str) -> Self {
        Self::serving(address, false, answer)
    }

    /// Sends back what begins with "ask", and says nothing to the rest.
    pub fn choosy(address: &str) -> Self {
        Self::serving(address, false, |socket, bytes, from| {
            if bytes.starts_with(b"ask") {
                answer(socket, bytes, from);
            }
        })
    }

    /// Records what it gets, and says nothing.
    pub fn sink() -> Self {
        Self::serving("127.0.0.1:0", true, |_, _, _| {})
    }

    /// Nobody has the socket, but its port is taken: datagrams are refused.
    pub fn refusing() -> Self {
        let backend = Self::echo("refusing");
        backend.close();
        backend
    }

    /// Each datagram is handed to `serve`, with who sent it; recorded before that if `records`.
    pub fn serving(
        address: &str,
        records: bool,
        mut serve: impl FnMut(&UdpSocket, &[u8], SocketAddr) + Send + 'static,
    ) -> Self {
        let socket = Arc::new(bound(&chosen(address), LOOK));
        let shared = Arc::new(Shared::default());
        let thread = std::thread::spawn({
            let (socket, shared) = (socket.clone(), shared.clone());
            move || {
                let mut room = vec![0; ROOM];
                while !shared.stopping.load(SeqCst) {
                    let Ok((length, from)) = socket.recv_from(&mut room) else { continue };
                    let bytes = &room[..length];
                    if records {
                        let received = Received { from, bytes: bytes.to_vec() };
                        shared.received.lock().unwrap().push(received);
                    }
                    // By the time that somebody has the answer, the question is counted.
                    shared.count.fetch_add(1, SeqCst);
                    serve(&socket, bytes, from);
                }
            }
        });
        let address = socket.local_addr().unwrap();
        UdpBackend { address, socket, shared, thread: Some(thread) }
    }

    /// As the configuration names it.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Datagrams are refused from now on, as if nobody had the port; nobody else is given it.
    pub fn close(&self) {
        // A socket that is connected takes datagrams of its peer only. Its peer is itself.
        self.socket.connect(self.address).unwrap();
    }

    /// Datagrams are taken again.
    pub fn open(&self) {
        rustix::net::connect_unspec(&self.socket).unwrap();
        assert_eq!(self.socket.local_addr().unwrap(), self.address);
    }

    /// How many datagrams it has taken so far.
    pub fn count(&self) -> usize {
        self.shared.count.load(SeqCst)
    }

    /// What one that records has taken so far.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// Sends something that nobody has asked for.
    pub fn send(&self, bytes: &[u8], to: SocketAddr) {
        answer(&self.socket, bytes, to);
    }
}

impl Drop for UdpBackend {
    fn drop(&mut self) {
        self.shared.stopping.store(true, SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(ended.is_some_and(|ended| ended.is_ok()), "the backend failed");
        }
    }
}

/// A client: a socket that takes answers from the address it sends to, and from no other.
#[derive(Debug)]
pub struct UdpClient(UdpSocket);

impl UdpClient {
    /// One at a port of the kernel's choice.
    pub fn to(address: &str) -> Self {
        let to: SocketAddr = address.parse().unwrap();
        Self::from(if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }, address)
    }

    /// One at this address.
    pub fn from(own: &str, address: &str) -> Self {
        let socket = bound(own, PATIENCE);
        socket.connect(address).unwrap();
        UdpClient(socket)
    }

    /// The socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.0
    }

    /// Its own address.
    pub fn local(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }

    /// Sends a datagram.
    pub fn send(&self, bytes: impl AsRef<[u8]>) {
        // What ICMP has told of one before is an error of the next, which is not sent.
        let sent = self.0.send(bytes.as_ref()).or_else(|_| self.0.send(bytes.as_ref()));
        assert_eq!(sent.unwrap(), bytes.as_ref().len());
    }

    /// Takes the next datagram, which must come.
    pub fn receive(&self) -> Vec<u8> {
        self.try_receive(PATIENCE).expect("a datagram")
    }

    /// Takes the next datagram if one comes in this time.
    pub fn try_receive(&self, within: Duration) -> Option<Vec<u8>> {
        self.0.set_read_timeout(Some(within)).unwrap();
        let mut room = vec![0; ROOM];
        let length = self.0.recv(&mut room).ok()?;
        room.truncate(length);
        Some(room)
    }

    /// Sends a text, and takes the answer.
    pub fn ask(&self, text: &str) -> String {
        self.send(text);
        String::from_utf8(self.receive()).unwrap()
    }

    /// Asks, and holds the answer to be that of an echo; the echo's name.
    pub fn backend(&self, text: &str) -> String {
        let answer = self.ask(text);
        let (name, rest) = answer.split_once(':').unwrap_or_else(|| panic!("{answer:?}"));
        assert_eq!(rest, text);
        name.to_owned()
    }

    /// Asks until there is an answer of an echo: over UDP what is lost is asked again. Its name.
    pub fn insist(&self, text: &str) -> String {
        super::wait_for("an answer", || {
            self.send(text);
            let answer = String::from_utf8(self.try_receive(Duration::from_millis(100))?).unwrap();
            let (name, rest) = answer.split_once(':')?;
            (rest == text).then(|| name.to_owned())
        })
    }
}

/// The address with a port of the kernel's choice where it has none. Only a port that was asked for
/// outlives [`UdpBackend::close`].
fn chosen(address: &str) -> String {
    super::wait_for("a free port", || {
        let local = UdpSocket::bind(address).unwrap().local_addr().unwrap().to_string();
        UdpSocket::bind(&local).is_ok().then_some(local)
    })
}

fn bound(address: &str, timeout: Duration) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    let _granted = pointsman::sys::datagram::set_receive_buffer(&socket, BUFFER).unwrap();
    socket.set_read_timeout(Some(timeout)).unwrap();
    socket
}

fn answer(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) {
    match socket.send_to(bytes, to) {
        Ok(sent) => assert_eq!(sent, bytes.len()),
        // It has just been closed, or whom it answers is gone.
        Err(error) => assert_ne!(error.kind(), io::ErrorKind::InvalidInput, "{error}"),
    }
}

/// A configuration with the UDP listener `edge` and its pool `pool` without checks, as
/// [`super::one_listener`] makes it.
pub fn one_udp_listener(listener: &str, backends: &[&UdpBackend], pool: &str) -> String {
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address()).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let listener = if listener.is_empty() { String::new() } else { format!(", {listener}") };
    super::one_listener(&format!("protocol: udp{listener}"), &addresses, pool)
}
