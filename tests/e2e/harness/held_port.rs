//! A port that is nobody else's, whether somebody listens on it or not.

use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

/// Keeps others from being given the port; who sets SO_REUSEADDR may listen on it.
#[derive(Debug)]
pub struct HeldPort(Socket);

impl HeldPort {
    /// A port of the kernel's choice at this IPv4 address.
    pub fn new(ip: &str) -> Self {
        HeldPort(reusing(format!("{ip}:0").parse().unwrap()))
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
