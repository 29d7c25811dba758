//! Tokio edges: listening, connecting, relaying, closing; and datagrams.

pub mod close;
pub mod connect;
pub mod datagram;
mod half;
pub mod listen;
pub mod offer;
pub mod relay;
pub mod scratch;
pub mod socket;

pub use socket::Socket;
