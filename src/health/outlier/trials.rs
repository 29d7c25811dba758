//! Half-open: the few connections that may try an ejected backend whose time is over.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Failure, Failures};

/// Places for trial connections to one backend. Control opens a round of them and closes it; any
/// worker claims one, and gives it back with what became of it.
///
/// Everything is in one word, so the places are exact however many workers want one. Claims belong
/// to a round: one that outlives it changes nothing in the next.
#[derive(Debug, Default)]
pub struct Trials(AtomicU64);

/// A place in a round. Whoever holds it gives it back, by [`Trials::succeeded`],
/// [`Trials::failed`] or [`Trials::cancelled`]: the last belongs into the `Drop` of a guard.
/// Neither `Copy` nor `Clone`, so that it cannot be given back twice.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a claim that is dropped keeps its place until control opens the next round"]
pub struct Claim {
    round: u32,
}

/// What the trials of a round have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::health) enum Verdict {
    /// As many succeeded as were allowed at a time.
    Passed,
    /// One failed, in one of these ways.
    Failed(Failures),
}

impl Trials {
    /// Whether a claim would succeed at this moment. For picks: one load.
    pub fn available(&self) -> bool {
        Round::unpack(self.0.load(Relaxed)).has_place()
    }

    /// Whether a round of trials is under way, its places taken or not.
    pub fn is_open(&self) -> bool {
        Round::unpack(self.0.load(Relaxed)).places > 0
    }

    /// Takes a place if there is one.
    pub fn claim(&self) -> Option<Claim> {
        let before = self.0.fetch_update(Relaxed, Relaxed, |word| {
            let mut round = Round::unpack(word);
            round.has_place().then(|| {
                round.in_flight += 1;
                round.pack()
            })
        });
        before.ok().map(|word| Claim { round: Round::unpack(word).number })
    }

    /// Gives a place back after a success; true if that decides, and control should look.
    pub fn succeeded(&self, claim: Claim) -> bool {
        self.give_back(&claim, |round| round.succeeded += 1)
    }

    /// Gives a place back after a failure; true if that decides, and control should look.
    pub fn failed(&self, claim: Claim, failure: Failure) -> bool {
        self.give_back(&claim, |round| round.failed = round.failed.with(failure))
    }

    /// Gives a place back that was used for nothing: the session ended before its outcome, or
    /// another backend was tried. The next connection may have it.
    pub fn cancelled(&self, claim: Claim) {
        self.give_back(&claim, |_| ());
    }

    fn give_back(&self, claim: &Claim, note: impl Fn(&mut Round)) -> bool {
        let mut decides = false;
        let _void = self.0.fetch_update(Relaxed, Relaxed, |word| {
            let mut round = Round::unpack(word);
            if round.number != claim.round {
                decides = false;
                return None;
            }
            let before = round.verdict();
            round.in_flight = round.in_flight.saturating_sub(1);
            note(&mut round);
            decides = before.is_none() && round.verdict().is_some();
            Some(round.pack())
        });
        decides
    }

    /// Opens a round with this many places; claims of earlier ones are void. What has succeeded in
    /// a round that is open still counts on: else a backend that gets few connections might never
    /// see enough of them in one. Control only.
    pub(in crate::health) fn open(&self, places: u8) {
        self.renew(|round| Round { places, in_flight: 0, ..round });
    }

    /// Closes the round: no more places, and its claims are void. Control only.
    pub(in crate::health) fn close(&self) {
        self.renew(|_| Round::default());
    }

    fn renew(&self, next: impl Fn(Round) -> Round) {
        let renewed = |word| {
            let round = Round::unpack(word);
            Some(Round { number: round.number.wrapping_add(1), ..next(round) }.pack())
        };
        let _never_refused = self.0.fetch_update(Relaxed, Relaxed, renewed);
    }

    /// What the round has shown so far. Control only.
    pub(in crate::health) fn verdict(&self) -> Option<Verdict> {
        Round::unpack(self.0.load(Relaxed)).verdict()
    }
}

/// The word, taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    /// Tells claims of this round from those of others.
    number: u32,
    /// Connections admitted at a time, and successes asked for; 0: closed.
    places: u8,
    in_flight: u8,
    succeeded: u8,
    failed: Failures,
}

impl Round {
    /// A success keeps its place: more are not needed than there are places.
    fn has_place(&self) -> bool {
        let taken = u16::from(self.in_flight) + u16::from(self.succeeded);
        self.failed.is_empty() && taken < u16::from(self.places)
    }

    fn verdict(&self) -> Option<Verdict> {
        if !self.failed.is_empty() {
            return Some(Verdict::Failed(self.failed));
        }
        (self.places > 0 && self.succeeded >= self.places).then_some(Verdict::Passed)
    }

    fn pack(&self) -> u64 {
        let [a, b, c, d] = self.number.to_be_bytes();
        let failed = self.failed.bits();
        u64::from_be_bytes([a, b, c, d, self.places, self.in_flight, self.succeeded, failed])
    }

    fn unpack(word: u64) -> Self {
        let [a, b, c, d, places, in_flight, succeeded, failed] = word.to_be_bytes();
        let (number, failed) = (u32::from_be_bytes([a, b, c, d]), Failures::from_bits(failed));
        Round { number, places, in_flight, succeeded, failed }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn places_are_counted() {
        let trials = Trials::default();
        assert!(!trials.available());
        assert_eq!(trials.claim(), None, "nothing was opened");
        trials.open(2);
        let (first, second) = (trials.claim().unwrap(), trials.claim().unwrap());
        assert!(!trials.available());
        assert_eq!(trials.claim(), None);
        trials.cancelled(first);
        assert!(trials.available(), "a place that was used for nothing is free again");
        assert!(!trials.succeeded(second));
        assert_eq!(trials.verdict(), None);
        let third = trials.claim().unwrap();
        assert_eq!(trials.claim(), None, "one has succeeded, one is under way: that is enough");
        assert!(trials.succeeded(third));
        assert_eq!(trials.verdict(), Some(Verdict::Passed));
        assert_eq!(trials.claim(), None);
    }

    #[test]
    fn one_failure_decides() {
        let trials = Trials::default();
        trials.open(3);
        let claims = [(); 3].map(|()| trials.claim().unwrap());
        let [first, second, third] = claims;
        assert!(trials.failed(first, Failure::Connect));
        let failed = Verdict::Failed(Failure::Connect.into());
        assert_eq!(trials.verdict(), Some(failed));
        assert_eq!(trials.claim(), None);
        assert!(!trials.succeeded(second), "decided already");
        assert_eq!(trials.verdict(), Some(failed));
        assert!(!trials.failed(third, Failure::EarlyClose), "decided already");
        let both = Failures::from(Failure::Connect).with(Failure::EarlyClose);
        assert_eq!(trials.verdict(), Some(Verdict::Failed(both)));
    }

    #[test]
    fn claims_do_not_outlive_their_round() {
        let trials = Trials::default();
        trials.open(1);
        let old = [(); 3].map(|()| {
            let claim = trials.claim().unwrap();
            trials.open(1);
            claim
        });
        let current = trials.claim().unwrap();
        let [first, second, third] = old;
        assert!(!trials.succeeded(first));
        assert!(!trials.failed(second, Failure::Late));
        trials.cancelled(third);
        assert_eq!(trials.verdict(), None);
        assert!(!trials.available(), "the place of the current claim is still taken");
        trials.close();
        assert!(!trials.succeeded(current));
        assert_eq!((trials.verdict(), trials.available()), (None, false));
    }

    /// A round that goes on keeps what has succeeded, and one that was closed does not.
    #[test]
    fn successes_add_up_over_rounds() {
        let trials = Trials::default();
        for _ in 0..2 {
            trials.open(2);
            let (first, hung) = (trials.claim().unwrap(), trials.claim().unwrap());
            assert!(!trials.succeeded(first));
            assert_eq!(trials.claim(), None);
            trials.open(2);
            let second = trials.claim().unwrap();
            assert_eq!(trials.claim(), None, "one has succeeded");
            assert!(!trials.failed(hung, Failure::Late), "of the round before");
            assert!(trials.succeeded(second));
            assert_eq!(trials.verdict(), Some(Verdict::Passed));
            trials.close();
        }
    }

    /// Never more at a time than places, whatever the workers do; all come back; it is decided
    /// once.
    #[test]
    fn threads_share_the_places() {
        const PLACES: u32 = 3;
        for round in 0..20u32 {
            let (trials, at_once, decided) =
                (Trials::default(), AtomicU32::new(0), AtomicU32::new(0));
            let over = AtomicBool::new(false);
            trials.open(PLACES as u8);
            let work = |thread: u32| {
                let mut rng = fastrand::Rng::with_seed(u64::from(round * 4 + thread));
                while !over.load(Relaxed) {
                    let Some(claim) = trials.claim() else {
                        std::thread::yield_now();
                        continue;
                    };
                    assert!(at_once.fetch_add(1, Relaxed) < PLACES, "too many at once");
                    std::thread::yield_now();
                    at_once.fetch_sub(1, Relaxed);
                    let decides = match rng.u32(..8) {
                        0 if round % 2 == 0 => trials.failed(claim, Failure::Connect),
                        1 => trials.succeeded(claim),
                        _ => {
                            trials.cancelled(claim);
                            false
                        }
                    };
                    if decides {
                        decided.fetch_add(1, Relaxed);
                        over.store(true, Relaxed);
                    }
                }
            };
            std::thread::scope(|scope| {
                (0..4).for_each(|thread| drop(scope.spawn(move || work(thread))));
            });
            assert_eq!(decided.load(Relaxed), 1);
            let left = Round::unpack(trials.0.load(Relaxed));
            assert_eq!(left.in_flight, 0, "{left:?}");
            assert!(trials.verdict().is_some());
        }
    }

    proptest! {
        #[test]
        fn packed_and_back(word: u64) {
            let word = word & !0xf8;
            prop_assert_eq!(Round::unpack(word).pack(), word);
        }

        /// Any sequence of claims and outcomes against a list of what is claimed.
        #[test]
        fn any_sequence(places in 1..5u8, steps in prop::collection::vec(0..5u8, 0..60)) {
            let trials = Trials::default();
            trials.open(places);
            let (mut claims, mut succeeded, mut failed) = (Vec::new(), 0, false);
            for step in steps {
                let room = !failed && claims.len() + succeeded < usize::from(places);
                prop_assert_eq!(trials.available(), room);
                match step {
                    0 | 1 => {
                        let claim = trials.claim();
                        prop_assert_eq!(claim.is_some(), room);
                        claims.extend(claim);
                    }
                    _ => {
                        let Some(claim) = claims.pop() else { continue };
                        let decided = failed || succeeded >= usize::from(places);
                        let decides = match step {
                            2 => { trials.cancelled(claim); false }
                            3 => { succeeded += 1; trials.succeeded(claim) }
                            _ => { failed = true; trials.failed(claim, Failure::Connect) }
                        };
                        let now = failed || succeeded >= usize::from(places);
                        prop_assert_eq!(decides, now && !decided);
                    }
                }
            }
        }
    }
}
