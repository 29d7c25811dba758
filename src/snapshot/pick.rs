//! Picking a backend of a pool and taking a place on it.
//!
//! First among the backends proper, then among the backups, then, in panic, among all whatever
//! their state. One that warms up counts for less where picks go by load; otherwise it is passed
//! over by a share of the connections, unless there is no other.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::pool::{Member, Pool, Tried};
use crate::balance::{Load, Policy, Stage, View};
use crate::health::State;
use crate::limits::PICK_RACES;
use crate::state::{Full, Lease, Standing};

/// What came of a pick.
#[derive(Debug)]
pub enum Pick {
    /// A place on the backend of this index.
    Backend(usize, Lease),
    /// Every backend that could have been picked has as many connections as it may.
    BackendsFull,
    /// The pool has as many connections as it may.
    PoolFull,
    /// No backend can be picked.
    Nothing,
}

impl Pool {
    /// Picks a backend that is not among those tried, and takes a place on it. `hash` is asked for
    /// only by the policies that use it.
    pub fn pick(&self, tried: &Tried, hash: impl FnOnce() -> u64, rng: &mut fastrand::Rng) -> Pick {
        let hash = if self.spec.policy.hashes() { hash() } else { 0 };
        let mut candidates = Candidates::new(self, tried, hash, rng);
        for _ in 0..PICK_RACES {
            let Some(index) = candidates.find(hash, rng) else {
                return if candidates.would_have_room() {
                    Pick::BackendsFull
                } else {
                    Pick::Nothing
                };
            };
            let backend = &self.backends[index].state;
            let ejected = self.words.get(index).state() == State::Ejected;
            let lease = match (ejected, candidates.stage.panic) {
                (false, _) => backend.lease(),
                (true, false) => backend.lease_for_trial(),
                // It would have been picked anyway, but may show that panic can end.
                (true, true) => backend.lease_trying(),
            };
            match lease {
                Ok(lease) => return Pick::Backend(index, lease),
                Err(Full::Pool) => return Pick::PoolFull,
                // Another worker took the last place after this one had seen it.
                Err(Full::Backend) => {}
            }
        }
        Pick::BackendsFull
    }

    /// The backend that [`Pool::pick`] would take a place on.
    pub fn choose(&self, tried: &Tried, hash: u64, rng: &mut fastrand::Rng) -> Option<usize> {
        Candidates::new(self, tried, hash, rng).find(hash, rng)
    }
}

/// By the words of control and of the operator, whom panic does not override.
fn usable(standing: Standing, panic: bool) -> bool {
    if panic { standing.is_ready() } else { standing.is_usable() }
}

fn load(member: Member, standing: Standing) -> Load {
    let share = u32::from(member.weight) * u32::from(standing.pull());
    Load { active: standing.active(), share }
}

struct Candidates<'a> {
    pool: &'a Pool,
    tried: &'a Tried,
    stage: Stage,
    warming: bool,
    /// Decides which of those that warm up are left out.
    salt: u64,
    /// The moment of the pick, and the latency of a backend that nothing is known of.
    latency: Option<(Instant, u64)>,
}

impl<'a> Candidates<'a> {
    fn new(pool: &'a Pool, tried: &'a Tried, hash: u64, rng: &mut fastrand::Rng) -> Self {
        let (warming, policy) = (pool.state.warming(), pool.spec.policy);
        Candidates {
            pool,
            tried,
            stage: Stage::PLAIN,
            warming,
            // A key that hashes comes to a backend once, when that is warm enough for it.
            salt: if warming && !policy.hashes() { rng.u64(..) } else { hash },
            // Only this policy needs a clock, and what the pool is like.
            latency: policy.measures().then(|| (Instant::now(), pool.state.latency())),
        }
    }

    fn find(&mut self, hash: u64, rng: &mut fastrand::Rng) -> Option<usize> {
        // In turn with the first picks, retries would push these back onto the backend that fails.
        let again = self.tried.count() > 0;
        let aside = AtomicU64::new(if again { rng.u64(..) } else { 0 });
        let passes_over = self.warming && !self.pool.spec.policy.goes_by_load();
        for stage in Stage::order(self.pool.state.panic(), passes_over) {
            self.stage = stage;
            let policy: Option<&Policy> =
                if stage.backups { self.pool.backups.as_ref() } else { Some(&self.pool.policy) };
            let tickets = if again { &aside } else { self.pool.state.tickets() };
            let found = policy.and_then(|p| p.pick(self, hash, tickets, rng));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Whether a backend is left out only because it is full.
    fn would_have_room(&self) -> bool {
        let panic = self.pool.state.panic();
        let fits = |index| {
            let member = self.pool.members[index];
            let state = usable(self.pool.words.get(index), panic);
            member.weight > 0 && state && !self.tried.contains(index)
        };
        (0..self.len()).any(fits)
    }

    /// Whether it is ejected, and its time is over: a few connections try it.
    fn may_try(&self, index: usize, standing: Standing) -> bool {
        standing.is_ready()
            && standing.state() == State::Ejected
            && self.pool.backends[index].state.passive().trials.available()
    }
}

impl View for Candidates<'_> {
    fn len(&self) -> usize {
        self.pool.members.len()
    }

    fn usable(&self, index: usize) -> bool {
        self.load(index).is_some()
    }

    fn load(&self, index: usize) -> Option<Load> {
        let (member, word) = (self.pool.members[index], self.pool.words.word(index));
        let standing = word.get();
        let usable = member.weight > 0
            && member.backup == self.stage.backups
            && (usable(standing, self.stage.panic) || self.may_try(index, standing))
            && !word.is_full(standing)
            && !self.stage.passes_over(self.salt, index, standing.pull())
            && !self.tried.contains(index);
        usable.then(|| load(member, standing))
    }

    fn carries(&self, index: usize) -> Load {
        load(self.pool.members[index], self.pool.words.get(index))
    }

    fn least(&self, rng: &mut fastrand::Rng) -> Option<usize> {
        let state = &self.pool.state;
        let all_plain = self.pool.alike && !self.warming && !state.trying();
        let plain = all_plain && self.tried.count() == 0;
        if plain && self.stage == Stage::PLAIN { self.pool.words.least_active(rng) } else { None }
    }

    fn active(&self, index: usize) -> u32 {
        self.pool.words.get(index).active()
    }

    fn weight(&self, index: usize) -> u16 {
        self.pool.members[index].weight
    }

    fn pull(&self, index: usize) -> u8 {
        self.pool.words.get(index).pull()
    }

    fn latency(&self, index: usize) -> u64 {
        let of = |(now, prior)| self.pool.backends[index].state.latency(now, prior);
        self.latency.map_or(0, of)
    }

    fn total_active(&self) -> u32 {
        self.pool.state.active()
    }

    fn usable_weight(&self) -> u32 {
        if self.pool.capped || self.stage != Stage::PLAIN {
            let usable = (0..self.len()).filter(|&index| self.usable(index));
            return usable.map(|index| u32::from(self.weight(index))).sum();
        }
        let gone = self.tried.indices().filter(|&index| {
            self.pool.words.get(index).is_usable() && !self.pool.members[index].backup
        });
        let gone = gone.map(|index| u32::from(self.weight(index))).sum();
        self.pool.up_weight.load(Relaxed).saturating_sub(gone)
    }
}

#[cfg(test)]
mod tests;
