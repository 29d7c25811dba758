//! Counters that cost a plain add: one writer, any number of readers.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Keeps what one thread writes off the cache lines of others.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// A count that only ever grows, written by one thread (its worker) and read by any.
/// One writer makes a load and a store enough: no locked instruction on the data path.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread may call this.
    pub fn add(&self, n: u64) {
        // Release, and Acquire below: who sees a count sees all that was counted before it, so
        // that the ended, read first, are never more than the opened.
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Release);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Acquire)
    }
}

/// One shard a worker of some set of counters.
#[derive(Debug)]
pub struct Sharded<T>(Box<[Padded<T>]>);

impl<T: Default> Sharded<T> {
    /// Shards for this many workers.
    pub fn new(workers: usize) -> Self {
        Sharded((0..workers).map(|_| Padded::default()).collect())
    }

    /// The shard that worker `index` writes.
    pub fn shard(&self, index: usize) -> &T {
        &self.0[index].0
    }

    /// The sum of `read` over all shards.
    pub fn sum(&self, read: impl Fn(&T) -> u64) -> u64 {
        self.0.iter().map(|shard| read(&shard.0)).sum()
    }

    /// All shards.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|shard| &shard.0)
    }
}
