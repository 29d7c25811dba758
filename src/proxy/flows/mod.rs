//! The UDP side of a worker: one loop over all its datagram sockets, and the flows they carry.
//!
//! ```text
//! datagram from a client → flow, or a new one: [preread] → route → pick → socket → sent on
//! datagram from a backend → its socket's flow → answered from the address the client had used
//! ```
//!
//! A flow has neither a task nor a timer nor a registration with the runtime: all sockets are in
//! one epoll instance, which the runtime watches, and flows expire from the head of a list that is
//! in order of their last datagrams. Where a datagram goes is decided while it is in the buffer
//! that all share; only those of an unfinished QUIC hello are kept.

mod attach;
mod door;
mod flow;
mod lanes;
mod loop_;
