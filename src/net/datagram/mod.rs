//! Datagrams: a worker's sockets towards clients and backends.
//!
//! ```text
//! client → Listening::receive → Arrival { client, local, train } → Upstream::send_train → backend
//! client ← Listening::send_train ← Train ← Upstream::receive ← backend
//! client ← Listening::send_many ← Reply ← Upstream::receive_single ← backend
//! ```
//!
//! A [`Batch`] of a worker holds what the last receive brought, as [`Train`]s: one datagram each
//! where traffic is light, and where it is not what can be sent on by one system call.

pub mod bind;
mod listening;
mod train;
mod trouble;
mod upstream;

#[cfg(test)]
mod tests;

pub use listening::{Arrival, Listening, Reply};
pub use train::{Train, Trains};
pub use trouble::Trouble;
pub use upstream::Upstream;

pub use crate::sys::datagram::receive::Batch;
