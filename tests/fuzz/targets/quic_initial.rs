//! Whatever a client sends, its opening is read as what it sent, or not at all.
//!
//! `cargo +nightly fuzz run --fuzz-dir tests/fuzz quic_initial`

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../quic/builder.rs"]
mod builder;
#[path = "../../quic/fuzz.rs"]
mod fuzz;

fuzz_target!(|bytes: &[u8]| fuzz::check_flight(bytes));
