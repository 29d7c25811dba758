//! What the configuration of a pool would say, as arguments.

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::values::{
    OrOff, keys, parse_bound, parse_count, parse_hedge, parse_optional_time, parse_percent,
};
use crate::balance::Bound;
use crate::balance::key::KeyKind;
use crate::health::connect::{Connect, HedgeAfter};
use crate::health::outlier::{Rate, Terms, Thresholds};
use crate::simulate::scenario::{Checks, Outlier};
use crate::simulate::units::{parse_share, parse_time};

/// What the configuration of a pool would say.
#[derive(Debug, Args)]
#[command(next_help_heading = "As in the configuration of a pool")]
pub struct PoolArgs {
    /// What hash policies hash
    #[arg(long, value_name = "KEY", default_value = "source", value_parser = keys())]
    pub key: KeyKind,

    /// Clients with an address of their own; each request comes from one of them
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub keys: u32,

    /// Share of the requests that come from one client alone
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_share)]
    pub hot: f64,

    /// `balance.table_size`, of maglev
    #[arg(long, value_name = "N", default_value_t = 65_537)]
    pub table_size: usize,

    /// `balance.bounded_load`, of hash policies
    #[arg(long, value_name = "C", value_parser = parse_bound)]
    pub bounded_load: Option<Bound>,

    /// `max_connections` of each backend
    #[arg(long, value_name = "N|off", default_value = "off", value_parser = parse_count::<u32>)]
    pub max_connections: OrOff<u32>,

    /// `slow_start`
    #[arg(long, value_name = "TIME|off", default_value = "off", value_parser = parse_optional_time)]
    pub slow_start: OrOff<Duration>,

    /// `panic_threshold`
    #[arg(long, value_name = "N|off", default_value = "0", value_parser = parse_percent)]
    pub panic_threshold: OrOff<u8>,

    #[command(flatten)]
    connect: ConnectArgs,

    #[command(flatten)]
    checks: CheckArgs,

    #[command(flatten)]
    outlier: OutlierArgs,
}

#[derive(Debug, Args)]
struct ConnectArgs {
    /// `connect.timeout`
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    connect_timeout: Duration,

    /// `connect.attempts`
    #[arg(long, value_name = "N", default_value_t = 3)]
    attempts: usize,

    /// `connect.total_timeout`
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    total_timeout: Duration,

    /// `connect.hedge_after`
    #[arg(long, value_name = "TIME|auto|off", default_value = "off", value_parser = parse_hedge)]
    hedge_after: HedgeAfter,

    /// `connect.retry_budget`
    #[arg(long, value_name = "N|off", default_value = "20", value_parser = parse_percent)]
    retry_budget: OrOff<u8>,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// `health.interval`
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    check_interval: Duration,

    /// `health.fast_interval`; not above the interval
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_time)]
    check_fast_interval: Duration,

    /// `health.timeout`
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    check_timeout: Duration,

    /// `health.rise`
    #[arg(long, value_name = "N", default_value_t = 2)]
    rise: u32,

    /// `health.fall`
    #[arg(long, value_name = "N", default_value_t = 3)]
    fall: u32,

    /// `health: off`
    #[arg(long, conflicts_with_all = ["check_interval", "check_fast_interval", "check_timeout", "rise", "fall"])]
    no_checks: bool,
}

#[derive(Debug, Args)]
struct OutlierArgs {
    /// `outlier: off`
    #[arg(long, value_name = "off", value_parser = PossibleValuesParser::new(["off"]))]
    #[arg(conflicts_with_all = [
        "consecutive_failures", "failure_percent", "failure_window", "minimum_volume",
        "base_ejection", "max_ejection", "max_ejected_percent", "trial_connections",
    ])]
    outlier: Option<String>,

    /// `outlier.consecutive_failures`
    #[arg(long, value_name = "N|off", default_value = "3", value_parser = parse_count::<u16>)]
    consecutive_failures: OrOff<u16>,

    /// `outlier.failure_percent`
    #[arg(long, value_name = "N|off", default_value = "50", value_parser = parse_percent)]
    failure_percent: OrOff<u8>,

    /// `outlier.window`
    #[arg(long, value_name = "N", default_value_t = 100)]
    failure_window: u16,

    /// `outlier.minimum_volume`
    #[arg(long, value_name = "N", default_value_t = 20)]
    minimum_volume: u16,

    /// `outlier.base_ejection`
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    base_ejection: Duration,

    /// `outlier.max_ejection`
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_time)]
    max_ejection: Duration,

    /// `outlier.max_ejected_percent`
    #[arg(long, value_name = "N", default_value_t = 50)]
    max_ejected_percent: u8,

    /// `outlier.trial_connections`
    #[arg(long, value_name = "N", default_value_t = 1)]
    trial_connections: u8,
}

impl PoolArgs {
    pub fn connect(&self) -> Connect {
        let args = &self.connect;
        Connect {
            timeout: args.connect_timeout,
            attempts: args.attempts,
            total_timeout: args.total_timeout,
            hedge_after: args.hedge_after,
            retry_budget: args.retry_budget.0,
        }
    }

    pub fn checks(&self) -> Option<Checks> {
        let args = &self.checks;
        let checks = Checks {
            interval: args.check_interval,
            fast_interval: args.check_fast_interval.min(args.check_interval),
            timeout: args.check_timeout,
            rise: args.rise,
            fall: args.fall,
        };
        (!args.no_checks).then_some(checks)
    }

    pub fn outlier(&self) -> Option<Outlier> {
        let args = &self.outlier;
        let rate =
            |percent| Rate { percent, window: args.failure_window, volume: args.minimum_volume };
        let outlier = Outlier {
            thresholds: Thresholds {
                consecutive: args.consecutive_failures.0,
                rate: args.failure_percent.0.map(rate),
            },
            terms: Terms {
                base_ejection: args.base_ejection,
                max_ejection: args.max_ejection,
                trial_connections: args.trial_connections,
            },
            max_ejected_percent: args.max_ejected_percent,
        };
        args.outlier.is_none().then_some(outlier)
    }
}
