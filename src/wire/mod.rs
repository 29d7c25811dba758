//! Bytes in, values out: what pointsman reads from the wire. No socket, no clock, and nothing here
//! trusts a length that it has not checked.

pub mod alert;
pub mod alpn;
pub mod client_hello;
pub mod host_name;
pub mod http_head;
pub mod quic;

mod cursor;

pub use alpn::Alpn;
pub use client_hello::ClientHello;
