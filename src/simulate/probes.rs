//! How many keys a change of the pool moves.

use super::draws::Client;
use super::pool::Pool;
use super::scenario::Scenario;
use crate::balance::Spec;
use crate::limits::{BACKENDS_PER_POOL, SIMULATE_PROBES};

/// A look at every key may cost a look at every backend, as for `rendezvous`: so many in all.
const LOOKS: usize = SIMULATE_PROBES * BACKENDS_PER_POOL / 10;

/// Keys and where they would go in an idle pool.
#[derive(Debug)]
pub(super) struct Probes {
    hashes: Vec<u64>,
    homes: Vec<Option<usize>>,
}

/// Shares of all keys, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// Keys that go elsewhere than before.
    pub all: f64,
    /// Those of them that moved between two backends that did not change.
    pub between_others: f64,
}

impl Probes {
    /// Where keys go now; `None` for policies that do not hash.
    pub fn new(scenario: &Scenario, spec: &Spec, pool: &mut Pool<'_>) -> Option<Probes> {
        if !spec.policy.hashes() {
            return None;
        }
        let count = SIMULATE_PROBES.min(LOOKS / scenario.backends.len()) as u32;
        let clients = (0..count).map_while(|n| Client::numbered(scenario, spec.key, n));
        let hashes: Vec<u64> = clients.map(|client| client.hash(spec)).collect();
        let homes = hashes.iter().map(|&hash| pool.home(hash)).collect();
        Some(Probes { hashes, homes })
    }

    /// What moved since the last look, now that `changed` went up or down.
    pub fn look(&mut self, pool: &mut Pool<'_>, changed: usize) -> Moved {
        let (mut all, mut between_others) = (0, 0);
        for (&hash, home) in self.hashes.iter().zip(&mut self.homes) {
            let now = pool.home(hash);
            let before = std::mem::replace(home, now);
            if before != now {
                all += 1;
                between_others += u32::from(![before, now].contains(&Some(changed)));
            }
        }
        let share = |count: u32| f64::from(count) / self.hashes.len().max(1) as f64;
        Moved { all: share(all), between_others: share(between_others) }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }
}
