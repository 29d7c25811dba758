//! Configurations that must pass, and those that must fail with exactly the message beside them.
//!
//! `BLESS=1 cargo nextest run --test config` writes the messages; read the diff before it lands.

use std::fs;
use std::path::{Path, PathBuf};

use pointsman::config::{self, Secrets};

const DIRECTORY: &str = "tests/data/config";

#[test]
fn pass() {
    for path in files("pass") {
        let checked = config::check_file(&path)
            .unwrap_or_else(|errors| panic!("{} must pass:\n{errors}", path.display()));
        let warnings: Vec<String> = checked.warnings.iter().map(ToString::to_string).collect();
        compare(&path, &lines(&warnings));

        let written =
            serde_json::to_string(&config::effective(&checked.config, Secrets::Shown)).unwrap();
        let again = config::parse(&written, "effective").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(again, checked.config, "{} through `effective`", path.display());
    }
}

#[test]
fn fail() {
    for path in files("fail") {
        let Err(errors) = config::load(&path) else {
            panic!("{} must fail", path.display());
        };
        let directory = format!("{DIRECTORY}/fail/");
        let shown = format!("{}\n", errors.to_string().replace(&directory, ""));
        for line in shown.lines() {
            assert!(!line.contains(char::is_control), "{line:?}");
        }
        compare(&path, &shown);
    }
}

#[test]
fn what_cannot_be_read() {
    for (path, expected) in [
        (
            "tests/data/config/none.yaml",
            "tests/data/config/none.yaml: cannot be read: No such file",
        ),
        (DIRECTORY, "tests/data/config: cannot be read: Is a directory"),
    ] {
        let message = config::load(Path::new(path)).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}

/// Every `.yaml` of one directory, in order.
fn files(kind: &str) -> Vec<PathBuf> {
    let directory = Path::new(DIRECTORY).join(kind);
    let entries = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", directory.display());
    files
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Compares with the `.txt` beside `path`; where there is none, nothing is expected.
fn compare(path: &Path, shown: &str) {
    let expected = path.with_extension("txt");
    if std::env::var_os("BLESS").is_some() && !shown.is_empty() {
        fs::write(&expected, shown).unwrap();
    }
    let expected = fs::read_to_string(&expected).unwrap_or_default();
    assert_eq!(shown, expected, "{}", path.display());
}
