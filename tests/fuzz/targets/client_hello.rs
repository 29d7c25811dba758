//! Any bytes read alike however they are split, and what is accepted reads to tls-parser as to us.
//!
//! `cd tests/fuzz && cargo +nightly fuzz run client_hello`

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../hello/fuzz.rs"]
mod fuzz;
#[path = "../../hello/oracle.rs"]
mod oracle;

fuzz_target!(|bytes: &[u8]| fuzz::check(bytes));
