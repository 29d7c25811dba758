//! Any text is a configuration or a list of errors, each with a place in the text.
//!
//! `cargo +nightly fuzz run --fuzz-dir tests/fuzz config`

#![no_main]

use libfuzzer_sys::fuzz_target;
use pointsman::config::{self, Secrets};

fuzz_target!(|text: &str| match config::parse(text, "fuzz") {
    Ok(parsed) => {
        let written = serde_json::to_string(&config::effective(&parsed, Secrets::Shown))
            .expect("plain values");
        assert_eq!(config::parse(&written, "effective").expect("reads back"), parsed);
    }
    Err(errors) => {
        assert!(!errors.list.is_empty());
        for error in &errors.list {
            let at = error.at.expect("only files and flags have no place");
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            let text = text.replace("\r\n", "\n");
            let line = text.split(['\n', '\r']).nth(at.line - 1).expect("the line exists");
            assert!(at.column <= line.chars().count() + 1, "{error}");
        }
    }
});
