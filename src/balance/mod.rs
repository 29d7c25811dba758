//! Balancing policies, one file each, all pure: `pick` looks at a [`View`] and returns an index.
//!
//! A [`Policy`] is built once per configuration and then only read. What changes between picks
//! comes in as arguments: the view, the connection's hash, the pool's ticket counter, an rng.

use std::fmt;
use std::sync::atomic::AtomicU64;

use crate::limits::{BACKENDS_PER_POOL, WEIGHT_MAX};

pub mod key;

mod hash;
mod least_conn;
mod maglev;
mod p2c;
mod random;
mod round_robin;

#[cfg(test)]
mod tests;

/// Which policy a pool uses, and its parameters, as the configuration says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The policy.
    pub policy: PolicyKind,
    /// What a hash policy hashes.
    pub key: key::KeyKind,
    /// Slots of a Maglev table; a prime not below the number of backends.
    pub table_size: usize,
}

/// The policies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PolicyKind {
    RoundRobin,
    Random,
    LeastConn,
    P2c,
    Hash,
    Maglev,
}

impl PolicyKind {
    /// Every policy, in the order of the README.
    pub const ALL: [PolicyKind; 6] = [
        PolicyKind::RoundRobin,
        PolicyKind::Random,
        PolicyKind::LeastConn,
        PolicyKind::P2c,
        PolicyKind::Hash,
        PolicyKind::Maglev,
    ];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::RoundRobin => "round_robin",
            PolicyKind::Random => "random",
            PolicyKind::LeastConn => "least_conn",
            PolicyKind::P2c => "p2c",
            PolicyKind::Hash => "hash",
            PolicyKind::Maglev => "maglev",
        }
    }

    /// Whether a pick depends on a hash of the connection.
    pub fn hashes(self) -> bool {
        matches!(self, PolicyKind::Hash | PolicyKind::Maglev)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a policy may know of a pool at the moment of a pick. Indices are stable within a pool:
/// backends are ordered by their canonical address, bytewise.
pub trait View {
    /// Number of backends.
    fn len(&self) -> usize;
    /// No backend at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether this backend may be picked now.
    fn usable(&self, index: usize) -> bool;
    /// Sessions and connection attempts it has at the moment.
    fn active(&self, index: usize) -> u32;
    /// Its weight; 0 is never usable.
    fn weight(&self, index: usize) -> u16;
}

/// A backend as a policy's tables see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The canonical address.
    pub key: &'a str,
    /// 0 takes no part, however it is hashed.
    pub weight: u16,
}

/// Why a policy cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// More than [`BACKENDS_PER_POOL`].
    #[error("{0} backends in one pool; at most {BACKENDS_PER_POOL}")]
    TooManyBackends(usize),
    /// Above [`WEIGHT_MAX`].
    #[error("weight {0}; at most {WEIGHT_MAX}")]
    Weight(u16),
    /// A Maglev permutation visits every slot only if their number is prime.
    #[error("a table of {0} slots; the number must be prime")]
    TableNotPrime(usize),
    /// Not every backend could have a slot.
    #[error("a table of {slots} slots for {backends} backends; at least one slot each")]
    TableTooSmall {
        /// Slots asked for.
        slots: usize,
        /// Backends of the pool.
        backends: usize,
    },
    /// Above [`crate::limits::MAGLEV_TABLE_MAX`].
    #[error("a table of {0} slots; at most {max}", max = crate::limits::MAGLEV_TABLE_MAX)]
    TableTooLarge(usize),
}

/// A policy with the tables it needs for one set of backends.
#[derive(Clone, Debug)]
pub enum Policy {
    /// Smooth weighted turns.
    RoundRobin(round_robin::RoundRobin),
    /// Independent weighted draws.
    Random(random::Random),
    /// The least loaded of all.
    LeastConn,
    /// The less loaded of two draws.
    P2c(random::Random),
    /// Hash modulo the usable weight.
    Hash,
    /// Hash into a Maglev table.
    Maglev(maglev::Maglev),
}

impl Policy {
    /// Builds the tables. `members` are in the order of the view: by key, bytewise ascending, each
    /// key once. Equal members give equal picks for equal hashes, on any machine and build.
    pub fn new(spec: &Spec, members: &[Member<'_>]) -> Result<Policy, BuildError> {
        debug_assert!(members.is_sorted_by(|a, b| a.key < b.key), "members sorted by key");
        if members.len() > BACKENDS_PER_POOL {
            return Err(BuildError::TooManyBackends(members.len()));
        }
        if let Some(member) = members.iter().find(|member| member.weight > WEIGHT_MAX) {
            return Err(BuildError::Weight(member.weight));
        }
        let weights = || members.iter().map(|member| member.weight);
        Ok(match spec.policy {
            PolicyKind::RoundRobin => Policy::RoundRobin(round_robin::RoundRobin::new(weights())),
            PolicyKind::Random => Policy::Random(random::Random::new(weights())),
            PolicyKind::LeastConn => Policy::LeastConn,
            PolicyKind::P2c => Policy::P2c(random::Random::new(weights())),
            PolicyKind::Hash => Policy::Hash,
            PolicyKind::Maglev => Policy::Maglev(maglev::Maglev::new(spec.table_size, members)?),
        })
    }

    /// The backend for one connection attempt; `None` only if nothing was usable. Ends after a
    /// bounded number of steps even if the view changes its mind while it is being read.
    ///
    /// `hash` is what [`key::KeyKind::hash`] makes of the connection (any value where the policy
    /// does not hash); `tickets` is the pool's counter, shared by all workers.
    pub fn pick(
        &self,
        view: &impl View,
        hash: u64,
        tickets: &AtomicU64,
        rng: &mut fastrand::Rng,
    ) -> Option<usize> {
        match self {
            Policy::RoundRobin(schedule) => schedule.pick(view, tickets, rng),
            Policy::Random(random) => random.pick(view, rng),
            Policy::LeastConn => least_conn::pick(view, rng),
            Policy::P2c(random) => p2c::pick(random, view, rng),
            Policy::Hash => hash::pick(view, hash),
            Policy::Maglev(table) => table.pick(view, hash),
        }
    }
}

/// Orders two backends by the load they would have with one more connection, for their weight:
/// `(active + 1) / weight`, compared by cross-multiplication. The `+ 1` makes a heavy backend
/// preferred among idle ones. HAProxy's `leastconn` orders by the same quotient.
fn by_load(a: (u32, u16), b: (u32, u16)) -> std::cmp::Ordering {
    let ahead = |active: u32, other_weight: u16| (u64::from(active) + 1) * u64::from(other_weight);
    ahead(a.0, b.1).cmp(&ahead(b.0, a.1))
}
