//! Connections to backends that are kept ready, counted: of the process against its bound, and of
//! each pool for whoever wants to know.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{PoolState, Process};

/// One of the connections that the process may keep ready, from the attempt on; given back when
/// dropped.
#[derive(Debug)]
pub struct Kept {
    process: Arc<Process>,
    /// Once it is established.
    pool: Option<Arc<PoolState>>,
}

/// What a pool has counted of them, summed over workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadyCounts {
    /// Established and unused at the moment.
    pub kept: u32,
    /// Handed to a session.
    pub used: u64,
    /// Sessions that found none and had to connect.
    pub missed: u64,
    /// Closed by their backend before anybody used them.
    pub lost: u64,
}

impl Kept {
    /// One more, if the process may have it.
    pub fn take(process: &Arc<Process>) -> Option<Kept> {
        let before = process.ready.0.fetch_add(1, Relaxed);
        let kept = Kept { process: process.clone(), pool: None };
        (before < process.max_ready.load(Relaxed)).then_some(kept)
    }

    /// It is established, to a backend of `pool`.
    pub fn established(&mut self, pool: &Arc<PoolState>) {
        if self.pool.is_none() {
            pool.ready().fetch_add(1, Relaxed);
            self.pool = Some(pool.clone());
        }
    }

    /// The backend has closed it before anybody used it. Called by the thread of `worker`.
    pub fn lost(self, worker: usize) {
        if let Some(pool) = &self.pool {
            pool.ready_lost(worker);
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.ready().fetch_sub(1, Relaxed);
        }
        self.process.ready.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_and_all_is_given_back() {
        let (process, _inbox) = Process::new(1);
        let pool = process.registry.pool(&Arc::from("www"));
        process.max_ready.store(2, Relaxed);
        let [mut first, second] = [(); 2].map(|()| Kept::take(&process).unwrap());
        assert!(Kept::take(&process).is_none());
        first.established(&pool);
        first.established(&pool);
        assert_eq!(pool.ready_counts().kept, 1, "an attempt is none");
        drop(second);
        let third = Kept::take(&process).unwrap();
        drop((first, third));
        assert_eq!((pool.ready_counts().kept, process.ready.0.load(Relaxed)), (0, 0));
    }
}
