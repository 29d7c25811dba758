//! Outcomes of the connections to one backend, counted in a single atomic word.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Failure, Failures};
use crate::limits::{CONSECUTIVE_FAILURES_MAX, OUTLIER_WINDOW_MAX};

/// What makes a backend an outlier; either is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Failures in a row, 1 to [`CONSECUTIVE_FAILURES_MAX`]; `None`: however many.
    pub consecutive: Option<u16>,
    /// A share of failures; `None`: whatever it is.
    pub rate: Option<Rate>,
}

/// A share of failures among the latest connections.
///
/// They are counted in two halves, and the older half is forgotten when the newer is full. So the
/// share is exact, but it is that of the last `window / 2` to `window` connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Failures in 100 connections, 1 to 100.
    pub percent: u8,
    /// Connections looked back on, 2 to [`OUTLIER_WINDOW_MAX`].
    pub window: u16,
    /// Connections without which a share says nothing; at most half the window.
    pub volume: u16,
}

/// Counts of one backend. Any worker writes; control takes the alarms.
///
/// Everything is in one word, so that no outcome is lost or counted twice however many workers
/// report at once, and a crossed threshold is seen by exactly the one that crosses it. A success
/// costs one load, and a compare-and-swap where there is something to change.
#[derive(Debug, Default)]
pub struct Recorder(AtomicU64);

impl Recorder {
    /// Counts a connection; true if control should look now.
    ///
    /// A threshold that is crossed raises an alarm, and nothing more is counted until control has
    /// taken it. Each failure in between asks again: a call to look that got lost is no disaster.
    pub fn record(&self, outcome: Result<(), Failure>, thresholds: &Thresholds) -> bool {
        let mut asks = false;
        let _unchanged = self.0.fetch_update(Relaxed, Relaxed, |word| {
            let mut counts = Counts::unpack(word);
            if counts.alarm.is_empty() {
                counts.take_in(outcome, thresholds);
            }
            asks = outcome.is_err() && !counts.alarm.is_empty();
            let changed = counts.pack();
            (changed != word).then_some(changed)
        });
        asks
    }

    /// Takes the alarm: the failures that raised it, if one was raised. All counts then begin
    /// anew, whatever is decided: a backend that may not be ejected is looked at again after as
    /// many failures more. Control only.
    pub(in crate::health) fn take_alarm(&self) -> Option<Failures> {
        let word = self.0.fetch_update(Relaxed, Relaxed, |word| {
            (!Counts::unpack(word).alarm.is_empty()).then_some(0)
        });
        word.ok().map(|word| Counts::unpack(word).alarm)
    }

    /// Forgets everything. Control only.
    pub(in crate::health) fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

/// The word, taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Failures since the last success, and their kinds.
    streak: u16,
    streak_kinds: Failures,
    /// The full half before this one.
    previous: Half,
    current: Half,
    /// What crossed a threshold; empty: nothing did.
    alarm: Failures,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Half {
    total: u16,
    failed: u16,
    kinds: Failures,
}

const COUNT_BITS: u32 = 10;
const WIDTHS: [u32; 9] = {
    const KINDS: u32 = Failures::BITS;
    [COUNT_BITS, KINDS, COUNT_BITS, COUNT_BITS, KINDS, COUNT_BITS, COUNT_BITS, KINDS, KINDS]
};

const _: () = assert!((CONSECUTIVE_FAILURES_MAX as u32) < 1 << COUNT_BITS);
const _: () = assert!((OUTLIER_WINDOW_MAX as u32 / 2) < 1 << COUNT_BITS);
const _: () = assert!(5 * COUNT_BITS + 4 * Failures::BITS <= u64::BITS);

impl Counts {
    fn take_in(&mut self, outcome: Result<(), Failure>, thresholds: &Thresholds) {
        match outcome {
            Ok(()) => (self.streak, self.streak_kinds) = (0, Failures::NONE),
            Err(failure) => {
                self.streak = (self.streak + 1).min(CONSECUTIVE_FAILURES_MAX);
                self.streak_kinds = self.streak_kinds.with(failure);
            }
        }
        if thresholds.consecutive.is_some_and(|most| self.streak >= most.max(1)) {
            self.alarm = self.streak_kinds;
        }
        let Some(rate) = thresholds.rate else { return };
        self.current.total += 1;
        if let Err(failure) = outcome {
            self.current.failed += 1;
            self.current.kinds = self.current.kinds.with(failure);
        }
        let total = u32::from(self.previous.total) + u32::from(self.current.total);
        let failed = u32::from(self.previous.failed) + u32::from(self.current.failed);
        // Only a failure is a reason to look, not the success that completes the volume.
        if outcome.is_err()
            && total >= u32::from(rate.volume)
            && failed * 100 >= total * u32::from(rate.percent)
        {
            self.alarm = self.alarm.union(self.previous.kinds).union(self.current.kinds);
        }
        // A reload may have made the window smaller than what is in it.
        if self.current.total >= rate.window.min(OUTLIER_WINDOW_MAX) / 2 {
            (self.previous, self.current) = (self.current, Half::default());
        }
    }

    fn pack(&self) -> u64 {
        let kinds = |kinds: Failures| u16::from(kinds.bits());
        let (previous, current) = (self.previous, self.current);
        let fields = [
            self.streak,
            kinds(self.streak_kinds),
            previous.total,
            previous.failed,
            kinds(previous.kinds),
            current.total,
            current.failed,
            kinds(current.kinds),
            kinds(self.alarm),
        ];
        let push = |word, (field, width)| word << width | u64::from(field);
        fields.into_iter().zip(WIDTHS).fold(0, push)
    }

    fn unpack(mut word: u64) -> Self {
        let mut fields = [0; WIDTHS.len()];
        for (field, width) in fields.iter_mut().zip(WIDTHS).rev() {
            *field = (word & ((1 << width) - 1)) as u16;
            word >>= width;
        }
        let [streak, streak_kinds, total, failed, kinds, new_total, new_failed, new_kinds, alarm] =
            fields;
        let set = |bits: u16| Failures::from_bits(bits as u8);
        Counts {
            streak,
            streak_kinds: set(streak_kinds),
            previous: Half { total, failed, kinds: set(kinds) },
            current: Half { total: new_total, failed: new_failed, kinds: set(new_kinds) },
            alarm: set(alarm),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use proptest::prelude::*;

    use super::*;

    const OFF: Thresholds = Thresholds { consecutive: None, rate: None };

    fn consecutive(most: u16) -> Thresholds {
        Thresholds { consecutive: Some(most), ..OFF }
    }

    fn rate(percent: u8, window: u16, volume: u16) -> Thresholds {
        Thresholds { rate: Some(Rate { percent, window, volume }), ..OFF }
    }

    fn outcome(letter: char) -> Result<(), Failure> {
        match letter {
            '+' => Ok(()),
            'c' => Err(Failure::Connect),
            'l' => Err(Failure::Late),
            'e' => Err(Failure::EarlyClose),
            other => unreachable!("{other}"),
        }
    }

    /// Reports outcomes; the answer has a `!` where control was asked to look, and then looked.
    fn run(thresholds: &Thresholds, outcomes: &str) -> (String, Failures) {
        let (recorder, mut causes) = (Recorder::default(), Failures::NONE);
        let answer = |letter| {
            let asked = recorder.record(outcome(letter), thresholds);
            let alarm = recorder.take_alarm();
            assert_eq!(asked, alarm.is_some());
            causes = alarm.unwrap_or(causes);
            if asked { '!' } else { '.' }
        };
        (outcomes.chars().map(answer).collect(), causes)
    }

    #[test]
    fn alarms() {
        let check = |thresholds: Thresholds, outcomes: &str, expected: &str, causes: &str| {
            let (answers, found) = run(&thresholds, outcomes);
            assert_eq!((&*answers, &*found.to_string()), (expected, causes), "{outcomes}");
        };
        check(OFF, "cccccccccc", "..........", "");
        check(consecutive(1), "+c+c", ".!.!", "connect");
        check(consecutive(3), "ccc+ccc", "..!...!", "connect");
        check(consecutive(3), "cc+cc+cc", "........", "");
        // Looked at and left alone: the next alarm takes as many failures again.
        check(consecutive(3), "cccccc", "..!..!", "connect");
        // A streak of several kinds is of all of them, one before a success is not.
        check(consecutive(3), "cce", "..!", "connect and early close");
        check(consecutive(3), "e+lcc", "....!", "connect and late");

        check(rate(50, 8, 4), "ccc+", "....", "");
        check(rate(50, 8, 4), "c+c+c", "....!", "connect");
        // The success that completes the volume is no reason to look; the next failure is.
        check(rate(50, 8, 4), "ccc+++c", "......!", "connect");
        check(rate(100, 8, 4), "cccc", "...!", "connect");
        // What was long ago is forgotten: four old failures, half forgotten after four successes.
        check(rate(50, 8, 4), "c+++++++ccc", "...........", "");
        check(rate(50, 8, 4), "c+++++++cccc", "...........!", "connect");
        // So are their kinds.
        check(rate(50, 8, 4), "+++e++++cccc", "...........!", "connect");
        check(rate(50, 8, 4), "++++++e+ccc", ".........!.", "connect and early close");
        check(rate(60, 8, 4), "+ec+e", "....!", "connect and early close");
        let both = Thresholds { consecutive: Some(3), ..rate(50, 8, 4) };
        check(both, "ccc++e+e", "..!.....", "connect");
        check(both, "ccc++e+ee", "..!.....!", "early close");
    }

    /// An alarm stays until it is taken, and each failure asks for that again.
    #[test]
    fn a_lost_call_is_repeated() {
        let recorder = Recorder::default();
        let limits = Thresholds { consecutive: Some(2), ..rate(50, 8, 4) };
        let asked: Vec<_> = "cc+c+".chars().map(|c| recorder.record(outcome(c), &limits)).collect();
        assert_eq!(asked, [false, true, false, true, false]);
        assert_eq!(recorder.take_alarm(), Some(Failure::Connect.into()));
        assert_eq!(recorder.take_alarm(), None);
        assert!(!recorder.record(outcome('c'), &limits), "all counts begin anew");
        recorder.reset();
        assert!(!recorder.record(outcome('c'), &limits));
        assert!(recorder.record(outcome('c'), &limits));
        recorder.reset();
        assert_eq!(recorder.take_alarm(), None);
    }

    #[test]
    fn extremes() {
        let largest = Thresholds {
            consecutive: Some(CONSECUTIVE_FAILURES_MAX),
            ..rate(100, OUTLIER_WINDOW_MAX, OUTLIER_WINDOW_MAX)
        };
        let recorder = Recorder::default();
        let asked = (0..CONSECUTIVE_FAILURES_MAX).map(|_| recorder.record(outcome('c'), &largest));
        assert_eq!(asked.filter(|&asked| asked).count(), 1);
        // Counted under other thresholds, then looked at under these.
        let recorder = Recorder::default();
        let rate = rate(100, OUTLIER_WINDOW_MAX, OUTLIER_WINDOW_MAX);
        (0..900).for_each(|_| assert!(!recorder.record(outcome('c'), &rate)));
        assert!(recorder.record(outcome('c'), &consecutive(3)));
        let unbounded = Thresholds { consecutive: None, ..self::rate(1, u16::MAX, u16::MAX) };
        let recorder = Recorder::default();
        (0..5000).for_each(|_| assert!(!recorder.record(outcome('c'), &unbounded)));
    }

    /// Nothing is lost or counted twice between threads, and whoever crosses the threshold is one.
    #[test]
    fn threads_cross_once() {
        let limits = consecutive(1000);
        for _ in 0..20 {
            let (recorder, asked) = (Recorder::default(), AtomicUsize::new(0));
            let fail = || {
                for _ in 0..250 {
                    let asks = recorder.record(outcome('c'), &limits);
                    asked.fetch_add(usize::from(asks), Relaxed);
                }
            };
            std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(fail))));
            assert_eq!(asked.load(Relaxed), 1);
        }
    }

    proptest! {
        #[test]
        fn packed_and_back(word in 0..1u64 << 62) {
            prop_assert_eq!(Counts::unpack(word).pack(), word);
        }

        /// The share is that of the last `window / 2` to `window` outcomes, by looking back.
        #[test]
        fn share_of_the_latest(
            outcomes in prop::collection::vec(any::<bool>(), 0..200),
            percent in 1..=100u8,
            half in 1..20u16,
            volume in 1..20u16,
        ) {
            let limits = rate(percent, half * 2, volume.min(half));
            let recorder = Recorder::default();
            let mut since = 0;
            for (index, &passed) in outcomes.iter().enumerate() {
                let asked = recorder.record(if passed { Ok(()) } else { outcome('c') }, &limits);
                let seen = &outcomes[since..=index];
                let (half, volume) = (usize::from(half), usize::from(volume.min(half)));
                let back = seen.len().min(half + (seen.len() - 1) % half + 1);
                let latest = &seen[seen.len() - back..];
                let failed = latest.iter().filter(|&&passed| !passed).count();
                let due =
                    !passed && back >= volume && failed * 100 >= back * usize::from(percent);
                prop_assert_eq!(asked, due, "{:?}", latest);
                if asked {
                    recorder.take_alarm();
                    since = index + 1;
                }
            }
        }
    }
}
