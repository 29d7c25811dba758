//! How many requests each backend had under way, over time.

use std::time::Duration;

use crate::limits::SIMULATE_COLUMNS;

const _: () = assert!(SIMULATE_COLUMNS.is_multiple_of(2), "columns are merged in pairs");

/// A column is never narrower, in nanoseconds.
const NARROWEST: u64 = 1000;

/// The load while it is being recorded. A run that turns out longer than there are columns for has
/// them merged in pairs: its length need not be known.
#[derive(Debug)]
pub(super) struct Timeline {
    /// Of one column, in nanoseconds.
    width: u64,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    active: u32,
    /// Since then, in nanoseconds.
    since: u64,
    /// Requests × nanoseconds, by column.
    sums: [u128; SIMULATE_COLUMNS],
}

/// The load over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Of one column; the last may be shorter.
    pub width: Duration,
    /// For each backend the mean number of requests under way, by column.
    pub backends: Vec<Vec<f64>>,
}

impl Timeline {
    /// Nothing under way. `duration` is how long it will take, where that is known.
    pub fn new(backends: usize, duration: Option<Duration>) -> Self {
        let width =
            duration.map_or(0, |duration| nanoseconds(duration).div_ceil(SIMULATE_COLUMNS as u64));
        let row = Row { active: 0, since: 0, sums: [0; SIMULATE_COLUMNS] };
        Timeline { width: width.max(NARROWEST), rows: vec![row; backends] }
    }

    /// A backend has `active` from `now` on.
    pub fn change(&mut self, now: Duration, index: usize, active: u32) {
        let now = nanoseconds(now);
        self.make_room(now);
        self.rows[index].settle(now, self.width);
        self.rows[index].active = active;
    }

    /// The run is over.
    pub fn finish(mut self, end: Duration) -> Load {
        let end = nanoseconds(end);
        self.make_room(end.saturating_sub(1));
        let columns = end.div_ceil(self.width).max(1) as usize;
        let backends = self.rows.iter_mut().map(|row| {
            row.settle(end, self.width);
            let mean = |(column, &sum): (usize, &u128)| {
                let begin = column as u64 * self.width;
                let width = self.width.min(end.saturating_sub(begin)).max(1);
                sum as f64 / width as f64
            };
            row.sums[..columns].iter().enumerate().map(mean).collect()
        });
        Load { backends: backends.collect(), width: Duration::from_nanos(self.width) }
    }

    /// Until `now` has a column.
    fn make_room(&mut self, now: u64) {
        while now / self.width >= SIMULATE_COLUMNS as u64 {
            self.width *= 2;
            for row in &mut self.rows {
                for column in 0..SIMULATE_COLUMNS {
                    let pair = row.sums.get(2 * column..2 * column + 2);
                    row.sums[column] = pair.map_or(0, |pair| pair.iter().sum());
                }
            }
        }
    }
}

impl Row {
    /// Adds up until `now`, which has a column or is the end of the last one.
    fn settle(&mut self, now: u64, width: u64) {
        while self.since < now {
            let column = self.since / width;
            let until = now.min((column + 1) * width);
            if let Some(sum) = self.sums.get_mut(column as usize) {
                *sum += u128::from(until - self.since) * u128::from(self.active);
            }
            self.since = until;
        }
    }
}

/// Virtual time is bounded, far below what fits.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn means_by_column() {
        let columns = SIMULATE_COLUMNS as u32;
        let mut timeline = Timeline::new(2, Some(10 * MS * columns));
        timeline.change(5 * MS, 0, 4);
        timeline.change(20 * MS, 0, 1);
        timeline.change(40 * MS, 0, 0);
        timeline.change(Duration::ZERO, 1, 2);
        let load = timeline.finish(45 * MS);
        assert_eq!(load.width, 10 * MS);
        assert_eq!(load.backends, [[2.0, 4.0, 1.0, 1.0, 0.0], [2.0; 5]]);
    }

    /// Whatever the length of a run, what was under way adds up to the same.
    #[test]
    fn columns_merge_and_nothing_is_lost() {
        for steps in [1, 71, 72, 73, 500, 100_000] {
            let mut timeline = Timeline::new(1, None);
            let mut expected = 0.0;
            for step in 0..steps {
                timeline.change(step * MS, 0, step % 5);
                expected += f64::from(step % 5);
            }
            let load = timeline.finish(steps * MS);
            let columns = load.backends[0].len();
            assert!((SIMULATE_COLUMNS / 2..=SIMULATE_COLUMNS).contains(&columns), "{columns}");
            let last = f64::from(steps) - (columns as f64 - 1.0) * load.width.as_secs_f64() * 1e3;
            let (end, before) = load.backends[0].split_last().unwrap();
            let sum = before.iter().sum::<f64>() * load.width.as_secs_f64() * 1e3 + end * last;
            assert!((sum - expected).abs() <= 1e-6 * expected.max(1.0), "{sum} for {expected}");
        }
    }
}
