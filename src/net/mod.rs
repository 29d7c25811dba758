//! Tokio edges: listening, connecting, relaying, closing.

pub mod close;
pub mod connect;
mod half;
pub mod listen;
pub mod offer;
pub mod relay;
pub mod scratch;
pub mod socket;

pub use socket::Socket;
