//! Any operations on a table of flows: it does as the naive model.
//!
//! `cargo +nightly fuzz run --fuzz-dir tests/fuzz flow_table`

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../flow/model.rs"]
mod model;

fuzz_target!(|bytes: &[u8]| model::check(bytes));
