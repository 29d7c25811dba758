//! Balancing policies, one file each, all pure: `pick` looks at a [`View`] and returns an index.
//!
//! A [`Policy`] is built once per configuration and then only read. What changes between picks
//! comes in as arguments: the view, the connection's hash, the pool's ticket counter, an rng.

use std::cmp::Ordering;
use std::fmt;
use std::sync::atomic::AtomicU64;

use crate::limits::{BACKENDS_PER_POOL, WEIGHT_MAX};

pub mod key;

pub mod latency;

mod stage;

mod bounded;
mod digest;
mod fixed;
mod hash;
mod least_conn;
mod maglev;
mod p2c;
mod peak_ewma;
mod random;
mod rendezvous;
mod ring;
mod round_robin;

#[cfg(test)]
mod tests;

pub use bounded::Bound;
pub use stage::{FULL_PULL, Stage};

/// Which policy a pool uses, and its parameters, as the configuration says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The policy.
    pub policy: PolicyKind,
    /// What a hash policy hashes.
    pub key: key::KeyKind,
    /// Slots of a Maglev table; a prime not below the number of backends.
    pub table_size: usize,
    /// How far above its fair share a hash policy may load a backend; `None`: as far as keys go.
    pub bounded_load: Option<Bound>,
}

/// The policies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PolicyKind {
    RoundRobin,
    Random,
    LeastConn,
    P2c,
    PeakEwma,
    Hash,
    Ring,
    Rendezvous,
    Maglev,
}

impl PolicyKind {
    /// Every policy, in the order of the README.
    pub const ALL: [PolicyKind; 9] = [
        PolicyKind::RoundRobin,
        PolicyKind::Random,
        PolicyKind::LeastConn,
        PolicyKind::P2c,
        PolicyKind::PeakEwma,
        PolicyKind::Hash,
        PolicyKind::Ring,
        PolicyKind::Rendezvous,
        PolicyKind::Maglev,
    ];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::RoundRobin => "round_robin",
            PolicyKind::Random => "random",
            PolicyKind::LeastConn => "least_conn",
            PolicyKind::P2c => "p2c",
            PolicyKind::PeakEwma => "peak_ewma",
            PolicyKind::Hash => "hash",
            PolicyKind::Ring => "ring",
            PolicyKind::Rendezvous => "rendezvous",
            PolicyKind::Maglev => "maglev",
        }
    }

    /// Whether a pick depends on a hash of the connection.
    pub fn hashes(self) -> bool {
        use PolicyKind::{Hash, Maglev, Rendezvous, Ring};
        matches!(self, Hash | Ring | Rendezvous | Maglev)
    }

    /// Whether a pick goes by load, in which [`View::pull`] is counted.
    pub fn goes_by_load(self) -> bool {
        use PolicyKind::{LeastConn, P2c, PeakEwma};
        matches!(self, LeastConn | P2c | PeakEwma)
    }

    /// Whether a pick depends on measured latencies.
    pub fn measures(self) -> bool {
        self == PolicyKind::PeakEwma
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
    /// Its load, if it is usable; as one look, for policies that look at many.
    fn load(&self, index: usize) -> Option<Load> {
        self.usable(index).then(|| Load::of(self, index))
    }
    /// The same of one that is known to be usable.
    fn carries(&self, index: usize) -> Load {
        Load::of(self, index)
    }
    /// The usable backend with the least load, each of equals with the same chance, where the view
    /// can tell without a look at each.
    fn least(&self, _rng: &mut fastrand::Rng) -> Option<usize> {
        None
    }
    /// How much of its share it gets, in percent: less than 100 while it warms up. Policies that go
    /// by load count it into the weight; for the others the view makes it unusable now and then.
    fn pull(&self, _index: usize) -> u8 {
        FULL_PULL
    }
    /// Nanoseconds that it is expected to take. Asked for by [`PolicyKind::measures`] alone.
    fn latency(&self, _index: usize) -> u64 {
        0
    }
    /// The sum over all of [`View::active`].
    fn total_active(&self) -> u32 {
        (0..self.len()).fold(0, |total, index| total.saturating_add(self.active(index)))
    }
    /// Σ of the weights of usable backends. May be of a moment ago.
    fn usable_weight(&self) -> u32 {
        let usable = (0..self.len()).filter(|&index| self.usable(index));
        usable.map(|index| u32::from(self.weight(index))).sum()
    }
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
    /// Above [`crate::limits::RING_POINTS`].
    #[error("a ring of {0} points; at most {max}", max = crate::limits::RING_POINTS)]
    RingTooLarge(usize),
}

/// A policy with the tables it needs for one set of backends.
#[derive(Clone, Debug)]
pub struct Policy {
    table: Table,
    bound: Option<Bound>,
}

/// Each policy and what it looks up.
#[derive(Clone, Debug)]
enum Table {
    RoundRobin(round_robin::RoundRobin),
    Random(random::Random),
    LeastConn,
    P2c(random::Random),
    PeakEwma(random::Random),
    Hash(hash::Modulo),
    Ring(ring::Ring),
    Rendezvous(rendezvous::Rendezvous),
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
        let table = match spec.policy {
            PolicyKind::RoundRobin => Table::RoundRobin(round_robin::RoundRobin::new(weights())),
            PolicyKind::Random => Table::Random(random::Random::new(weights())),
            PolicyKind::LeastConn => Table::LeastConn,
            PolicyKind::P2c => Table::P2c(random::Random::new(weights())),
            PolicyKind::PeakEwma => Table::PeakEwma(random::Random::new(weights())),
            PolicyKind::Hash => Table::Hash(hash::Modulo::new(weights())),
            PolicyKind::Ring => Table::Ring(ring::Ring::new(members)?),
            PolicyKind::Rendezvous => Table::Rendezvous(rendezvous::Rendezvous::new(members)),
            PolicyKind::Maglev => Table::Maglev(maglev::Maglev::new(spec.table_size, members)?),
        };
        Ok(Policy { table, bound: spec.bounded_load })
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
        match &self.table {
            Table::RoundRobin(schedule) => schedule.pick(view, tickets, rng),
            Table::Random(random) => random.pick(view, rng),
            Table::LeastConn => least_conn::pick(view, rng),
            Table::P2c(random) => p2c::pick(random, view, rng),
            Table::PeakEwma(random) => peak_ewma::pick(random, view, rng),
            _ => {
                // What the bound leaves may be nothing: a retry, for one, has no use for the room
                // on the backends that have failed it. It is no reason to refuse a connection.
                let bounded = self.bound.and_then(|bound| self.pick_bounded(view, bound, hash));
                bounded.or_else(|| self.pick_by_hash(view, hash))
            }
        }
    }

    fn pick_by_hash(&self, view: &impl View, hash: u64) -> Option<usize> {
        match &self.table {
            Table::Hash(modulo) => modulo.pick(view, hash),
            Table::Ring(ring) => ring.pick(view, hash),
            Table::Rendezvous(scores) => scores.pick(view, hash),
            Table::Maglev(table) => table.pick(view, hash),
            _ => None,
        }
    }

    fn pick_bounded(&self, view: &impl View, bound: Bound, hash: u64) -> Option<usize> {
        let capped = bounded::Capped::new(view, bound);
        match &self.table {
            // Its modulus is over what is usable, full or not: else a full backend would move
            // every key.
            Table::Hash(modulo) => modulo.pick_from(view, &capped, hash),
            _ => self.pick_by_hash(&capped, hash),
        }
    }

    /// Where `hash` falls while all is usable: a slot of the Maglev table, a point of the ring,
    /// a unit of the weight laid end to end (`hash`). The other policies have no such thing.
    pub fn slot(&self, hash: u64) -> Option<u64> {
        match &self.table {
            Table::Hash(modulo) => modulo.slot(hash),
            Table::Ring(ring) => ring.slot(hash),
            Table::Maglev(table) => table.slot(hash),
            _ => None,
        }
    }

    /// 48 bits that are equal wherever keys are picked for alike, and most likely nowhere else;
    /// `None` for policies that do not hash. `spec` and `members` are those the policy was built
    /// of, `seed` is the configuration's `hash_seed`.
    pub fn digest(&self, spec: &Spec, seed: u64, members: &[Member<'_>]) -> Option<u64> {
        let mut digest = digest::start(spec, seed, members)?;
        match &self.table {
            Table::Ring(ring) => ring.digest(&mut digest),
            Table::Maglev(table) => table.digest(&mut digest),
            // Nothing but members and weights.
            _ => {}
        }
        Some(digest.digest() >> 16)
    }
}

/// What a backend has to carry, and what share of the whole is meant for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Sessions and attempts.
    pub active: u32,
    /// Weight times pull.
    pub share: u32,
}

impl Load {
    fn of(view: &(impl View + ?Sized), index: usize) -> Load {
        let share = u32::from(view.weight(index)) * u32::from(view.pull(index));
        Load { active: view.active(index), share }
    }

    /// Orders by what it would be with one more connection: `(active + 1) / share`, compared by
    /// cross-multiplication. The `+ 1` makes a heavy backend preferred among idle ones. HAProxy's
    /// `leastconn` orders by the same quotient.
    fn compare(self, other: Load) -> Ordering {
        let ahead = |a: Load, b: Load| (u64::from(a.active) + 1) * u64::from(b.share);
        ahead(self, other).cmp(&ahead(other, self))
    }
}
