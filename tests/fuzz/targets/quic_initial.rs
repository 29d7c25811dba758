//! Whatever a client sends, its opening is read as what it sent, or not at all.
//!
//! `cd tests/fuzz && cargo +nightly fuzz run quic_initial`

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../quic/builder.rs"]
mod builder;
#[path = "../../quic/fuzz.rs"]
mod fuzz;

fuzz_target!(|bytes: &[u8]| fuzz::check_flight(bytes));
