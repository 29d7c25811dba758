//! What each source of a UDP listener takes, whichever worker its datagrams come to.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::flow::{self, Limits, Prefixes};
use crate::limits::SOURCES;

/// Locks, so that workers seldom wait for each other.
const SHARDS: usize = 16;

/// Flows and datagrams by source.
#[derive(Debug)]
pub struct Sources {
    prefixes: Prefixes,
    hasher: ahash::RandomState,
    shards: Box<[Mutex<flow::Sources>]>,
}

impl Sources {
    /// Without any yet.
    pub fn new(prefixes: Prefixes, limits: Limits, now: Instant) -> Self {
        let shard = |_| Mutex::new(flow::Sources::new(prefixes, limits, SOURCES / SHARDS, now));
        let (hasher, shards) = (ahash::RandomState::new(), (0..SHARDS).map(shard).collect());
        Sources { prefixes, hasher, shards }
    }

    /// What makes addresses one source.
    pub fn prefixes(&self) -> Prefixes {
        self.prefixes
    }

    /// Other limits from now on. Control only.
    pub fn set_limits(&self, limits: Limits) {
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).set_limits(limits);
        }
    }

    /// Counts a datagram; false if it must go no further.
    pub fn admits(&self, address: IpAddr, now: Instant) -> bool {
        self.shard(address).admit_datagram(address, now)
    }

    /// A place for one more flow of this source, if it may have one.
    pub fn place(self: &Arc<Self>, address: IpAddr, now: Instant) -> Option<SourcePlace> {
        let opened = self.shard(address).open_flow(address, now);
        opened.then(|| SourcePlace { sources: self.clone(), address })
    }

    fn shard(&self, address: IpAddr) -> MutexGuard<'_, flow::Sources> {
        let shard = self.hasher.hash_one(self.prefixes.source(address)) as usize % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the flows of a source, given back when dropped.
#[derive(Debug)]
pub struct SourcePlace {
    sources: Arc<Sources>,
    address: IpAddr,
}

impl Drop for SourcePlace {
    fn drop(&mut self) {
        self.sources.shard(self.address).close_flow(self.address);
    }
}
