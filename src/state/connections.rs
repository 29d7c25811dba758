//! Which backend a QUIC connection is on, by its connection ids: for clients whose address changes.
//! Any worker learns and asks, at handshakes and new addresses only. Bounded: the ids learned
//! longest ago are forgotten.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use super::{Asked, BackendState, ListenerState};
use crate::flow::Ids;
use crate::limits::CONNECTION_IDS;

/// Locks, so that workers seldom wait for each other.
const SHARDS: usize = 16;

/// The longest connection id of QUIC versions 1 and 2 (RFC 9000 section 17.2).
const LONGEST: usize = 20;

/// The ids that backends have chosen.
#[derive(Debug)]
pub struct Connections {
    shards: Box<[Mutex<Ids<Known>>]>,
    hasher: ahash::RandomState,
    /// Bit n is set once an id of n bytes was learned.
    lengths: AtomicU32,
}

#[derive(Clone, Debug)]
struct Known {
    /// The listener it was learned at: an id means nothing at another.
    listener: Weak<ListenerState>,
    backend: Weak<BackendState>,
    asked: Option<Arc<Asked>>,
}

/// A connection that is known.
#[derive(Debug)]
pub struct Connection {
    /// Where it is.
    pub backend: Arc<BackendState>,
    /// What its hello asked for, where that was read.
    pub asked: Option<Arc<Asked>>,
    /// Bytes of the id it was found by.
    pub length: usize,
}

impl Default for Connections {
    fn default() -> Self {
        let now = Instant::now();
        let shard = |_| Mutex::new(Ids::new(CONNECTION_IDS / SHARDS, now));
        Connections {
            shards: (0..SHARDS).map(shard).collect(),
            hasher: ahash::RandomState::new(),
            lengths: AtomicU32::new(0),
        }
    }
}

impl Connections {
    /// Learns that `id`, of 1 to 20 bytes, is a connection on `backend`, by `listener`, that has
    /// asked for this.
    pub fn learn(
        &self,
        listener: &Arc<ListenerState>,
        id: &[u8],
        backend: &Arc<BackendState>,
        asked: Option<&Arc<Asked>>,
        now: Instant,
    ) {
        if id.is_empty() || id.len() > LONGEST {
            return;
        }
        self.lengths.fetch_or(1 << id.len(), Relaxed);
        let (listener, backend) = (Arc::downgrade(listener), Arc::downgrade(backend));
        let known = Known { listener, backend, asked: asked.cloned() };
        self.with(id, |ids| ids.learn(id, known, now));
    }

    /// The connection with this id.
    pub fn find(
        &self,
        listener: &Arc<ListenerState>,
        id: &[u8],
        now: Instant,
    ) -> Option<Connection> {
        let known = self.with(id, |ids| ids.find(id, now))?;
        if known.listener.as_ptr() != Arc::as_ptr(listener) {
            return None;
        }
        let backend = known.backend.upgrade()?;
        Some(Connection { backend, asked: known.asked, length: id.len() })
    }

    /// The same of an id whose length is not said: that `bytes` begin with.
    pub fn find_prefix(
        &self,
        listener: &Arc<ListenerState>,
        bytes: &[u8],
        now: Instant,
    ) -> Option<Connection> {
        let lengths = self.lengths.load(Relaxed);
        let used = (1..=LONGEST.min(bytes.len())).rev().filter(|length| lengths & 1 << length != 0);
        let mut ids = used.filter_map(|length| bytes.get(..length));
        ids.find_map(|id| self.find(listener, id, now))
    }

    fn with<R>(&self, id: &[u8], use_it: impl FnOnce(&mut Ids<Known>) -> R) -> R {
        let shard = self.hasher.hash_one(id) as usize % SHARDS;
        use_it(&mut self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner))
    }
}
