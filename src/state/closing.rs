//! Backends that went down and whose sessions are to be closed: control tells every worker once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::BackendState;
use super::counter::Sharded;

/// A backend whose sessions are to be closed.
#[derive(Clone, Debug)]
pub struct Closing {
    /// The backend.
    pub backend: Arc<BackendState>,
    /// When that began.
    pub since: Instant,
    /// When the last of them is closed.
    pub until: Instant,
}

/// What the workers have not taken yet.
#[derive(Debug)]
pub struct Closings(Sharded<Slot>);

/// Of one worker. Control adds, the worker takes all; a backend is in it once, so that there are
/// never more than backends. The lock is for that moment, and never taken for a connection.
#[derive(Debug, Default)]
struct Slot {
    closings: Mutex<Vec<Closing>>,
    news: Notify,
}

impl Closings {
    /// None, for this many workers.
    pub fn new(workers: usize) -> Self {
        Closings(Sharded::new(workers))
    }

    /// Tells all workers. Control only.
    pub fn tell(&self, closing: &Closing) {
        for slot in self.0.iter() {
            let mut closings = slot.closings.lock().unwrap_or_else(PoisonError::into_inner);
            closings.retain(|known| !Arc::ptr_eq(&known.backend, &closing.backend));
            closings.push(closing.clone());
            drop(closings);
            slot.news.notify_one();
        }
    }

    /// Waits for the next ones for this worker.
    pub async fn next(&self, worker: usize) -> Vec<Closing> {
        let slot = self.0.shard(worker);
        slot.news.notified().await;
        std::mem::take(&mut *slot.closings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
