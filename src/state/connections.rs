//! Which backend a QUIC connection is on, by its connection ids: for clients whose address changes.
//! Any worker learns and asks, at handshakes and new addresses only. Bounded: the ids seen longest
//! ago are forgotten. Whoever forges addresses can have ids learned at will, but never uses one that
//! a server has chosen, because he does not get its answers. So those that a client has used have
//! places of their own.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use super::{Asked, BackendState, ListenerState};
use crate::flow::Ids;
use crate::limits::{CONNECTION_IDS, CONNECTION_IDS_UNUSED};
use crate::wire::quic::ConnectionId;

/// Locks, so that workers seldom wait for each other.
const SHARDS: usize = 16;

/// The longest connection id of QUIC versions 1 and 2 (RFC 9000 section 17.2).
const LONGEST: usize = 20;

/// The ids that are known.
#[derive(Debug)]
pub struct Connections {
    /// Chosen by a server, and used by its client.
    used: Shards,
    /// The first ones, which clients make up, and those of servers that no client has used.
    unused: Shards,
    hasher: ahash::RandomState,
    /// Bit n is set once an id of n bytes was learned.
    lengths: AtomicU32,
}

type Shards = Box<[Mutex<Ids<Known>>]>;

/// Whose choice an id is, and what is known by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The client's, for its first packets.
    ByClient,
    /// The server's; no client has used it so far.
    ByServer,
    /// The server's, and the client has used it: it is at its address.
    AndUsed,
}

#[derive(Clone, Debug)]
struct Known {
    /// The listener it was learned at: an id means nothing at another.
    listener: Weak<ListenerState>,
    backend: Weak<BackendState>,
    asked: Option<Arc<Asked>>,
    chosen: Chosen,
}

/// A connection that is known.
#[derive(Debug)]
pub struct Connection {
    /// Where it is.
    pub backend: Arc<BackendState>,
    /// What its hello asked for, where that was read.
    pub asked: Option<Arc<Asked>>,
    /// The id it was found by; none where that names a backend by itself.
    pub id: Option<ConnectionId>,
    /// Whose choice that was.
    pub chosen: Chosen,
}

impl Default for Connections {
    fn default() -> Self {
        let now = Instant::now();
        let shards =
            |ids: usize| (0..SHARDS).map(|_| Mutex::new(Ids::new(ids / SHARDS, now))).collect();
        Connections {
            used: shards(CONNECTION_IDS),
            unused: shards(CONNECTION_IDS_UNUSED),
            hasher: ahash::RandomState::new(),
            lengths: AtomicU32::new(0),
        }
    }
}

impl Connections {
    /// Learns that `id`, not an empty one, is a connection on `backend`, by `listener`, that has
    /// asked for this.
    pub fn learn(
        &self,
        listener: &Arc<ListenerState>,
        id: &[u8],
        chosen: Chosen,
        backend: &Arc<BackendState>,
        asked: Option<&Arc<Asked>>,
        now: Instant,
    ) {
        if id.is_empty() || id.len() > LONGEST {
            return;
        }
        self.lengths.fetch_or(1 << id.len(), Relaxed);
        let (listener, backend) = (Arc::downgrade(listener), Arc::downgrade(backend));
        let known = Known { listener, backend, asked: asked.cloned(), chosen };
        if chosen == Chosen::AndUsed {
            self.with(&self.unused, id, |ids| ids.forget(id));
            self.with(&self.used, id, |ids| ids.learn(id, known, now));
        } else {
            self.with(&self.unused, id, |ids| ids.learn(id, known, now));
        }
    }

    /// The connection with this id.
    pub fn find(
        &self,
        listener: &Arc<ListenerState>,
        id: &[u8],
        now: Instant,
    ) -> Option<Connection> {
        let of = |shards| self.with(shards, id, |ids| ids.find(id, now));
        let known = of(&self.used).or_else(|| of(&self.unused))?;
        if known.listener.as_ptr() != Arc::as_ptr(listener) {
            return None;
        }
        let backend = known.backend.upgrade()?;
        let id = ConnectionId::new(id);
        Some(Connection { backend, asked: known.asked, id, chosen: known.chosen })
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

    fn with<R>(&self, shards: &Shards, id: &[u8], use_it: impl FnOnce(&mut Ids<Known>) -> R) -> R {
        let shard = self.hasher.hash_one(id) as usize % SHARDS;
        use_it(&mut shards[shard].lock().unwrap_or_else(PoisonError::into_inner))
    }
}
