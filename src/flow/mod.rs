//! What the UDP side remembers: flows.
//!
//! Clients choose how many there are, so all is bounded, costs the same however full it is, and
//! gives memory back after a peak. The time comes in as an argument.

pub mod key;
pub mod table;

mod clock;
mod index;
mod list;
mod slots;

pub use key::Key;
pub use table::{Flow, FlowId, Table};
