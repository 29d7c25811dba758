//! Any routes and requests: compiled, they answer as the naive model does.
//!
//! `cd tests/fuzz && cargo +nightly fuzz run route`

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../route/model.rs"]
mod model;

fuzz_target!(|bytes: &[u8]| model::check(bytes));
