//! The values that arguments of `pointsman simulate` may have.

use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::balance::key::KeyKind;
use crate::balance::{Bound, PolicyKind};
use crate::health::connect::HedgeAfter;
use crate::simulate::units::{parse_number, parse_share, parse_time};

/// `None` is `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrOff<T>(pub Option<T>);

/// Names of policies.
pub fn policies() -> impl TypedValueParser<Value = PolicyKind> {
    PossibleValuesParser::new(PolicyKind::ALL.map(PolicyKind::name)).map(|name| {
        let known = PolicyKind::ALL.into_iter().find(|policy| policy.name() == name);
        known.expect("only names of policies are possible")
    })
}

/// Names of keys.
pub fn keys() -> impl TypedValueParser<Value = KeyKind> {
    PossibleValuesParser::new(KeyKind::ALL.map(KeyKind::name)).map(|name| {
        let known = KeyKind::ALL.into_iter().find(|key| key.name() == name);
        known.expect("only names of keys are possible")
    })
}

/// A rate a second, with or without the `/s`.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = parse_number(text.strip_suffix("/s").unwrap_or(text));
    let rate = rate.map_err(|fault| format!("{fault}; write a rate a second like 500"))?;
    let max = crate::limits::SIMULATE_RATE;
    if rate > max { Err(format!("above {max} a second")) } else { Ok(rate) }
}

/// As a share; a plain number above 1 is meant in percent.
pub fn parse_headroom(text: &str) -> Result<f64, String> {
    const PERCENT_MAX: f64 = 1000.0;
    let number = text.strip_suffix('%').unwrap_or(text);
    let share = match parse_number(number) {
        Ok(number) if text.ends_with('%') || number > 1.0 => number / 100.0,
        Ok(number) => number,
        Err(_) => parse_share(text).map_err(|_| "not a share; write it like 25% or 0.25")?,
    };
    if share > PERCENT_MAX / 100.0 { Err(format!("above {PERCENT_MAX} %")) } else { Ok(share) }
}

/// A backend and a factor.
pub fn parse_slow(text: &str) -> Result<(usize, f64), String> {
    let (index, factor) = pair(text, ':', "K:FACTOR, like 2:6")?;
    let factor = parse_number(factor).map_err(|fault| format!("FACTOR: {fault}"))?;
    Ok((index, factor))
}

/// A backend and a time.
pub fn parse_stall(text: &str) -> Result<(usize, Duration), String> {
    let (index, time) = pair(text, ':', "K:TIME, like 2:30ms")?;
    Ok((index, parse_time(time).map_err(|fault| format!("TIME: {fault}"))?))
}

/// A backend and a point in time.
pub fn parse_moment(text: &str) -> Result<(usize, Duration), String> {
    let (index, time) = pair(text, '@', "K@T, like 2@10s")?;
    Ok((index, parse_time(time).map_err(|fault| format!("T: {fault}"))?))
}

/// The index of a backend that is given by its number, and the rest.
fn pair<'a>(text: &'a str, separator: char, form: &str) -> Result<(usize, &'a str), String> {
    let (number, rest) = text.split_once(separator).ok_or_else(|| format!("not {form}"))?;
    Ok((index(number, form)?, rest))
}

/// The index of a backend that is given by its number.
pub fn parse_backend(text: &str) -> Result<usize, String> {
    index(text, "a number of a backend, like 2")
}

fn index(number: &str, form: &str) -> Result<usize, String> {
    let number: usize = number.parse().map_err(|_| format!("not {form}"))?;
    Ok(number.checked_sub(1).ok_or("backends are numbered from 1")?)
}

/// Percent, or `off`.
pub fn parse_percent(text: &str) -> Result<OrOff<u8>, String> {
    let percent = off_or(text, |text| text.parse().ok().filter(|&percent| percent <= 100));
    percent.ok_or("not 0 to 100, or off".to_owned())
}

/// A whole number, or `off`.
pub fn parse_count<T: FromStr>(text: &str) -> Result<OrOff<T>, String> {
    off_or(text, |text| text.parse().ok()).ok_or("not a whole number in range, or off".to_owned())
}

/// A time, or `off`.
pub fn parse_optional_time(text: &str) -> Result<OrOff<Duration>, String> {
    let time = off_or(text, |text| parse_time(text).ok());
    time.ok_or("not a time like 30s, or off".to_owned())
}

/// A time, `auto` or `off`.
pub fn parse_hedge(text: &str) -> Result<HedgeAfter, String> {
    match text {
        "off" => Ok(HedgeAfter::Off),
        "auto" => Ok(HedgeAfter::Auto),
        _ => {
            let after = parse_time(text).map(HedgeAfter::After);
            after.map_err(|_| "not a time like 100ms, auto or off".to_owned())
        }
    }
}

fn off_or<T>(text: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<OrOff<T>> {
    if text == "off" { Some(OrOff(None)) } else { parse(text).map(|value| OrOff(Some(value))) }
}

/// The factor of a bounded load.
pub fn parse_bound(text: &str) -> Result<Bound, String> {
    let thousandths = parse_number(text).ok().map(|number| (number * 1000.0).round());
    let bound = thousandths.and_then(|thousandths| Bound::new(thousandths as u32));
    bound.ok_or_else(|| format!("not {} to {}; 1.25 is usual", Bound::MIN, Bound::MAX))
}
