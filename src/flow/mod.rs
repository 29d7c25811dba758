//! What the UDP side remembers: flows, what each source has open and sends, and which backend a
//! QUIC connection id belongs to.
//!
//! Clients choose how many there are, so all three are bounded, cost the same however full they
//! are, and give memory back after a peak. All take the time as an argument.

pub mod deadlines;
pub mod ids;
pub mod key;
pub mod sources;
pub mod table;

mod clock;
mod index;
mod list;
mod slots;

pub use deadlines::Deadlines;
pub use ids::Ids;
pub use key::Key;
pub use sources::{Limits, Prefixes, Sources};
pub use table::{Flow, FlowId, Table};
