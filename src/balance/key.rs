//! What hash policies hash: the exact bytes, so that every instance picks alike.

use std::net::{IpAddr, SocketAddr};

/// Which part of a connection a hash policy looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum KeyKind {
    FiveTuple,
    Source,
    SourceNet,
}

/// The addresses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// IP protocol number: 6 or 17.
    pub protocol: u8,
    /// The client's address and port.
    pub client: SocketAddr,
    /// The address and port it connected to.
    pub local: SocketAddr,
}

#[allow(unused)]
fn placeholder(_: IpAddr) {}
