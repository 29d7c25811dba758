//! The words of the configuration that stand for one of a few values.

use super::{LogFormat, LogLevel, OnDown, OnTimeout, Protocol};
use crate::balance::PolicyKind;
use crate::balance::key::KeyKind;

pub(super) const LOG_LEVELS: [(&str, LogLevel); 5] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

pub(super) const LOG_FORMATS: [(&str, LogFormat); 2] =
    [("text", LogFormat::Text), ("json", LogFormat::Json)];

pub(super) const PROTOCOLS: [(&str, Protocol); 2] =
    [("tcp", Protocol::Tcp), ("udp", Protocol::Udp)];

pub(super) const ON_TIMEOUT: [(&str, OnTimeout); 2] =
    [("close", OnTimeout::Close), ("default", OnTimeout::Default)];

pub(super) const ON_DOWN: [(&str, OnDown); 2] = [("keep", OnDown::Keep), ("close", OnDown::Close)];

/// The policies by name.
pub(super) fn policies() -> [(&'static str, PolicyKind); PolicyKind::ALL.len()] {
    PolicyKind::ALL.map(|policy| (policy.name(), policy))
}

/// What hash policies hash, by name.
pub(super) fn key_kinds() -> [(&'static str, KeyKind); KeyKind::ALL.len()] {
    KeyKind::ALL.map(|kind| (kind.name(), kind))
}

/// The word for `value`.
pub(super) fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, v)| v == value).map_or("", |(word, _)| *word)
}
