//! One end of a connection, client or backend, in the hands of a test. Every wait has a deadline.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, SockAddr, Socket, Type};

use super::PATIENCE;
use super::pattern::Pattern;

/// A blocking stream. What it sends and receives with [`Stream::send`] and [`Stream::receive`]
/// is checked byte for byte.
#[derive(Debug)]
pub struct Stream {
    socket: Arc<Socket>,
    sent: Pattern,
    received: Pattern,
}

impl Stream {
    /// Wraps a connected socket.
    pub fn new(socket: Socket) -> Self {
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        if socket.local_addr().unwrap().as_socket().is_some() {
            socket.set_tcp_nodelay(true).unwrap();
        }
        Stream { socket: Arc::new(socket), sent: Pattern::default(), received: Pattern::default() }
    }

    /// Connects to `IP:PORT` or `unix:PATH`.
    pub fn connect(address: &str) -> Self {
        Self::try_connect(address).unwrap_or_else(|error| panic!("connect {address}: {error}"))
    }

    /// As [`Stream::connect`], where it may fail.
    pub fn try_connect(address: &str) -> io::Result<Self> {
        Self::connect_with(address, |_| Ok(()))
    }

    /// Connects and is reset at once.
    pub fn expect_turned_away(address: &str) {
        match Self::try_connect(address) {
            Ok(mut stream) => stream.expect_reset(),
            // Connecting and being reset was seen as one.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }

    /// Connects from a source address, any port of it if that is 0.
    pub fn connect_from(source: SocketAddr, address: &str) -> io::Result<Self> {
        Self::connect_with(address, |socket| {
            socket.set_reuse_address(true)?;
            socket.bind(&source.into())
        })
    }

    /// Connects with a receive buffer of about `bytes`, which does not grow.
    pub fn connect_narrow(address: &str, bytes: usize) -> Self {
        Self::connect_with(address, |socket| socket.set_recv_buffer_size(bytes)).unwrap()
    }

    fn connect_with(
        address: &str,
        prepare: impl FnOnce(&Socket) -> io::Result<()>,
    ) -> io::Result<Self> {
        let address = socket_address(address);
        let socket = Socket::new(address.domain(), Type::STREAM, None)?;
        prepare(&socket)?;
        socket.connect_timeout(&address, PATIENCE)?;
        Ok(Stream::new(socket))
    }

    /// Its own address.
    pub fn local(&self) -> String {
        self.socket.local_addr().unwrap().as_socket().unwrap().to_string()
    }

    /// The address at the other end.
    pub fn remote(&self) -> SocketAddr {
        self.socket.peer_addr().unwrap().as_socket().unwrap()
    }

    /// The socket, for options and for a way to end it from elsewhere.
    pub fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// A second handle that receives while this one sends. The connection is closed with the
    /// last of them.
    pub fn other_half(&self) -> Stream {
        Stream { socket: self.socket.clone(), ..*self }
    }

    /// Sends the next `bytes` of the pattern.
    pub fn send(&mut self, bytes: u64) {
        let end = self.sent.position() + bytes;
        while self.sent.position() < end {
            self.try_send(end - self.sent.position()).expect("send");
        }
    }

    /// Sends some of the next `most` bytes of the pattern.
    pub fn try_send(&mut self, most: u64) -> io::Result<usize> {
        let written = (&*self.socket).write(self.sent.ahead(most))?;
        self.sent.pass(written);
        Ok(written)
    }

    /// Sends the pattern until nothing has gone through for `quiet`: every buffer on the way is
    /// full. Returns the bytes sent.
    pub fn send_until_stalled(&mut self, quiet: Duration) -> u64 {
        let before = self.sent.position();
        self.socket.set_nonblocking(true).unwrap();
        let mut last = Instant::now();
        while last.elapsed() < quiet {
            match self.try_send(u64::MAX) {
                Ok(_) => last = Instant::now(),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => super::pass(quiet / 100),
                Err(e) => panic!("send: {e}"),
            }
        }
        self.socket.set_nonblocking(false).unwrap();
        self.sent.position() - before
    }

    /// Bytes of the pattern sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.position()
    }

    /// Sends while it receives, so many bytes of the pattern each way.
    pub fn exchange(&mut self, send: u64, receive: u64) {
        let mut sending = self.other_half();
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || {
                sending.send(send);
                sending.sent
            });
            self.receive(receive);
            self.sent = sending.join().expect("sending");
        });
    }

    /// Bytes sent that the other end's kernel has not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        pointsman::sys::socket::unacknowledged(&*self.socket).unwrap() as u64
    }

    /// Whether the connection is gone in both directions, told without reading.
    pub fn is_broken(&self) -> bool {
        let mut fds = [PollFd::new(&*self.socket, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    /// Whether FIN or RST has come, told without reading.
    pub fn is_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&*self.socket, PollFlags::RDHUP)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    /// Bytes of the pattern received so far.
    pub fn received(&self) -> u64 {
        self.received.position()
    }

    /// Receives exactly the next `bytes` of the pattern.
    pub fn receive(&mut self, bytes: u64) {
        self.try_receive(bytes).unwrap_or_else(|error| panic!("receive {bytes} bytes: {error}"));
    }

    /// As [`Stream::receive`], where the connection may end early.
    pub fn try_receive(&mut self, bytes: u64) -> io::Result<()> {
        let mut buffer = vec![0; 256 * 1024];
        let mut left = bytes;
        while left > 0 {
            let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = (&*self.socket).read(&mut buffer[..most])?;
            if read == 0 {
                return Err(io::Error::other(format!("end of stream, {left} bytes missing")));
            }
            self.received.check(&buffer[..read]);
            left -= read as u64;
        }
        Ok(())
    }

    /// Receives the pattern to its end; the error if that is not FIN.
    pub fn receive_all(&mut self) -> io::Result<u64> {
        let before = self.received.position();
        let mut buffer = vec![0; 256 * 1024];
        loop {
            match (&*self.socket).read(&mut buffer)? {
                0 => return Ok(self.received.position() - before),
                read => self.received.check(&buffer[..read]),
            }
        }
    }

    /// Sends bytes of one's own.
    pub fn write(&mut self, bytes: &[u8]) {
        (&*self.socket).write_all(bytes).expect("write");
    }

    /// Receives exactly as many bytes of the other's own.
    pub fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        (&*self.socket).read_exact(&mut buffer).expect("read");
        buffer
    }

    /// Receives until the other end finishes.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut buffer = Vec::new();
        (&*self.socket).read_to_end(&mut buffer).expect("read to end");
        buffer
    }

    /// Sends FIN.
    pub fn finish(&self) {
        self.socket.shutdown(Shutdown::Write).expect("shutdown");
    }

    /// Closes by RST. Other halves must be gone.
    pub fn reset(self) {
        assert_eq!(Arc::strong_count(&self.socket), 1, "the other half is still open");
        self.socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// The next thing is FIN.
    pub fn expect_end(&mut self) {
        match (&*self.socket).read(&mut [0]) {
            Ok(0) => {}
            other => panic!("instead of FIN: {other:?}"),
        }
    }

    /// The next thing is RST.
    pub fn expect_reset(&mut self) {
        match (&*self.socket).read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("instead of RST: {other:?}"),
        }
    }
}

/// Reads `IP:PORT` or `unix:PATH`.
pub fn socket_address(text: &str) -> SockAddr {
    match text.strip_prefix("unix:") {
        Some(path) => SockAddr::unix(path).unwrap(),
        None => text.parse::<SocketAddr>().unwrap().into(),
    }
}

/// A socket bound to `address`, not listening yet.
pub fn bound(address: &str) -> Socket {
    let address = socket_address(address);
    let domain: Domain = address.domain();
    let socket = Socket::new(domain, Type::STREAM, None).unwrap();
    socket.bind(&address).unwrap();
    socket
}
