//! Any routes and requests: compiled, they answer as the naive model does.
//!
//! `cargo +nightly fuzz run --fuzz-dir tests/fuzz route`

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../route/model.rs"]
mod model;

fuzz_target!(|bytes: &[u8]| model::check(bytes));
