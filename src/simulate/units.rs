//! Times and shares as a command line writes them. Finer than the configuration's: a hop is a
//! fraction of a millisecond.

use std::fmt;
use std::time::Duration;

use crate::limits::SIMULATE_TIME;

/// The units and their nanoseconds, largest first.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];

/// Why a text is not a time or a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum UnitFault {
    #[error("not a number and a unit; write it like 20ms, 0.2ms, 150us, 2s or 5m")]
    Time,
    #[error("longer than {} days", SIMULATE_TIME.as_secs() / 86_400)]
    TimeRange,
    #[error("not a share; write it like 0.015 or 1.5%")]
    Share,
    #[error("not between 0 and 1; write it like 0.015 or 1.5%")]
    ShareRange,
    #[error("not a number above 0")]
    Number,
}

/// Reads a time such as `20ms`, `0.2ms` or `2s`, up to [`SIMULATE_TIME`].
pub fn parse_time(text: &str) -> Result<Duration, UnitFault> {
    let end = text.find(|c: char| c != '.' && !c.is_ascii_digit()).ok_or(UnitFault::Time)?;
    let (number, unit) = text.split_at(end);
    let unit = if unit == "µs" { "us" } else { unit };
    let unit = UNITS.iter().find(|(name, _)| *name == unit);
    let (Some(number), Some((_, nanoseconds))) = (plain(number), unit) else {
        return Err(UnitFault::Time);
    };
    let total = (number * *nanoseconds as f64).round();
    if total > SIMULATE_TIME.as_nanos() as f64 {
        return Err(UnitFault::TimeRange);
    }
    Ok(Duration::from_nanos(total as u64))
}

/// Reads a share of the whole, such as `0.015` or `1.5%`, from 0 to 1.
pub fn parse_share(text: &str) -> Result<f64, UnitFault> {
    let share = match text.strip_suffix('%') {
        Some(percent) => plain(percent).map(|percent| percent / 100.0),
        None => plain(text),
    };
    let share = share.ok_or(UnitFault::Share)?;
    if share <= 1.0 { Ok(share) } else { Err(UnitFault::ShareRange) }
}

/// Reads a number above 0 without sign and exponent.
pub fn parse_number(text: &str) -> Result<f64, UnitFault> {
    plain(text).filter(|&number| number > 0.0).ok_or(UnitFault::Number)
}

/// Digits with at most one point: no sign, no exponent, no `nan`, no `inf`.
fn plain(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit());
    text.parse::<f64>().ok().filter(|number| plain && number.is_finite())
}

/// A time in the largest unit that it has at least one of, as [`parse_time`] reads it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        // Hours and minutes read badly with a fraction.
        let units = UNITS.iter().filter(|(_, unit)| {
            nanoseconds.is_multiple_of(u128::from(*unit)) || *unit <= 1_000_000_000
        });
        let fits = |(_, unit): &&(&str, u64)| nanoseconds >= u128::from(*unit);
        let Some((name, unit)) = units.clone().find(fits) else { return f.write_str("0s") };
        let (whole, rest) = (nanoseconds / u128::from(*unit), nanoseconds % u128::from(*unit));
        write!(f, "{whole}")?;
        if rest > 0 {
            let width = unit.ilog10() as usize;
            write!(f, ".{}", format!("{rest:0width$}").trim_end_matches('0'))?;
        }
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, nanoseconds, short) in [
            ("0ms", 0, "0s"),
            ("20ms", 20_000_000, "20ms"),
            ("0.2ms", 200_000, "200us"),
            ("1.5ms", 1_500_000, "1.5ms"),
            ("150us", 150_000, "150us"),
            ("150µs", 150_000, "150us"),
            ("2s", 2_000_000_000, "2s"),
            ("1.05s", 1_050_000_000, "1.05s"),
            ("60s", 60_000_000_000, "1m"),
            ("90s", 90_000_000_000, "90s"),
            ("2h", 7_200_000_000_000, "2h"),
            ("1ns", 1, "1ns"),
        ] {
            let parsed = parse_time(text).unwrap();
            assert_eq!(parsed, Duration::from_nanos(nanoseconds), "{text}");
            assert_eq!(Time(parsed).to_string(), short, "{text}");
            assert_eq!(parse_time(short), Ok(parsed), "{text}");
        }
        for text in ["", "ms", "20", "-1ms", "+1ms", "1e3ms", "nans", "infs", "1.2.3s", "1 s", "1d"]
        {
            assert_eq!(parse_time(text), Err(UnitFault::Time), "{text}");
        }
        assert_eq!(parse_time("721h"), Err(UnitFault::TimeRange));
        assert_eq!(parse_time(&format!("{}s", "9".repeat(400))), Err(UnitFault::Time));
    }

    #[test]
    fn shares_and_numbers() {
        for (text, expected) in [("0.015", 0.015), ("1.5%", 0.015), ("0", 0.0), ("100%", 1.0)] {
            assert!((parse_share(text).unwrap() - expected).abs() < 1e-12, "{text}");
        }
        for text in ["", "%", "-0.1", "nan", "1e-3", "a"] {
            assert_eq!(parse_share(text), Err(UnitFault::Share), "{text}");
        }
        for text in ["1.5", "101%"] {
            assert_eq!(parse_share(text), Err(UnitFault::ShareRange), "{text}");
        }
        assert_eq!(parse_number("36000"), Ok(36_000.0));
        for text in ["0", "-1", "inf", "NaN", "1e9", ""] {
            assert_eq!(parse_number(text), Err(UnitFault::Number), "{text}");
        }
    }
}
