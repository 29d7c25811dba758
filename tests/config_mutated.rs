//! Broken texts of all kinds: whatever the bytes, an answer with a place in the text.
//!
//! Replays the fuzzer's corpus and every configuration of `tests/data`, as they are, cut short at
//! every byte, and with every byte changed.

use std::fs;
use std::path::Path;

use pointsman::config;

/// Longer files are only replayed whole.
const MUTATED_BYTES: usize = 700;

#[test]
fn whole() {
    for text in texts(usize::MAX) {
        check(&text);
    }
}

#[test]
fn cut_short() {
    for text in texts(MUTATED_BYTES) {
        for end in 0..text.len() {
            check(&text[..end]);
        }
    }
}

#[test]
fn changed() {
    for text in texts(MUTATED_BYTES) {
        for index in 0..text.len() {
            let mut changed = text.clone();
            // One of these in turn: structure, quotes, breaks, and a flipped bit.
            let marks = b":-[]{}&*!|>'\"%@`#,?\n\r\t \0";
            changed[index] = match marks.get(index % (marks.len() + 4)) {
                Some(mark) => *mark,
                None => text[index] ^ (1 << (index % 8)),
            };
            check(&changed);
        }
    }
}

fn texts(longest: usize) -> Vec<Vec<u8>> {
    let directories =
        ["tests/fuzz/corpus/config", "tests/data/config/pass", "tests/data/config/fail", "conf"];
    let mut texts = Vec::new();
    for directory in directories {
        let before = texts.len();
        for entry in fs::read_dir(Path::new(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "txt") {
                texts.push(fs::read(path).unwrap());
            }
        }
        assert!(texts.len() > before, "{directory}");
    }
    texts.retain(|text| text.len() <= longest);
    texts
}

fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Err(errors) = config::parse(&text, "test") else { return };
    assert!(!errors.list.is_empty(), "{text:?}");
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).replace("\r\n", "\n");
    let lines: Vec<&str> = text.split(['\n', '\r']).collect();
    for error in &errors.list {
        let at = error.at.expect("only files and flags have no place");
        let line = lines.get(at.line - 1).unwrap_or_else(|| panic!("{error}: {text:?}"));
        assert!((1..=line.chars().count() + 1).contains(&at.column), "{error}: {text:?}");
    }
}
