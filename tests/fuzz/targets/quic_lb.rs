//! Any routable connection id is read as it was made.
//!
//! `cargo +nightly fuzz run --fuzz-dir tests/fuzz quic_lb`

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../quic/builder.rs"]
mod builder;
#[path = "../../quic/fuzz.rs"]
mod fuzz;

fuzz_target!(|bytes: &[u8]| fuzz::check_routable(bytes));
