//! Durations, sizes and rates as the configuration writes them: `500ms`, `2s`, `10m`, `1h`; `1400`,
//! `16KiB`, `64MiB`; `100/s`.

use std::fmt;
use std::time::Duration;

use super::error::Quoted;
use crate::limits::DURATION_MAX;

/// The units and their milliseconds, largest first.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Why a text is not a duration that is possible here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum DurationFault {
    #[error("{0} has no unit; write {1}s or {1}ms")]
    NoUnit(Quoted, String),
    #[error("{0} has an unknown unit; the units are ms, s, m and h")]
    Unit(Quoted),
    #[error("{0} is not a whole number and a unit; write it like 500ms, 2s, 10m or 1h")]
    Form(Quoted),
    #[error("{0} is out of range; {1} to {2} are possible")]
    Range(Quoted, Short, Short),
    #[error("{0} is not in whole seconds; round it")]
    Seconds(Quoted),
}

/// Reads a duration up to [`DURATION_MAX`].
pub fn parse_duration(text: &str) -> Result<Duration, DurationFault> {
    let quoted = || Quoted::new(text);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() || unit.starts_with(['.', ',', '_', 'e', ':']) {
        return Err(DurationFault::Form(quoted()));
    }
    if unit.is_empty() {
        return Err(DurationFault::NoUnit(quoted(), super::error::printable(number, 20)));
    }
    let Some((_, milliseconds)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(DurationFault::Unit(quoted()));
    };
    let total = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*milliseconds));
    total
        .map(Duration::from_millis)
        .filter(|d| *d <= DURATION_MAX)
        .ok_or_else(|| DurationFault::Range(quoted(), Short(Duration::ZERO), Short(DURATION_MAX)))
}

/// A duration in its shortest form, which [`parse_duration`] reads back. Fractions of a
/// millisecond are cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short(pub Duration);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.as_millis();
        if total == 0 {
            return f.write_str("0s");
        }
        let fits =
            |(_, milliseconds): &&(&str, u64)| total.is_multiple_of(u128::from(*milliseconds));
        let (unit, milliseconds) = UNITS.iter().find(fits).expect("everything is whole ms");
        write!(f, "{}{unit}", total / u128::from(*milliseconds))
    }
}

/// The units of sizes and their bytes, largest first.
const SIZES: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Why a text is not a size that is possible here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum SizeFault {
    #[error("{0} has an unknown unit; the units are KiB, MiB and GiB, and none for bytes")]
    Unit(Quoted),
    #[error("{0} is not a whole number and a unit; write it like 1400, 16KiB or 1MiB")]
    Form(Quoted),
    #[error("{0} is out of range; {1} to {2} are possible")]
    Range(Quoted, Bytes, Bytes),
}

/// Reads a size in bytes.
pub fn parse_size(text: &str) -> Result<u64, SizeFault> {
    let quoted = || Quoted::new(text);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() || unit.starts_with(['.', ',', '_', 'e', ':']) {
        return Err(SizeFault::Form(quoted()));
    }
    let factor = match SIZES.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None => return Err(SizeFault::Unit(quoted())),
    };
    let total = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
    total.ok_or_else(|| SizeFault::Range(quoted(), Bytes(0), Bytes(u64::MAX)))
}

/// A size in its shortest form, which [`parse_size`] reads back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, factor): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(*factor);
        match SIZES.iter().find(fits) {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Why a text is not a rate that is possible here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum RateFault {
    #[error("{0} has no unit; write {1}/s")]
    NoUnit(Quoted, String),
    #[error("{0} is not a whole number a second; write it like 100/s")]
    Form(Quoted),
    #[error("{0} is out of range; {1} to {2} are possible")]
    Range(Quoted, PerSecond, PerSecond),
}

/// Reads a number of something a second.
pub fn parse_rate(text: &str) -> Result<u32, RateFault> {
    let quoted = || Quoted::new(text);
    let number = text.strip_suffix("/s").unwrap_or(text);
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RateFault::Form(quoted()));
    }
    if number.len() == text.len() {
        return Err(RateFault::NoUnit(quoted(), super::error::printable(number, 20)));
    }
    let range = |_| RateFault::Range(quoted(), PerSecond(0), PerSecond(u32::MAX));
    number.parse().map_err(range)
}

/// A rate, which [`parse_rate`] reads back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerSecond(pub u32);

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        for (text, rate, shown) in
            [("100/s", 100, "100/s"), ("0/s", 0, "0/s"), ("4294967295/s", u32::MAX, "4294967295/s")]
        {
            assert_eq!(parse_rate(text), Ok(rate));
            assert_eq!(PerSecond(rate).to_string(), shown);
        }
        for (text, expected) in [
            ("", "is not a whole number a second"),
            ("/s", "is not a whole number a second"),
            ("1.5/s", "is not a whole number a second"),
            ("-1/s", "is not a whole number a second"),
            ("+1/s", "is not a whole number a second"),
            ("100/m", "is not a whole number a second; write it like 100/s"),
            ("100 /s", "is not a whole number a second"),
            ("100", "has no unit; write 100/s"),
            ("4294967296/s", "is out of range; 0/s to 4294967295/s are possible"),
        ] {
            let fault = parse_rate(text).unwrap_err().to_string();
            assert!(fault.contains(expected), "{text}: {fault}");
        }
    }

    #[test]
    fn durations() {
        for (text, milliseconds, short) in [
            ("0s", 0, "0s"),
            ("0ms", 0, "0s"),
            ("500ms", 500, "500ms"),
            ("1500ms", 1500, "1500ms"),
            ("2s", 2000, "2s"),
            ("2000ms", 2000, "2s"),
            ("90s", 90_000, "90s"),
            ("120s", 120_000, "2m"),
            ("010m", 600_000, "10m"),
            ("24h", 86_400_000, "24h"),
            ("87600h", 315_360_000_000, "87600h"),
        ] {
            let parsed = parse_duration(text).unwrap();
            assert_eq!(parsed, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(Short(parsed).to_string(), short, "{text}");
            assert_eq!(parse_duration(short), Ok(parsed), "{text}");
        }
    }

    #[test]
    fn refused() {
        for (text, expected) in [
            ("", "`` is not a whole number and a unit; write it like 500ms, 2s, 10m or 1h"),
            ("s", "`s` is not a whole number and a unit; write it like 500ms, 2s, 10m or 1h"),
            ("-1s", "`-1s` is not a whole number and a unit; write it like 500ms, 2s, 10m or 1h"),
            ("1.5s", "`1.5s` is not a whole number and a unit; write it like 500ms, 2s, 10m or 1h"),
            ("5", "`5` has no unit; write 5s or 5ms"),
            ("5 s", "`5 s` has an unknown unit; the units are ms, s, m and h"),
            ("5S", "`5S` has an unknown unit; the units are ms, s, m and h"),
            ("1d", "`1d` has an unknown unit; the units are ms, s, m and h"),
            ("87601h", "`87601h` is out of range; 0s to 87600h are possible"),
            (
                "99999999999999999999h",
                "`99999999999999999999h` is out of range; 0s to 87600h are possible",
            ),
            (
                "18446744073709551615h",
                "`18446744073709551615h` is out of range; 0s to 87600h are possible",
            ),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes, short) in [
            ("0", 0, "0"),
            ("1400", 1400, "1400"),
            ("1024", 1024, "1KiB"),
            ("16KiB", 16_384, "16KiB"),
            ("1024KiB", 1 << 20, "1MiB"),
            ("64MiB", 64 << 20, "64MiB"),
            ("3GiB", 3 << 30, "3GiB"),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
            assert_eq!(Bytes(bytes).to_string(), short);
            assert_eq!(parse_size(short), Ok(bytes));
        }
        for (text, expected) in [
            ("", "is not a whole number and a unit"),
            ("KiB", "is not a whole number and a unit"),
            ("1.5KiB", "is not a whole number and a unit"),
            ("-1", "is not a whole number and a unit"),
            ("16KB", "has an unknown unit"),
            ("16kib", "has an unknown unit"),
            ("16 KiB", "has an unknown unit"),
            ("99999999999GiB", "is out of range"),
            ("99999999999999999999", "is out of range"),
        ] {
            let fault = parse_size(text).unwrap_err().to_string();
            assert!(fault.contains(expected), "{text}: {fault}");
        }
    }
}
