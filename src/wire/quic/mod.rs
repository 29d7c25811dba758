//! QUIC as far as a balancer needs it: headers, the hello in a client's first packets, and the
//! connection ids that say to which server a packet belongs.
//!
//! An Initial packet is encrypted with keys that anyone can derive from its own header (RFC 9001
//! section 5.2): that keeps away who has not seen the packet, and hides nothing. What comes later is
//! encrypted for real, and a balancer reads no more of it than the connection id.

pub mod initial;
pub mod lb;
pub mod packet;

mod frames;
mod keys;
mod numbers;
mod stream;
#[cfg(test)]
mod tests;

pub use initial::InitialReader;
pub use packet::{ConnectionId, Packet, server_id_of};
