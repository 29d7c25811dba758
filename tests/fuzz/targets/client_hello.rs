//! Any bytes read alike however they are split, and what is accepted reads to tls-parser as to us.
//!
//! `cargo +nightly fuzz run --fuzz-dir tests/fuzz client_hello`

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../hello/fuzz.rs"]
mod fuzz;
#[path = "../../hello/oracle.rs"]
mod oracle;

fuzz_target!(|bytes: &[u8]| fuzz::check(bytes));
