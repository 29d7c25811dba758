//! Datagrams without a protocol: clients, backends that keep what they get, and a relay that
//! changes its port.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use socket2::SockRef;

use super::wait_for;

/// How long one receive of the relay waits before it looks at the rest again.
const BEAT: Duration = Duration::from_millis(1);

/// A socket of this machine with a large receive buffer, which never waits.
#[derive(Debug)]
pub struct UdpPeer(UdpSocket);

impl Default for UdpPeer {
    fn default() -> Self {
        UdpPeer(socket())
    }
}

impl UdpPeer {
    /// Its address.
    pub fn address(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }

    /// Sends a datagram.
    pub fn send(&self, to: &str, datagram: &[u8]) {
        self.0.send_to(datagram, to).unwrap();
    }

    /// The next datagram, if one has come, and who sent it.
    pub fn next(&self) -> Option<(Vec<u8>, SocketAddr)> {
        receive(&self.0)
    }

    /// Waits for the next datagram.
    pub fn wait(&self) -> (Vec<u8>, SocketAddr) {
        wait_for("a datagram", || self.next())
    }

    /// All that have come.
    pub fn all(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.next()).map(|(datagram, _)| datagram).collect()
    }
}

/// Stands between clients and a server. To the server each client is a socket of its own here,
/// which can be another one from one moment to the next, as behind a NAT that forgets.
#[derive(Debug)]
pub struct Rebinder {
    shared: Arc<Shared>,
    port: u16,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    inner: UdpSocket,
    outer: Mutex<Outer>,
    ends: AtomicBool,
}

/// The side of the server.
#[derive(Debug)]
struct Outer {
    socket: UdpSocket,
    server: SocketAddr,
    client: Option<SocketAddr>,
    /// The client's last datagram with a short header.
    last_short: Option<Vec<u8>>,
    /// Datagrams that came to the socket in use, from the server.
    answers: usize,
}

impl Rebinder {
    /// Starts one in front of a server, for one client.
    pub fn start(server: &str) -> Self {
        let inner = socket();
        let port = inner.local_addr().unwrap().port();
        let (client, last_short, answers) = (None, None, 0);
        let server = server.parse().unwrap();
        let outer = Mutex::new(Outer { socket: socket(), server, client, last_short, answers });
        let shared = Arc::new(Shared { inner, outer, ends: AtomicBool::new(false) });
        let relay = shared.clone();
        let thread = Some(spawn(move || {
            while !relay.ends.load(Relaxed) {
                relay.turn();
            }
        }));
        Rebinder { shared, port, thread }
    }

    /// Where the client is to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address that the server sees.
    pub fn outside(&self) -> SocketAddr {
        self.shared.outer.lock().unwrap().socket.local_addr().unwrap()
    }

    /// Comes from another port from now on; what is sent to the old one is lost.
    pub fn rebind(&self) {
        let mut outer = self.shared.outer.lock().unwrap();
        (outer.socket, outer.answers) = (socket(), 0);
    }

    /// Sends to another server from now on, from another port.
    pub fn turn_to(&self, server: &str) {
        self.rebind();
        self.shared.outer.lock().unwrap().server = server.parse().unwrap();
    }

    /// The client's last datagram with a short header.
    pub fn last_short(&self) -> Vec<u8> {
        let shared = &self.shared;
        wait_for("a short header", || shared.outer.lock().unwrap().last_short.clone())
    }

    /// Datagrams from the server to the port in use.
    pub fn answers(&self) -> usize {
        self.shared.outer.lock().unwrap().answers
    }
}

impl Shared {
    fn turn(&self) {
        self.inner.set_read_timeout(Some(BEAT)).unwrap();
        self.inner.set_nonblocking(false).unwrap();
        let from_client = receive(&self.inner);
        let mut outer = self.outer.lock().unwrap();
        if let Some((datagram, client)) = from_client {
            outer.client = Some(client);
            outer.socket.send_to(&datagram, outer.server).unwrap();
            if datagram.first().is_some_and(|first| first & 0x80 == 0) {
                outer.last_short = Some(datagram);
            }
        }
        while let Some((datagram, _)) = receive(&outer.socket) {
            outer.answers += 1;
            if let Some(client) = outer.client {
                // The client may be gone.
                let _lost = self.inner.send_to(&datagram, client);
            }
        }
    }
}

impl Drop for Rebinder {
    fn drop(&mut self) {
        self.shared.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    // Without the right to more it stays at what the system allows.
    let _most = SockRef::from(&socket).set_recv_buffer_size(8 << 20);
    socket
}

fn receive(socket: &UdpSocket) -> Option<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; 65536];
    match socket.recv_from(&mut buffer) {
        Ok((count, from)) => Some((buffer[..count].to_vec(), from)),
        // What comes back from a port that is closed is no datagram.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => None,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}
