//! A port that is nobody else's, whether somebody listens on it or not.

use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};

use super::wait_for;

/// Keeps others from being given the port; who sets SO_REUSEADDR may listen on it.
#[derive(Debug)]
pub struct HeldPort(Socket);

impl HeldPort {
    /// A port of the kernel's choice at this IPv4 address.
    pub fn new(ip: &str) -> Self {
        HeldPort(reusing(format!("{ip}:0").parse().unwrap()))
    }

    /// As [`HeldPort::new`], one that nobody has for UDP either. The choice is for TCP: a number
    /// that is free for UDP may be that of a connection, which keeps it beyond its end (TIME_WAIT).
    pub fn of_both(ip: &str) -> Self {
        wait_for("a port that is free for both", || {
            let port = Self::new(ip);
            UdpSocket::bind(port.address()).is_ok().then_some(port)
        })
    }

    /// `IP:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap().as_socket().unwrap()
    }

    /// Listens on it, until that is dropped.
    pub fn listen(&self) -> Socket {
        let socket = reusing(self.address());
        socket.listen(4096).unwrap();
        socket
    }
}

fn reusing(address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket
}
