//! What `pointsman simulate` accepts.

use std::time::Duration;

use clap::{ArgGroup, ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum};

use super::pool::PoolArgs;
use super::values::{
    parse_backend, parse_headroom, parse_moment, parse_rate, parse_slow, parse_stall, policies,
};
use crate::balance::{PolicyKind, Spec};
use crate::simulate::Distribution;
use crate::simulate::scenario::{Backend, Incident, Load, Scenario, ScenarioError, Turn};
use crate::simulate::units::{parse_share, parse_time};

/// What is asked: a run, or a sum.
#[derive(Debug)]
pub enum Simulate {
    Workload(Box<Workload>),
    Sum(Sum),
}

/// By hand, since what a run requires is not required beside a subcommand.
impl Args for Simulate {
    fn augment_args(command: Command) -> Command {
        // Both have a text of their own; the last one stays.
        let command = Workload::augment_args(Sum::augment_subcommands(command));
        command.args_conflicts_with_subcommands(true).subcommand_negates_reqs(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Simulate {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        if matches.subcommand().is_some() {
            return Sum::from_arg_matches(matches).map(Simulate::Sum);
        }
        let workload = Workload::from_arg_matches(matches)?;
        Ok(Simulate::Workload(Box::new(workload)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What needs no clock.
#[derive(Debug, Subcommand)]
pub enum Sum {
    Plan(Plan),
    Tail(Tail),
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

/// Size a fleet, or judge one: Little's law, headroom, N + K
///
/// Without --nodes says how many are needed. With it says whether they are enough, and by how much
/// they are short of raw capacity, without headroom and spares.
#[derive(Debug, Args)]
pub struct Plan {
    /// Requests or connections a second
    #[arg(long, value_name = "R", value_parser = parse_rate)]
    pub rate: f64,

    /// How long each stays, like 65ms
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub latency: Duration,

    /// What one node can have in flight
    #[arg(long, value_name = "C", value_parser = clap::value_parser!(u32).range(COUNT))]
    pub per_node: u32,

    /// Added on top of what is in flight, like 25% or 0.25
    #[arg(long, value_name = "H", default_value = "25%", value_parser = parse_headroom)]
    pub headroom: f64,

    /// Nodes that may be missing at once
    #[arg(long, value_name = "K", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=COUNT_MAX))]
    pub spare: u32,

    /// The fleet to judge
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(COUNT))]
    pub nodes: Option<u32>,

    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// The chance that a request which waits for many services meets a slow one
#[derive(Debug, Args)]
pub struct Tail {
    /// Chance that one service is slow, like 0.015 or 1.5%
    #[arg(long, value_name = "P", value_parser = parse_share)]
    pub p: f64,

    /// Services that a request waits for
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(COUNT))]
    pub fan_out: u32,

    /// Also the largest fan-out with a chance below this
    #[arg(long, value_name = "T", default_value = "5%", value_parser = parse_share)]
    pub target: f64,

    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

const COUNT_MAX: i64 = crate::limits::SIMULATE_COUNT as i64;
const COUNT: std::ops::RangeInclusive<i64> = 1..=COUNT_MAX;

/// Replay a workload against balancing policies on a virtual clock; opens no socket
///
/// Runs the policies, checks, ejections, retries and hedges of the data plane themselves. Every policy meets the same
/// arrivals and service times, and equal seeds give equal results. Times are like 0.2ms, 20ms or
/// 2s, shares like 0.1 or 10%, and backends are numbered from 1.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("load").args(["rate", "clients"]).required(true))]
#[command(group = ArgGroup::new("end").args(["requests", "duration"]).required(true).multiple(true))]
pub struct Workload {
    /// Policies to compare, as a list with commas
    #[arg(long, value_name = "P,…", value_delimiter = ',', default_value = "least_conn")]
    #[arg(value_parser = policies())]
    pub policy: Vec<PolicyKind>,

    /// Number of backends
    #[arg(long, value_name = "N")]
    pub backends: usize,

    /// Time a request takes: constant:20ms, exp:MEAN, lognormal:MEDIAN:SIGMA, pareto:MIN:ALPHA or
    /// bimodal:FAST:SLOW:P
    #[arg(long, value_name = "DIST")]
    pub service: Distribution,

    /// Open loop: arrivals a second, at random (Poisson)
    #[arg(long, value_name = "R", value_parser = parse_rate)]
    pub rate: Option<f64>,

    /// Closed loop: clients with one request at a time each
    #[arg(long, value_name = "N")]
    pub clients: Option<usize>,

    /// How long a client of a closed loop thinks between two requests
    #[arg(long, value_name = "DIST", default_value = "0s", conflicts_with = "rate")]
    pub think: Distribution,

    /// End after so many requests
    #[arg(long, value_name = "N")]
    pub requests: Option<u64>,

    /// End after this time; what is under way then stays open
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Duration>,

    /// Requests that a backend serves at once; others wait in line
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub slots: usize,

    /// Way to a backend, and as much back
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_time)]
    pub hop: Duration,

    /// Weights, one for each backend
    #[arg(long, value_name = "W,…", value_delimiter = ',')]
    pub weights: Vec<u16>,

    /// Backend K is a backup, used only when no other can be; may be repeated
    #[arg(long, value_name = "K", value_parser = parse_backend)]
    pub backup: Vec<usize>,

    /// Backend K takes FACTOR times as long; may be repeated
    #[arg(long, value_name = "K:FACTOR", value_parser = parse_slow)]
    pub slow: Vec<(usize, f64)>,

    /// Backend K takes TIME more for each request; may be repeated
    #[arg(long, value_name = "K:TIME", value_parser = parse_stall)]
    pub stall: Vec<(usize, Duration)>,

    /// Backend K dies at T: resets and refusals; may be repeated
    #[arg(long, value_name = "K@T", value_parser = parse_moment)]
    pub kill: Vec<(usize, Duration)>,

    /// The host of backend K is gone at T: silence; may be repeated
    #[arg(long, value_name = "K@T", value_parser = parse_moment)]
    pub vanish: Vec<(usize, Duration)>,

    /// Backend K is back at T; may be repeated
    #[arg(long, value_name = "K@T", value_parser = parse_moment)]
    pub revive: Vec<(usize, Duration)>,

    /// Of everything that is left to chance
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,

    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Print no chart of the load over time
    #[arg(long)]
    pub no_chart: bool,

    #[command(flatten)]
    pub pool: PoolArgs,
}

/// Why arguments that are each fine make no sense together.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Nonsense {
    #[error("{weights} weights for {backends} backends; give one for each")]
    Weights { weights: usize, backends: usize },
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

impl Workload {
    pub fn scenario(&self) -> Result<Scenario, Nonsense> {
        // The library bounds them; but not before they take memory.
        if self.backends > crate::limits::BACKENDS_PER_POOL {
            return Err(ScenarioError::Backends(self.backends).into());
        }
        let load = match (self.rate, self.clients) {
            (Some(rate), _) => Load::Open(rate),
            (None, clients) => Load::Closed(clients.unwrap_or(0), self.think),
        };
        let scenario = Scenario::new(self.backends, self.slots, self.service, load);
        let pool = &self.pool;
        Ok(Scenario {
            backends: self.backend_list(scenario.backends)?,
            hop: self.hop,
            requests: self.requests,
            duration: self.duration,
            incidents: self.incidents(),
            checks: pool.checks(),
            panic_threshold: pool.panic_threshold.0,
            connect: pool.connect(),
            outlier: pool.outlier(),
            slow_start: pool.slow_start.0,
            max_connections: pool.max_connections.0,
            keys: pool.keys,
            hot: pool.hot,
            seed: self.seed,
            ..scenario
        })
    }

    /// Bounded load is for the policies that hash; the others have their own ways.
    pub fn specs(&self) -> Vec<Spec> {
        let spec = |&policy: &PolicyKind| Spec {
            policy,
            key: self.pool.key,
            table_size: self.pool.table_size,
            bounded_load: self.pool.bounded_load.filter(|_| policy.hashes()),
        };
        self.policy.iter().map(spec).collect()
    }

    fn backend_list(&self, mut backends: Vec<Backend>) -> Result<Vec<Backend>, Nonsense> {
        let count = backends.len();
        if !self.weights.is_empty() && self.weights.len() != count {
            return Err(Nonsense::Weights { weights: self.weights.len(), backends: count });
        }
        for (backend, &weight) in backends.iter_mut().zip(&self.weights) {
            backend.weight = weight;
        }
        let missing = |index| ScenarioError::NoSuchBackend { number: index + 1, count };
        for &(index, factor) in &self.slow {
            backends.get_mut(index).ok_or_else(|| missing(index))?.factor = factor;
        }
        for &(index, stall) in &self.stall {
            backends.get_mut(index).ok_or_else(|| missing(index))?.stall = stall;
        }
        for &index in &self.backup {
            backends.get_mut(index).ok_or_else(|| missing(index))?.backup = true;
        }
        Ok(backends)
    }

    fn incidents(&self) -> Vec<Incident> {
        let turns = [
            (&self.kill, Turn::Killed),
            (&self.vanish, Turn::Vanished),
            (&self.revive, Turn::Revived),
        ];
        let of = |(moments, turn): (&Vec<(usize, Duration)>, Turn)| {
            moments.clone().into_iter().map(move |(backend, at)| Incident { backend, at, turn })
        };
        turns.into_iter().flat_map(of).collect()
    }
}
