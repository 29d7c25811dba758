//! Once a head has been read to an answer, more bytes never change it.
//!
//! `cargo +nightly fuzz run --fuzz-dir tests/fuzz http_head`

#![no_main]

use libfuzzer_sys::fuzz_target;
use pointsman::wire::http_head::{Head, read};

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes);
    for end in 0..bytes.len().min(4096) {
        let part = read(&bytes[..end]);
        assert!(part == Head::Incomplete || part == whole, "{end}: {part:?}, {whole:?}");
    }
});
