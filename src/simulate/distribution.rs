//! How long a backend takes for a request, or a client to think. Each is drawn by inversion, so
//! that equal random numbers give equal times.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::units::{Time, UnitFault, parse_number, parse_share, parse_time};
use crate::limits::SIMULATE_SINGLE_TIME;

/// A distribution of times. The text forms are those of [`Distribution::from_str`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// `constant:TIME`, or just `TIME`: always the same.
    Constant(Duration),
    /// `exp:MEAN`: memoryless.
    Exponential(Duration),
    /// `lognormal:MEDIAN:SIGMA`: the logarithm is normal with this standard deviation. Real
    /// services are often like that, with a sigma of 0.5 to 1.5.
    LogNormal(Duration, f64),
    /// `pareto:MIN:ALPHA`: never below `MIN`; the smaller alpha, the heavier the tail. At alpha 1
    /// and below there is no mean.
    Pareto(Duration, f64),
    /// `bimodal:FAST:SLOW:P`: slow with chance `P`, else fast.
    Bimodal(Duration, Duration, f64),
}

/// Why a text is not a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum DistributionFault {
    #[error(
        "not a distribution; write constant:20ms, exp:5ms, lognormal:MEDIAN:SIGMA, \
         pareto:MIN:ALPHA or bimodal:FAST:SLOW:P"
    )]
    Form,
    #[error("{part}: {fault}")]
    Part { part: &'static str, fault: UnitFault },
    #[error("{part}: longer than {} hours", SIMULATE_SINGLE_TIME.as_secs() / 3600)]
    Long { part: &'static str },
    #[error("SIGMA: above 10; 0.5 to 1.5 are usual")]
    Sigma,
    #[error("ALPHA: not between 0.1 and 100; 1.5 to 3 are usual")]
    Alpha,
}

impl Distribution {
    /// No time at all.
    pub const NONE: Distribution = Distribution::Constant(Duration::ZERO);

    /// One time, at most [`SIMULATE_SINGLE_TIME`]. Takes the same number of draws from `rng`
    /// whatever comes out.
    pub fn sample(&self, rng: &mut fastrand::Rng) -> Duration {
        match *self {
            Distribution::Constant(time) => time,
            Distribution::Exponential(mean) => scaled(mean, -chance(rng).ln()),
            Distribution::LogNormal(median, sigma) => {
                scaled(median, (sigma * normal(rng)).min(700.0).exp())
            }
            Distribution::Pareto(min, alpha) => scaled(min, chance(rng).powf(-1.0 / alpha)),
            Distribution::Bimodal(fast, slow, share) => {
                if rng.f64() < share {
                    slow
                } else {
                    fast
                }
            }
        }
    }

    /// The mean in seconds; infinite where there is none.
    pub fn mean(&self) -> f64 {
        match *self {
            Distribution::Constant(mean) | Distribution::Exponential(mean) => mean.as_secs_f64(),
            Distribution::LogNormal(median, sigma) => {
                median.as_secs_f64() * (sigma * sigma / 2.0).exp()
            }
            Distribution::Pareto(min, alpha) if alpha > 1.0 => {
                min.as_secs_f64() * alpha / (alpha - 1.0)
            }
            Distribution::Pareto(..) => f64::INFINITY,
            Distribution::Bimodal(fast, slow, share) => {
                fast.as_secs_f64() * (1.0 - share) + slow.as_secs_f64() * share
            }
        }
    }
}

/// A number in (0, 1]: its logarithm is finite.
pub(super) fn chance(rng: &mut fastrand::Rng) -> f64 {
    1.0 - rng.f64()
}

/// A standard normal number (Box and Muller, 1958).
fn normal(rng: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * chance(rng).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

/// `unit × factor`, at most [`SIMULATE_SINGLE_TIME`]. No time is no time, however often.
pub(super) fn scaled(unit: Duration, factor: f64) -> Duration {
    let seconds = unit.as_secs_f64() * factor;
    if unit.is_zero() || seconds < SIMULATE_SINGLE_TIME.as_secs_f64() {
        return Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
    }
    SIMULATE_SINGLE_TIME
}

impl FromStr for Distribution {
    type Err = DistributionFault;

    fn from_str(text: &str) -> Result<Self, DistributionFault> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            ["constant", value] => Ok(Distribution::Constant(time("TIME", value)?)),
            [value] if value.starts_with(|c: char| c.is_ascii_digit()) => {
                Ok(Distribution::Constant(time("TIME", value)?))
            }
            ["exp", mean] => Ok(Distribution::Exponential(time("MEAN", mean)?)),
            ["lognormal", median, sigma] => {
                let (median, sigma) = (time("MEDIAN", median)?, number("SIGMA", sigma)?);
                if sigma > 10.0 {
                    return Err(DistributionFault::Sigma);
                }
                Ok(Distribution::LogNormal(median, sigma))
            }
            ["pareto", min, alpha] => {
                let (min, alpha) = (time("MIN", min)?, number("ALPHA", alpha)?);
                if !(0.1..=100.0).contains(&alpha) {
                    return Err(DistributionFault::Alpha);
                }
                Ok(Distribution::Pareto(min, alpha))
            }
            ["bimodal", fast, slow, share] => {
                let (fast, slow) = (time("FAST", fast)?, time("SLOW", slow)?);
                let part = |fault| DistributionFault::Part { part: "P", fault };
                Ok(Distribution::Bimodal(fast, slow, parse_share(share).map_err(part)?))
            }
            _ => Err(DistributionFault::Form),
        }
    }
}

fn time(part: &'static str, text: &str) -> Result<Duration, DistributionFault> {
    let time = parse_time(text).map_err(|fault| DistributionFault::Part { part, fault })?;
    if time > SIMULATE_SINGLE_TIME {
        return Err(DistributionFault::Long { part });
    }
    Ok(time)
}

fn number(part: &'static str, text: &str) -> Result<f64, DistributionFault> {
    parse_number(text).map_err(|fault| DistributionFault::Part { part, fault })
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Distribution::Constant(value) => write!(f, "constant:{}", Time(value)),
            Distribution::Exponential(mean) => write!(f, "exp:{}", Time(mean)),
            Distribution::LogNormal(median, sigma) => {
                write!(f, "lognormal:{}:{sigma}", Time(median))
            }
            Distribution::Pareto(min, alpha) => write!(f, "pareto:{}:{alpha}", Time(min)),
            Distribution::Bimodal(fast, slow, share) => {
                write!(f, "bimodal:{}:{}:{share}", Time(fast), Time(slow))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn drawn(text: &str) -> (Distribution, Vec<f64>) {
        let distribution: Distribution = text.parse().unwrap();
        let mut rng = fastrand::Rng::with_seed(8);
        let draws = (0..DRAWS).map(|_| distribution.sample(&mut rng).as_secs_f64());
        let mut draws: Vec<f64> = draws.collect();
        draws.sort_unstable_by(f64::total_cmp);
        (distribution, draws)
    }

    /// Mean and quantiles as theory has them.
    #[test]
    fn draws_follow_the_distribution() {
        let check = |text: &str, quantiles: &[(f64, f64)]| {
            let (distribution, draws) = drawn(text);
            let mean = draws.iter().sum::<f64>() / DRAWS as f64;
            let expected = distribution.mean();
            assert!((mean / expected - 1.0).abs() < 0.02, "{text}: {mean} for {expected}");
            for &(share, expected_ms) in quantiles {
                let found = draws[(share * DRAWS as f64) as usize] * 1e3;
                assert!((found / expected_ms - 1.0).abs() < 0.03, "{text} {share}: {found}");
            }
        };
        check("constant:20ms", &[(0.0, 20.0), (0.999, 20.0)]);
        check("20ms", &[(0.5, 20.0)]);
        check("exp:5ms", &[(0.5, 3.4657), (0.99, 23.026)]);
        // e^(0.5 × 1.6449) = 2.2761.
        check("lognormal:10ms:0.5", &[(0.5, 10.0), (0.95, 22.761), (0.05, 4.3935)]);
        // min × (1 − q)^(−1/α).
        check("pareto:10ms:3", &[(0.0, 10.0), (0.5, 12.599), (0.99, 46.416)]);
        check("bimodal:1ms:100ms:10%", &[(0.5, 1.0), (0.89, 1.0), (0.91, 100.0)]);
    }

    #[test]
    fn nothing_is_longer_than_the_limit() {
        for text in ["pareto:1s:0.1", "lognormal:24h:10", "exp:24h", "pareto:0ms:0.1"] {
            let (_, draws) = drawn(text);
            assert!(*draws.last().unwrap() <= SIMULATE_SINGLE_TIME.as_secs_f64(), "{text}");
        }
        assert_eq!(scaled(Duration::ZERO, f64::INFINITY), Duration::ZERO);
        assert_eq!("pareto:1s:1".parse::<Distribution>().unwrap().mean(), f64::INFINITY);
    }

    #[test]
    fn text_and_back() {
        for text in [
            "constant:20ms",
            "exp:200us",
            "lognormal:10ms:0.5",
            "pareto:1ms:1.5",
            "bimodal:1ms:1s:0.1",
        ] {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        for (text, expected) in [
            ("", "not a distribution"),
            ("gauss:1ms:1", "not a distribution"),
            ("exp", "not a distribution"),
            ("exp:1ms:2ms", "not a distribution"),
            ("exp:5", "MEAN: not a number and a unit"),
            ("constant:-5ms", "TIME: not a number and a unit"),
            ("constant:25h", "TIME: longer than 24 hours"),
            ("lognormal:1ms:nan", "SIGMA: not a number above 0"),
            ("lognormal:1ms:11", "SIGMA: above 10"),
            ("pareto:1ms:0", "ALPHA: not a number above 0"),
            ("pareto:1ms:0.01", "ALPHA: not between"),
            ("bimodal:1ms:2ms:2", "P: not between 0 and 1"),
        ] {
            let fault = text.parse::<Distribution>().unwrap_err().to_string();
            assert!(fault.starts_with(expected), "{text}: {fault}");
        }
    }
}
