//! What a policy would do to a fleet, before it is tried: a discrete-event simulation on a virtual
//! clock that runs the policies and the health machines of the data plane themselves.
//!
//! # The model
//!
//! A request is a connection with one question and one answer.
//!
//! - **Load.** Open loop: requests arrive by a Poisson process, whatever becomes of them. Closed
//!   loop: each client has one request at a time, and issues the next when the answer has come and
//!   it has thought for a while. All clients start at time 0, in order.
//! - **Way.** A pick takes no time. The request reaches its backend a hop later, together with the
//!   attempt to connect, whose success or failure the balancer knows after another hop; the answer
//!   reaches the client a hop after it was ready. The backend counts as busy with it, in what
//!   policies see, from the pick until then.
//! - **Backend.** It serves as many requests at once as it has slots; the others wait in one line,
//!   first in, first out. A slow one takes a factor longer, a stalling one some time longer, with
//!   the slot held.
//! - **Latency** is from issue to answer, failed attempts included. `peak_ewma` is told the time
//!   from the pick to the answer. A percentile p is the nearest rank: the ⌈p × n⌉-th smallest.
//! - **Death.** A killed backend resets what it has and refuses what comes: its host lives. A
//!   vanished one is silent: connecting runs into its timeout, and what it had is lost when
//!   TCP_USER_TIMEOUT is over. A request that was with its backend is never sent again, as a
//!   balancer of connections cannot. A client of a closed loop whose request failed comes back
//!   after [`FAILURE_PAUSE`].
//! - **Attempts** follow the rules of the data plane, within the same
//!   [`RetryBudget`](crate::health::budget::RetryBudget): on different backends, then again after a
//!   [`Backoff`](crate::health::backoff::Backoff), and beside one that takes long where
//!   [`HedgeAfter`](crate::health::connect::HedgeAfter) says so. The first at the door of a backend
//!   that lives has the request served. One that was overtaken although it had its time counts as
//!   a failure, and as load until it would have timed out.
//! - **States** are a [`Standing`](crate::health::Standing) each, from all backends up: by checks,
//!   on their [`Schedule`](crate::health::Schedule), to which slots do not matter, since the
//!   kernel answers; and by failed connects, with ejection, trials and slow start. Control looks
//!   at the moment it is asked to.
//! - **Chance.** What befalls a request is a function of the seed and of its number, so every
//!   policy of a run meets the very same arrivals, keys and service times.
//!
//! Events of the same time happen in the order in which they were scheduled. Three parts know
//! nothing of each other's insides: `world` is the clients, the backends and time; `pool` is
//! what balances, and the only place that knows policies and checks; `report` is what is told.

use std::time::Duration;

pub mod distribution;
pub mod plan;
pub mod report;
pub mod scenario;
pub mod tail;
pub mod units;

mod agenda;
mod draws;
mod pool;
mod probes;
mod requests;
mod server;
mod timeline;
mod world;

#[cfg(test)]
mod tests;

pub use distribution::Distribution;
pub use report::Report;
pub use scenario::{Scenario, ScenarioError};

use crate::balance::Spec;
use crate::limits::{SIMULATE_REQUESTS, SIMULATE_STEPS, SIMULATE_TIME};
use pool::Tables;
use world::{Bounds, World};

/// How long a client of a closed loop waits after a failure, besides thinking. Without it, clients
/// of a pool with nothing to offer would spin at one point in time.
pub const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// How long what a vanished backend had stays open: `timeouts.user_timeout` as by default.
pub const USER_TIMEOUT: Duration = Duration::from_secs(120);

/// Why a run was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum RunError {
    #[error("more than {SIMULATE_REQUESTS} requests; shorten the duration or slow the clients")]
    Requests,
    #[error("more than {SIMULATE_STEPS} steps; take fewer backends, requests or checks")]
    Steps,
    #[error("not done after {} days; give it a duration", SIMULATE_TIME.as_secs() / 86_400)]
    Time,
}

/// A scenario that makes sense, and the policies to be compared on it.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    policies: Vec<(Spec, Tables)>,
}

impl Simulation {
    /// Builds the policies' tables.
    ///
    /// # Errors
    ///
    /// What makes no sense, or is beyond a limit.
    pub fn new(scenario: Scenario, specs: &[Spec]) -> Result<Simulation, ScenarioError> {
        scenario.validate()?;
        if specs.is_empty() {
            return Err(ScenarioError::NoPolicy);
        }
        let mut policies = Vec::with_capacity(specs.len());
        for (index, spec) in specs.iter().enumerate() {
            if specs[..index].contains(spec) {
                return Err(ScenarioError::PolicyTwice(spec.policy));
            }
            policies.push((*spec, Tables::new(spec, &scenario)?));
        }
        Ok(Simulation { scenario, policies })
    }

    /// What is simulated.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Runs one policy after the other, in the order given.
    ///
    /// # Errors
    ///
    /// When a run goes beyond what it may cost.
    pub fn run(&self) -> Result<Vec<Report>, RunError> {
        self.run_within(Bounds::LIMITS)
    }

    fn run_within(&self, bounds: Bounds) -> Result<Vec<Report>, RunError> {
        let one = |(spec, tables): &(Spec, Tables)| {
            World::new(&self.scenario, spec, tables, bounds).run()
        };
        self.policies.iter().map(one).collect()
    }
}
