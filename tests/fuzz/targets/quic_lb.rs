//! Any routable connection id is read as it was made.
//!
//! `cd tests/fuzz && cargo +nightly fuzz run quic_lb`

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../quic/builder.rs"]
mod builder;
#[path = "../../quic/fuzz.rs"]
mod fuzz;

fuzz_target!(|bytes: &[u8]| fuzz::check_routable(bytes));
