//! The data plane: worker threads, each with its own runtime, listening sockets and sessions.
//! Read in this order.

mod accept;
mod account;
mod attempt;
pub mod exchange;
mod flows;
mod order;
mod place;
mod preread;
mod ready;
mod replay;
mod requests;
mod roll;
mod session;
pub mod worker;
