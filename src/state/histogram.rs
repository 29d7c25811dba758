//! Latency histograms: fixed buckets, one shard a worker, no lock and no allocation to record.

use std::time::Duration;

use super::counter::{Counter, Sharded};

/// Upper bounds of the buckets in seconds; one more bucket takes what is above the last.
pub const BOUNDS: [f64; 20] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 60.0, 300.0, 1800.0, 7200.0,
];

/// A histogram of durations.
#[derive(Debug)]
pub struct Histogram(Sharded<Shard>);

#[derive(Debug, Default)]
struct Shard {
    buckets: [Counter; BOUNDS.len() + 1],
    sum_us: Counter,
}

/// What a histogram holds, summed over workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Totals {
    /// Cumulative counts, one for each of [`BOUNDS`].
    pub buckets: [u64; BOUNDS.len()],
    /// All observations.
    pub count: u64,
    /// Their sum in seconds.
    pub sum: f64,
}

impl Histogram {
    /// An empty histogram for this many workers.
    pub fn new(workers: usize) -> Self {
        Histogram(Sharded::new(workers))
    }

    /// Records one duration; only the thread of `worker` may call this.
    pub fn record(&self, worker: usize, value: Duration) {
        let shard = self.0.shard(worker);
        let seconds = value.as_secs_f64();
        let bucket = BOUNDS.partition_point(|&bound| bound < seconds);
        shard.buckets[bucket].add(1);
        shard.sum_us.add(u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
    }

    /// The sums over all workers.
    pub fn totals(&self) -> Totals {
        let mut buckets = [0; BOUNDS.len()];
        let mut count = 0;
        for (index, bucket) in buckets.iter_mut().enumerate() {
            count += self.0.sum(|shard| shard.buckets[index].get());
            *bucket = count;
        }
        count += self.0.sum(|shard| shard.buckets[BOUNDS.len()].get());
        let sum = self.0.sum(|shard| shard.sum_us.get()) as f64 / 1e6;
        Totals { buckets, count, sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_bounds_inclusive() {
        let histogram = Histogram::new(2);
        histogram.record(0, Duration::from_micros(100));
        histogram.record(1, Duration::from_micros(101));
        histogram.record(0, Duration::from_secs(86_400));
        let totals = histogram.totals();
        assert_eq!(totals.buckets[..3], [1, 2, 2]);
        assert_eq!(totals.buckets[BOUNDS.len() - 1], 2);
        assert_eq!(totals.count, 3);
        assert!((totals.sum - 86_400.000_201).abs() < 1e-9, "{}", totals.sum);
    }
}
