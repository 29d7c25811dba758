//! Identity over reloads: who had a name or address before keeps its counters and state.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ahash::AHashMap;

use super::closing::Closings;
use super::{BackendState, ListenerState, PoolState};
use crate::address::Address;
use crate::health::State;

/// Everything that counts, alive as long as a configuration or a session holds it: a removed
/// backend stays visible until its last session ends, and comes back as itself before that.
#[derive(Debug)]
pub struct Registry {
    workers: usize,
    /// From control to the workers.
    closings: Arc<Closings>,
    maps: Mutex<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    listeners: AHashMap<Arc<str>, Weak<ListenerState>>,
    pools: AHashMap<Arc<str>, Weak<PoolState>>,
    backends: AHashMap<(Arc<str>, Address), Weak<BackendState>>,
}

impl Registry {
    /// Empty, for this many workers.
    pub fn new(workers: usize) -> Self {
        Registry { workers, closings: Arc::new(Closings::new(workers)), maps: Mutex::default() }
    }

    /// Shards of everything in here.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Backends whose sessions are to be closed.
    pub fn closings(&self) -> &Closings {
        &self.closings
    }

    /// The listener of this name, known or new.
    pub fn listener(&self, name: &Arc<str>) -> Arc<ListenerState> {
        let mut maps = self.lock();
        let slot = maps.listeners.entry(name.clone()).or_default();
        slot.upgrade().unwrap_or_else(|| {
            let state = Arc::new(ListenerState::new(name.clone(), self.workers));
            *slot = Arc::downgrade(&state);
            state
        })
    }

    /// The pool of this name, known or new.
    pub fn pool(&self, name: &Arc<str>) -> Arc<PoolState> {
        let mut maps = self.lock();
        let slot = maps.pools.entry(name.clone()).or_default();
        slot.upgrade().unwrap_or_else(|| {
            let closings = self.closings.clone();
            let state = Arc::new(PoolState::new(name.clone(), self.workers, closings));
            *slot = Arc::downgrade(&state);
            state
        })
    }

    /// The backend of this pool at this address; a new one starts with `state`.
    pub fn backend(
        &self,
        pool: &PoolState,
        name: &Arc<str>,
        address: &Address,
        state: State,
    ) -> Arc<BackendState> {
        let mut maps = self.lock();
        let slot = maps.backends.entry((pool.name.clone(), address.clone())).or_default();
        slot.upgrade().unwrap_or_else(|| {
            let backend = Arc::new(BackendState::new(
                pool,
                name.clone(),
                address.clone(),
                state,
                self.workers,
            ));
            *slot = Arc::downgrade(&backend);
            backend
        })
    }

    /// Every listener that is configured or has sessions, by name.
    pub fn listeners(&self) -> Vec<Arc<ListenerState>> {
        let mut all: Vec<_> = self.lock().listeners.values().filter_map(Weak::upgrade).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Every pool that is configured or has sessions, by name.
    pub fn pools(&self) -> Vec<Arc<PoolState>> {
        let mut all: Vec<_> = self.lock().pools.values().filter_map(Weak::upgrade).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Every backend that is configured or has sessions, by pool and address.
    pub fn backends(&self) -> Vec<Arc<BackendState>> {
        let mut all: Vec<_> = self.lock().backends.values().filter_map(Weak::upgrade).collect();
        all.sort_by(|a, b| (&a.pool, &a.address).cmp(&(&b.pool, &b.address)));
        all
    }

    /// Forgets what nothing holds any more.
    pub fn sweep(&self) {
        let mut maps = self.lock();
        maps.listeners.retain(|_, state| state.strong_count() > 0);
        maps.pools.retain(|_, state| state.strong_count() > 0);
        maps.backends.retain(|_, state| state.strong_count() > 0);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Maps> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_pool_and_address() {
        let registry = Registry::new(1);
        let (pool, name) = (registry.pool(&Arc::from("p")), Arc::from("b"));
        let address: Address = "10.0.0.1:80".parse().unwrap();
        let first = registry.backend(&pool, &name, &address, State::Unknown);
        first.set_state(State::Down);
        let again = registry.backend(&pool, &Arc::from("other"), &address, State::Unknown);
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(again.state(), State::Down);
        let elsewhere =
            registry.backend(&registry.pool(&Arc::from("q")), &name, &address, State::Unknown);
        assert!(!Arc::ptr_eq(&first, &elsewhere));
    }

    #[test]
    fn removed_backend_lives_while_a_lease_does() {
        let registry = Registry::new(1);
        let (pool, name) = (registry.pool(&Arc::from("p")), Arc::from("b"));
        let address: Address = "10.0.0.1:80".parse().unwrap();
        let lease = registry.backend(&pool, &name, &address, State::Up).lease().unwrap();
        registry.sweep();
        assert_eq!(registry.backends().len(), 1);
        assert_eq!(registry.backends()[0].active(), 1);
        assert_eq!(pool.active(), 1);
        drop(lease);
        assert_eq!(pool.active(), 0);
        registry.sweep();
        assert!(registry.backends().is_empty());
    }
}
