//! A record of the access log.

use serde_json::Value;

const KEYS: [&str; 19] = [
    "time",
    "id",
    "listener",
    "protocol",
    "client",
    "peer",
    "local",
    "sni",
    "alpn",
    "pool",
    "backend",
    "attempts",
    "preread_ms",
    "connect_ms",
    "first_byte_ms",
    "duration_ms",
    "bytes_in",
    "bytes_out",
    "termination",
];

/// One line, with exactly the keys that the README lists.
#[derive(Clone, Debug)]
pub struct Record(Value);

impl Record {
    /// Reads a line.
    pub fn parse(line: &str) -> Self {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        let object = value.as_object().unwrap_or_else(|| panic!("not an object: {line}"));
        assert_eq!(object.len(), KEYS.len(), "{line}");
        assert!(KEYS.iter().all(|key| object.contains_key(*key)), "{line}");
        Record(value)
    }

    /// A text; `-` for null.
    pub fn text(&self, key: &str) -> &str {
        if self.0[key].is_null() { "-" } else { self.0[key].as_str().expect(key) }
    }

    /// A number; null panics.
    pub fn number(&self, key: &str) -> f64 {
        self.0[key].as_f64().unwrap_or_else(|| panic!("{key} of {}", self.0))
    }

    /// When it ended, in seconds since the midnight before it began.
    pub fn ended(&self) -> f64 {
        let (_, clock) = self.text("time").split_once('T').expect("date and time");
        let parts = clock.trim_end_matches('Z').split(':').map(|part| part.parse::<f64>().unwrap());
        parts.fold(0.0, |sum, part| sum * 60.0 + part) + self.number("duration_ms") / 1e3
    }

    /// Whether there is no value.
    pub fn is_null(&self, key: &str) -> bool {
        self.0[key].is_null()
    }

    /// A list of texts; null panics.
    pub fn list(&self, key: &str) -> Vec<&str> {
        let items = self.0[key].as_array().unwrap_or_else(|| panic!("{key} of {}", self.0));
        items.iter().map(|item| item.as_str().expect("a text")).collect()
    }

    /// Backend and outcome of each attempt.
    pub fn attempts(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let attempts = self.0["attempts"].as_array().expect("a list");
        attempts.iter().map(|a| (text(&a["backend"]), text(&a["outcome"]))).collect()
    }
}
