//! Counters of one listener. Identity: its name.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Sources;
use super::counter::{Counter, Padded, Sharded};
use super::histogram::Histogram;
use super::outcome::{Direction, DropReason, Termination};
use crate::flow::{Limits, Prefixes};

/// Counts of a listener, kept over reloads.
#[derive(Debug)]
pub struct ListenerState {
    /// The listener's name.
    pub name: Arc<str>,
    /// Duration of its sessions, accept to end.
    pub session_seconds: Histogram,
    /// From accepted to a complete hello, of those that were.
    pub preread_seconds: Histogram,
    /// What its sources take, if they have limits. Control sets it, and hands it to workers.
    sources: Mutex<Option<Arc<Sources>>>,
    /// Its flows, for `limits.flows`. Any worker writes, through a [`FlowPlace`].
    flows: Padded<AtomicU32>,
    shards: Sharded<Shard>,
}

/// One of the flows that a listener may have, given back when dropped.
#[derive(Debug)]
pub struct FlowPlace(Arc<ListenerState>);

impl Drop for FlowPlace {
    fn drop(&mut self) {
        self.0.flows.0.fetch_sub(1, Relaxed);
    }
}

#[derive(Debug, Default)]
struct Shard {
    opened: Counter,
    closed: [Counter; Termination::ALL.len()],
    bytes_in: Counter,
    bytes_out: Counter,
    accept_pauses: Counter,
    ech: Counter,
    datagrams_in: Counter,
    datagrams_out: Counter,
    dropped: [Counter; DropReason::ALL.len()],
}

/// A consistent reading: `opened = Σ closed + active`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerCounts {
    /// Accepted connections.
    pub opened: u64,
    /// Ended ones, by [`Termination`] as index.
    pub closed: [u64; Termination::ALL.len()],
    /// The rest.
    pub active: u64,
    /// Bytes passed on from clients.
    pub bytes_in: u64,
    /// Bytes passed on to clients.
    pub bytes_out: u64,
    /// How often accepting paused for want of descriptors or memory.
    pub accept_pauses: u64,
    /// Hellos with an ECH extension, GREASE included.
    pub ech: u64,
    /// Datagrams passed on from clients.
    pub datagrams_in: u64,
    /// Datagrams passed on to clients.
    pub datagrams_out: u64,
    /// Datagrams that went nowhere, by [`DropReason`] as index.
    pub dropped: [u64; DropReason::ALL.len()],
}

impl ListenerState {
    /// All zero.
    pub fn new(name: Arc<str>, workers: usize) -> Self {
        ListenerState {
            name,
            session_seconds: Histogram::new(workers),
            preread_seconds: Histogram::new(workers),
            sources: Mutex::new(None),
            flows: Padded::default(),
            shards: Sharded::new(workers),
        }
    }

    /// What its sources take, in the same book as long as sources are told apart in the same way.
    /// Control only.
    pub fn sources(&self, prefixes: Prefixes, limits: Limits) -> Arc<Sources> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        match &*sources {
            Some(known) if known.prefixes() == prefixes => known.clone(),
            _ => sources.insert(Arc::new(Sources::new(prefixes, limits, Instant::now()))).clone(),
        }
    }

    /// A place for one more flow, if there are fewer than `most`.
    pub fn flow_place(self: &Arc<Self>, most: u32) -> Option<FlowPlace> {
        let before = self.flows.0.fetch_add(1, Relaxed);
        let place = FlowPlace(self.clone());
        (before < most).then_some(place)
    }

    /// Counts an accepted connection. Called by the thread of `worker`, as all below.
    pub fn opened(&self, worker: usize) {
        self.shards.shard(worker).opened.add(1);
    }

    /// Counts the end of a connection.
    pub fn closed(&self, worker: usize, termination: Termination, duration: Duration) {
        self.shards.shard(worker).closed[termination as usize].add(1);
        self.session_seconds.record(worker, duration);
    }

    /// Counts bytes that were passed on.
    pub fn passed(&self, worker: usize, direction: Direction, bytes: u64) {
        let shard = self.shards.shard(worker);
        match direction {
            Direction::In => shard.bytes_in.add(bytes),
            Direction::Out => shard.bytes_out.add(bytes),
        }
    }

    /// Counts a pause of accepting.
    pub fn accept_paused(&self, worker: usize) {
        self.shards.shard(worker).accept_pauses.add(1);
    }

    /// Counts a hello with an ECH extension.
    pub fn ech(&self, worker: usize) {
        self.shards.shard(worker).ech.add(1);
    }

    /// Counts datagrams that were passed on.
    pub fn datagrams(&self, worker: usize, direction: Direction, count: u64) {
        let shard = self.shards.shard(worker);
        match direction {
            Direction::In => shard.datagrams_in.add(count),
            Direction::Out => shard.datagrams_out.add(count),
        }
    }

    /// Counts datagrams that went nowhere.
    pub fn dropped(&self, worker: usize, reason: DropReason, count: u64) {
        self.shards.shard(worker).dropped[reason as usize].add(count);
    }

    /// Reads everything. The ended are read before the opened, so that `active` is never
    /// negative while workers go on counting.
    pub fn counts(&self) -> ListenerCounts {
        let mut closed = [0; Termination::ALL.len()];
        for (index, count) in closed.iter_mut().enumerate() {
            *count = self.shards.sum(|shard| shard.closed[index].get());
        }
        let opened = self.shards.sum(|shard| shard.opened.get());
        let mut dropped = [0; DropReason::ALL.len()];
        for (index, count) in dropped.iter_mut().enumerate() {
            *count = self.shards.sum(|shard| shard.dropped[index].get());
        }
        let ended: u64 = closed.iter().sum();
        ListenerCounts {
            opened,
            closed,
            active: opened.saturating_sub(ended),
            bytes_in: self.shards.sum(|shard| shard.bytes_in.get()),
            bytes_out: self.shards.sum(|shard| shard.bytes_out.get()),
            accept_pauses: self.shards.sum(|shard| shard.accept_pauses.get()),
            ech: self.shards.sum(|shard| shard.ech.get()),
            datagrams_in: self.shards.sum(|shard| shard.datagrams_in.get()),
            datagrams_out: self.shards.sum(|shard| shard.datagrams_out.get()),
            dropped,
        }
    }
}
