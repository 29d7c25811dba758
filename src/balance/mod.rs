//! Balancing policies, one file each, all pure: `pick` looks at a [`View`] and returns an index.

use std::fmt;

pub mod key;

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
