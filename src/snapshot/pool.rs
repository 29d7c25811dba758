//! A pool as workers see it: the policy's tables over backends whose state changes under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use crate::balance::{Policy, Spec, View};
use crate::config::{Connect, HealthCheck, PanicThreshold};
use crate::limits::ATTEMPTS_MAX;
use crate::state::{BackendState, PoolState};
use crate::sys::socket::TcpOptions;

/// A pool with its policy's tables.
#[derive(Debug)]
pub struct Pool {
    /// Its name.
    pub name: Arc<str>,
    /// The policy and its parameters.
    pub spec: Spec,
    /// The policy's tables, over `backends`.
    pub policy: Policy,
    /// Of the policy's tables; `None` where nothing is hashed.
    pub digest: Option<u64>,
    /// Seed of the hash.
    pub hash_seed: u64,
    /// Ordered by canonical address, bytewise.
    pub backends: Vec<Backend>,
    /// Σ of the weights of backends that are up, so that picks know without looking whether all
    /// are. Control writes, through [`Pool::weigh`]; workers read.
    pub(super) up_weight: AtomicU32,
    /// How backends are connected to.
    pub connect: Connect,
    /// Active checks.
    pub health: Option<HealthCheck>,
    /// When the state of backends is ignored.
    pub panic_threshold: PanicThreshold,
    /// Its counters.
    pub state: Arc<PoolState>,
}

/// A backend in its pool.
#[derive(Debug)]
pub struct Backend {
    /// Its name in this configuration.
    pub name: Arc<str>,
    /// Its weight.
    pub weight: u16,
    /// Where it is, its state and its counters.
    pub state: Arc<BackendState>,
}

/// The backends that one connection has been to, and failed at.
#[derive(Debug, Default)]
pub struct Tried {
    indices: [u16; ATTEMPTS_MAX],
    count: u8,
}

impl Tried {
    /// Adds one; beyond [`ATTEMPTS_MAX`] nothing is added, and no more attempts are made.
    pub fn add(&mut self, index: usize) {
        let (Ok(index), Some(slot)) =
            (u16::try_from(index), self.indices.get_mut(usize::from(self.count)))
        else {
            return;
        };
        *slot = index;
        self.count += 1;
    }

    /// How many.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    fn contains(&self, index: usize) -> bool {
        self.indices[..self.count()].iter().any(|&tried| usize::from(tried) == index)
    }
}

const _: () = assert!(crate::limits::BACKENDS_PER_POOL <= u16::MAX as usize);

impl Pool {
    /// Picks a backend that is not among those tried. `hash` is asked for only by the policies
    /// that use it.
    pub fn pick(
        &self,
        tried: &Tried,
        hash: impl FnOnce() -> u64,
        rng: &mut fastrand::Rng,
    ) -> Option<usize> {
        let hash = if self.spec.policy.hashes() { hash() } else { 0 };
        // Only this policy needs a clock, and what the pool is like.
        let latency = self.spec.policy.measures().then(|| (Instant::now(), self.state.latency()));
        let candidates = Candidates { pool: self, tried, panic: self.state.panic(), latency };
        self.policy.pick(&candidates, hash, self.state.tickets(), rng)
    }

    /// Adds up the weight that is up. Control calls this after each change of a state; until then
    /// picks take a backend that is down for one to be passed over, and look further.
    pub fn weigh(&self) {
        let up = self.backends.iter().filter(|backend| backend.state.is_up());
        self.up_weight.store(up.map(|backend| u32::from(backend.weight)).sum(), Relaxed);
    }

    /// Whether the state of its backends is to be ignored, as it is now.
    pub fn should_panic(&self) -> bool {
        let threshold = match self.panic_threshold {
            PanicThreshold::Percent(percent) => Some(percent),
            PanicThreshold::Off => None,
        };
        let backends = self.backends.iter().map(|b| (b.weight, b.state.state()));
        crate::health::in_panic(threshold, backends)
    }
}

/// The options of sockets that a listener accepts and that its sessions open to backends.
impl From<&crate::config::Timeouts> for TcpOptions {
    fn from(timeouts: &crate::config::Timeouts) -> Self {
        TcpOptions { keepalive: timeouts.keepalive, user_timeout: timeouts.user_timeout }
    }
}

struct Candidates<'a> {
    pool: &'a Pool,
    tried: &'a Tried,
    panic: bool,
    /// The moment of the pick, and the latency of a backend that nothing is known of.
    latency: Option<(Instant, u64)>,
}

impl View for Candidates<'_> {
    fn len(&self) -> usize {
        self.pool.backends.len()
    }

    fn usable(&self, index: usize) -> bool {
        let backend = &self.pool.backends[index];
        backend.weight > 0 && (self.panic || backend.state.is_up()) && !self.tried.contains(index)
    }

    fn active(&self, index: usize) -> u32 {
        self.pool.backends[index].state.active()
    }

    fn weight(&self, index: usize) -> u16 {
        self.pool.backends[index].weight
    }

    fn latency(&self, index: usize) -> u64 {
        let of = |(now, prior)| self.pool.backends[index].state.latency(now, prior);
        self.latency.map_or(0, of)
    }

    fn total_active(&self) -> u32 {
        self.pool.state.active()
    }

    fn usable_weight(&self) -> u32 {
        if self.panic {
            let usable = (0..self.len()).filter(|&index| self.usable(index));
            return usable.map(|index| u32::from(self.weight(index))).sum();
        }
        let tried = self.tried.indices.iter().take(self.tried.count());
        let tried = tried.map(|&index| &self.pool.backends[usize::from(index)]);
        let gone = tried.filter(|backend| backend.state.is_up());
        let gone = gone.map(|backend| u32::from(backend.weight)).sum();
        self.pool.up_weight.load(Relaxed).saturating_sub(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::PolicyKind;
    use crate::config;
    use crate::health::State;
    use crate::state::Registry;

    /// A pool of four backends, the first of weight 0, all up.
    fn pool(balance: &str) -> Arc<Pool> {
        let text = format!(
            "listeners: {{ l: {{ bind: 127.0.0.1:1, pool: p }} }}
pools:
  p:
    health: off
    balance: {balance}
    backends:
      - {{ address: 10.0.0.1:1, weight: 0 }}
      - {{ address: 10.0.0.2:1, weight: 2 }}
      - {{ address: 10.0.0.3:1, weight: 3 }}
      - {{ address: 10.0.0.4:1, weight: 5 }}"
        );
        let config = Arc::new(config::parse(&text, "test").unwrap());
        let snapshot = super::super::build(config, 1, vec![Vec::new()], &Registry::new(1));
        snapshot.unwrap().pools.remove(0)
    }

    /// What a pick knows without looking is what it would see.
    #[test]
    fn sums_are_of_what_is_usable() {
        let pool = pool("hash");
        let check = |tried: &[usize], panic: bool, weight: u32| {
            let mut before = Tried::default();
            tried.iter().for_each(|&index| before.add(index));
            let view = Candidates { pool: &pool, tried: &before, panic, latency: None };
            let usable = (0..4).filter(|&index| view.usable(index));
            let seen: u32 = usable.map(|index| u32::from(view.weight(index))).sum();
            assert_eq!((view.usable_weight(), seen), (weight, weight), "{tried:?} {panic}");
            let active = (0..4).map(|index| view.active(index)).sum::<u32>();
            assert_eq!(view.total_active(), active);
        };
        check(&[], false, 10);
        check(&[3, 0], false, 5);
        check(&[1, 2, 3], false, 0);
        let _leases = [1, 1, 3].map(|index| pool.backends[index].state.lease());
        pool.backends[2].state.set_state(State::Down);
        pool.weigh();
        check(&[], false, 7);
        check(&[2], false, 7);
        check(&[1], false, 5);
        check(&[], true, 10);
        check(&[1], true, 8);
    }

    /// A state that changed after the last sum was made costs a search, and no wrong pick.
    #[test]
    fn stale_sums_pick_what_is_up() {
        for kind in PolicyKind::ALL.into_iter().filter(|kind| kind.hashes()) {
            let pool = pool(&format!("{{ policy: {kind}, bounded_load: 1.25 }}"));
            pool.backends[3].state.set_state(State::Down);
            let mut rng = fastrand::Rng::with_seed(0);
            for hash in 0..1000u64 {
                let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let picked = pool.pick(&Tried::default(), || hash, &mut rng).unwrap();
                assert!([1, 2].contains(&picked), "{kind}: {picked}");
            }
        }
    }

    /// What is slow is passed by, and what was never measured is no magnet.
    #[test]
    fn latency_is_felt() {
        let pool = pool("peak_ewma");
        let now = Instant::now();
        let took = |index: usize, ms: u64| {
            let took = std::time::Duration::from_millis(ms);
            pool.backends[index].state.took(now, took);
            pool.state.took(now, took);
        };
        took(1, 1000);
        took(2, 1);
        let mut rng = fastrand::Rng::with_seed(0);
        let mut counts = [0; 4];
        for _ in 0..1000 {
            counts[pool.pick(&Tried::default(), || 0, &mut rng).unwrap()] += 1;
        }
        // Of any two the quick one wins; the slow one never does, and the unmeasured, which counts
        // as the mean of the pool, only against it: where the quick one is not drawn.
        assert_eq!(counts[1], 0, "{counts:?}");
        assert!(counts[2] > counts[3] && counts[3] > 0, "{counts:?}");
    }
}
