//! The section `health` of a pool.

use std::fmt;
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::error::{Problem, Quoted};
use super::report::Report;
use super::units::Short;
use super::value::{Table, Value};
use super::warning::Suspicion;
use super::{Backend, defaults};
use crate::limits::{CHECK_BYTES, DURATION_MAX};
use crate::route::{HostPattern, PatternError};

pub(super) const HEALTH: &[&str] = &[
    "type",
    "port",
    "interval",
    "fast_interval",
    "timeout",
    "rise",
    "fall",
    "send",
    "expect",
    "path",
    "host",
    "tls",
    "sni",
    "verify",
    "ca_file",
];
pub(super) const BYTES: &[&str] = &["hex"];

/// Active checks of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is done to a backend.
    pub probe: Probe,
    /// The port that is checked, if not the backend's own. Then no backend is a unix socket.
    pub port: Option<NonZeroU16>,
    /// From one check to the next.
    pub interval: Duration,
    /// The same while the state is in doubt; never longer than `interval`.
    pub fast_interval: Duration,
    /// Of one check, all phases together.
    pub timeout: Duration,
    /// Successes in a row that bring a backend up.
    pub rise: u32,
    /// Failures in a row that take it down.
    pub fall: u32,
}

/// What one check does, and what makes it pass.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// It connects; what is said then is optional.
    Tcp(Exchange),
    /// It connects and shakes hands.
    Tls(Tls),
    /// It asks for a page.
    Http(Http),
    /// It sends a datagram; never to a unix socket. `send` is never `None`.
    Udp(Exchange),
}

/// What is said to a backend, and what it has to answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exchange {
    /// Sent first, not empty.
    pub send: Option<Box<[u8]>>,
    /// The answer must contain it; where it is empty any answer will do. `None` waits for none.
    pub expect: Option<Box<[u8]>>,
}

/// A TLS handshake.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tls {
    /// The name asked for, A-labels in lower case; never `None` beside `ca_file`.
    pub sni: Option<Box<str>>,
    /// The authorities that the backend's certificate is verified by; `None` does not judge it.
    pub ca_file: Option<PathBuf>,
}

/// A request for a page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Http {
    /// Path and query, visible ASCII from `/` on.
    pub path: Box<str>,
    /// The header `Host`, visible ASCII; `None` is the name asked for in the handshake, or else
    /// the backend's address.
    pub host: Option<Box<str>>,
    /// The statuses that pass.
    pub expect: RangeInclusive<u16>,
    /// Below it.
    pub tls: Option<Tls>,
}

impl Probe {
    /// The word in the configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Probe::Tcp(_) => "tcp",
            Probe::Tls(_) => "tls",
            Probe::Http(_) => "http",
            Probe::Udp(_) => "udp",
        }
    }

    /// The handshake, if there is one.
    pub fn tls(&self) -> Option<&Tls> {
        match self {
            Probe::Tls(tls) => Some(tls),
            Probe::Http(http) => http.tls.as_ref(),
            Probe::Tcp(_) | Probe::Udp(_) => None,
        }
    }
}

/// A type of check by name, before its keys have been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tcp,
    Tls,
    Http,
    Udp,
}

const KINDS: [(&str, Kind); 4] =
    [("tcp", Kind::Tcp), ("tls", Kind::Tls), ("http", Kind::Http), ("udp", Kind::Udp)];

/// Keys that not every check has, and the checks that do, as types and in words.
const KEYS_OF_SOME: [(&str, &[Kind], &str); 8] = [
    ("send", &[Kind::Tcp, Kind::Udp], "tcp or udp"),
    ("expect", &[Kind::Tcp, Kind::Http, Kind::Udp], "tcp, http or udp"),
    ("path", &[Kind::Http], "http"),
    ("host", &[Kind::Http], "http"),
    ("tls", &[Kind::Http], "http, or tls for a handshake alone"),
    ("sni", &[Kind::Tls, Kind::Http], "tls or http"),
    ("verify", &[Kind::Tls, Kind::Http], "tls or http"),
    ("ca_file", &[Kind::Tls, Kind::Http], "tls or http"),
];

const ANY: RangeInclusive<Duration> = Duration::from_millis(1)..=DURATION_MAX;

/// Statuses that an HTTP server can answer with.
const STATUSES: RangeInclusive<u16> = 100..=599;

/// Reads the section. `Some(None)` is `off`.
pub(super) fn health(
    value: Value<'_>,
    backends: &[Backend],
    report: &mut Report,
) -> Option<Option<HealthCheck>> {
    if value.is_off() {
        return Some(None);
    }
    if value.meant_off(report) {
        return None;
    }
    let table = value.table(HEALTH, "`off` or a map of keys", report)?;
    let defaults = defaults::HEALTH;
    let kind = match table.get("type") {
        None => Some(Kind::Tcp),
        Some(kind) => kind.choice("type of check", &KINDS, report),
    };
    let mut count = |key, default| {
        table.read(key, default, |v| {
            let count = v.integer(1..=u64::from(u16::MAX), "a whole number", "2", report)?;
            u32::try_from(count).ok()
        })
    };
    let (rise, fall) = (count("rise", defaults.rise), count("fall", defaults.fall));
    let interval = table.read("interval", defaults.interval, |v| v.duration(ANY, report));
    let timeout = table.read("timeout", defaults.timeout, |v| v.duration(ANY, report));
    let fast_interval = fast_interval(&table, interval, report);
    if timeout > interval {
        let (timeout, interval) = (Short(timeout), Short(interval));
        value.warn(Suspicion::SlowCheck { timeout, interval }, report);
    }
    let port = table.read("port", None, |v| port(v, backends, report));
    // Of a check of no known type nobody can say which keys are wrong.
    let probe = probe(value, &table, kind?, backends, report);
    Some(Some(HealthCheck { probe, port, interval, fast_interval, timeout, rise, fall }))
}

fn fast_interval(table: &Table<'_>, interval: Duration, report: &mut Report) -> Duration {
    let default = defaults::HEALTH.fast_interval.min(interval);
    table.read("fast_interval", default, |v| {
        let fast = v.duration(ANY, report)?;
        if fast > interval {
            let (fast, interval) = (Short(fast), Short(interval));
            v.error(Problem::FastInterval { fast, interval }, report);
        }
        Some(fast)
    })
}

/// `Some(None)` is `off`.
fn port(value: Value<'_>, backends: &[Backend], report: &mut Report) -> Option<Option<NonZeroU16>> {
    if value.is_off() {
        return Some(None);
    }
    if value.meant_off(report) {
        return None;
    }
    let expected = "`off` or a port";
    let port = value.integer(1..=u64::from(u16::MAX), expected, "off or 8081", report)?;
    no_unix("port", value, backends, report);
    u16::try_from(port).ok().and_then(NonZeroU16::new).map(Some)
}

/// Reports a backend that is a unix socket, which has no `what`.
fn no_unix(what: &'static str, value: Value<'_>, backends: &[Backend], report: &mut Report) {
    if let Some(unix) = backends.iter().find(|backend| backend.address.unix().is_some()) {
        let address = Quoted::new(&unix.address.to_string());
        value.error(Problem::CheckOfUnix { address, what }, report);
    }
}

/// Reads the keys that not every check has.
fn probe(
    value: Value<'_>,
    table: &Table<'_>,
    kind: Kind,
    backends: &[Backend],
    report: &mut Report,
) -> Probe {
    for (key, kinds, checks) in KEYS_OF_SOME {
        if let Some(key_value) = table.get(key).filter(|_| !kinds.contains(&kind)) {
            let kind = KINDS.iter().find(|(_, k)| *k == kind).map_or("", |(name, _)| *name);
            key_value.error(Problem::KeyOfCheck { key, kind, checks }, report);
        }
    }
    match kind {
        Kind::Tcp => Probe::Tcp(exchange(table, None, report)),
        Kind::Tls => Probe::Tls(tls(value, table, report)),
        Kind::Http => Probe::Http(http(value, table, report)),
        Kind::Udp => {
            no_unix("datagrams", value, backends, report);
            if table.lacks("send") {
                let example = "write it like `send: ping`";
                value.error(Problem::Missing { key: "send", example }, report);
            }
            Probe::Udp(exchange(table, Some(Box::default()), report))
        }
    }
}

fn exchange(table: &Table<'_>, expect: Option<Box<[u8]>>, report: &mut Report) -> Exchange {
    let send = table.read("send", None, |v| {
        let send = bytes(v, report)?;
        if send.as_ref().is_some_and(|send| send.is_empty()) {
            v.error(Problem::Empty { expected: "bytes to send" }, report);
        }
        Some(send)
    });
    Exchange { send, expect: table.read("expect", expect, |v| bytes(v, report)) }
}

/// A text, or `{ hex: ... }`. `Some(None)` is `off`.
fn bytes(value: Value<'_>, report: &mut Report) -> Option<Option<Box<[u8]>>> {
    if value.is_off() {
        return Some(None);
    }
    let bytes: Box<[u8]> = if value.is_map() {
        let table = value.table(BYTES, "`off`, a text, or `{ hex: ... }`", report)?;
        let Some(hex) = table.get("hex") else {
            if table.lacks("hex") {
                let example = "write it like `{ hex: 0d0a }`";
                value.error(Problem::Missing { key: "hex", example }, report);
            }
            return None;
        };
        let text = hex.text("pairs of hex digits", report)?;
        let Some(bytes) = from_hex(text) else {
            let expected = "pairs of hex digits";
            let problem = Problem::Value { text: Quoted::new(text), expected, example: "0d0a" };
            hex.error(problem, report);
            return None;
        };
        bytes
    } else {
        value.text("`off`, a text, or `{ hex: ... }`", report)?.as_bytes().into()
    };
    if bytes.len() > CHECK_BYTES {
        value.error(Problem::CheckLong { bytes: bytes.len(), max: CHECK_BYTES }, report);
    }
    Some(Some(bytes))
}

/// Digits in pairs, with spaces anywhere between them.
pub(super) fn from_hex(text: &str) -> Option<Box<[u8]>> {
    let digit = |c: char| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Vec<u8> = text.chars().filter(|c| *c != ' ').map(digit).collect::<Option<_>>()?;
    let whole = digits.len().is_multiple_of(2);
    let pair = |pair: &[u8]| pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    whole.then(|| digits.chunks(2).map(pair).collect())
}

fn tls(value: Value<'_>, table: &Table<'_>, report: &mut Report) -> Tls {
    let sni = table.read("sni", None, |v| sni(v, report));
    let verify = table.read("verify", false, |v| on_or_off(v, report));
    let ca_file = table.read("ca_file", defaults::CA_FILE.into(), |v| {
        let text = v.text("a path", report)?;
        if text.is_empty() {
            v.error(Problem::Path { text: Quoted::new(text), hint: "name a file" }, report);
        } else if !text.starts_with('/') {
            v.warn(Suspicion::RelativePath { path: Quoted::new(text) }, report);
        }
        Some(PathBuf::from(text))
    });
    let unverified = table.get("verify").is_none_or(|verify| verify.is_off());
    if let Some(ca_file) = table.get("ca_file").filter(|_| unverified) {
        ca_file.error(Problem::CaWithoutVerify, report);
    }
    if verify && sni.is_none() && table.get("sni").is_none_or(|sni| sni.is_off()) {
        let example = "give the name that the certificate is for, like `sni: www.example.com`";
        value.error(Problem::Missing { key: "sni", example }, report);
    }
    Tls { sni, ca_file: verify.then_some(ca_file) }
}

/// `Some(None)` is `off`.
fn sni(value: Value<'_>, report: &mut Report) -> Option<Option<Box<str>>> {
    if value.is_off() {
        return Some(None);
    }
    let text = value.text("`off` or a host name", report)?;
    match text.parse::<HostPattern>() {
        Ok(pattern) if !pattern.is_wildcard() => return Some(Some(pattern.name().into())),
        Ok(_) | Err(PatternError::Bare) => {
            let (expected, example) = ("one host name", "www.example.com");
            value.error(Problem::Value { text: Quoted::new(text), expected, example }, report);
        }
        Err(fault) => value.error(fault, report),
    }
    None
}

fn on_or_off(value: Value<'_>, report: &mut Report) -> Option<bool> {
    if value.is_off() {
        return Some(false);
    }
    let text = value.text("`on` or `off`", report)?;
    if matches!(text, "on" | "true") {
        return Some(true);
    }
    let problem =
        Problem::Value { text: Quoted::new(text), expected: "`on` or `off`", example: "on" };
    value.error(problem, report);
    None
}

fn http(value: Value<'_>, table: &Table<'_>, report: &mut Report) -> Http {
    let over_tls = table.read("tls", false, |v| v.boolean(report));
    let handshake = over_tls.then(|| tls(value, table, report));
    let useless = ["sni", "verify", "ca_file"].into_iter().filter(|_| !over_tls);
    for (key, value) in useless.filter_map(|key| Some((key, table.get(key)?))) {
        value.error(Problem::KeyOfTls { key }, report);
    }
    let visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    let path = table.read("path", defaults::CHECK_PATH.into(), |v| {
        let path = v.text("a path", report)?;
        if path.len() > CHECK_BYTES {
            v.error(Problem::CheckLong { bytes: path.len(), max: CHECK_BYTES }, report);
        } else if !path.starts_with('/') || !visible(path) {
            let expected = "a path from `/` on, in visible ASCII";
            let problem = Problem::Value { text: Quoted::new(path), expected, example: "/healthz" };
            v.error(problem, report);
        }
        Some(path.into())
    });
    let host = table.read("host", None, |v| {
        let host = v.text("a host name or address", report)?;
        let plain = visible(host) && !host.contains(['/', '?', '#', '@', '\\']);
        if host.len() > CHECK_BYTES {
            v.error(Problem::CheckLong { bytes: host.len(), max: CHECK_BYTES }, report);
        } else if host.is_empty() || !plain {
            let (expected, example) = ("a host name or address", "www.example.com");
            v.error(Problem::Value { text: Quoted::new(host), expected, example }, report);
        }
        Some(Some(host.into()))
    });
    let expect = table.read("expect", defaults::CHECK_STATUS, |v| statuses(v, report));
    Http { path, host, expect, tls: handshake }
}

/// One status, or a range of them.
fn statuses(value: Value<'_>, report: &mut Report) -> Option<RangeInclusive<u16>> {
    let expected = "a status or a range of them";
    let text = value.text(expected, report)?;
    let status = |text: &str| {
        let digits = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|status| digits && STATUSES.contains(status))
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (status(first.trim()), status(last.trim())) {
        (Some(first), Some(last)) if first <= last => Some(first..=last),
        _ => {
            let text = Quoted::new(text);
            value.error(Problem::Value { text, expected, example: "204 or 200-399" }, report);
            None
        }
    }
}

/// As in the configuration: one status alone, or `200-399`.
pub(super) struct Statuses<'a>(pub(super) &'a RangeInclusive<u16>);

impl fmt::Display for Statuses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex() {
        for (text, expected) in [
            ("", Some(&[][..])),
            ("0d0a", Some(&[13, 10])),
            ("0D 0A ff", Some(&[13, 10, 255])),
            ("0", None),
            ("0x0d", None),
            ("é", None),
        ] {
            assert_eq!(from_hex(text).as_deref(), expected, "{text}");
        }
    }
}
