//! The rules of ejections and trials, said in another way than the program says them: from what
//! could be seen from outside, with no state machine.

use std::time::Duration;

use pointsman::health::outlier::{Failures, Terms};
use pointsman::health::standing::{Change, CheckResult, Reason};
use pointsman::health::{Standing, State};

/// What was seen of one backend.
#[derive(Debug, Default)]
pub struct Referee {
    ejection: Option<Ejection>,
    /// How long the last ejection lasted.
    lasted: Duration,
    /// When it came back from there.
    returned: Duration,
    round: Round,
}

/// The ejection in force.
#[derive(Debug)]
struct Ejection {
    since: Duration,
    until: Duration,
    causes: Failures,
}

/// Trials that count together; what comes of those of another round counts for nothing.
#[derive(Debug, Default)]
struct Round {
    number: u32,
    began: Option<Duration>,
    /// Trial connections with no outcome yet, those that succeeded and those that failed.
    trying: u32,
    succeeded: u32,
    failed: u32,
}

impl Referee {
    /// Judges a change. `others` are the other backends of the pool: weight and standing.
    pub fn judge<'a>(
        &mut self,
        now: Duration,
        change: &Change,
        terms: &Terms,
        max_percent: u8,
        others: impl Iterator<Item = (u16, &'a Standing)>,
    ) {
        match change.reason {
            Reason::Ejected { causes, in_a_row, lasts } => {
                assert_eq!(change.to, State::Ejected);
                self.judge_room(max_percent, others);
                assert_eq!(lasts, (terms.base_ejection * in_a_row).min(terms.max_ejection));
                self.judge_length(now, lasts, terms);
                let before = self.ejection.take();
                assert_eq!(change.from == State::Ejected, before.is_some());
                if before.is_some() {
                    assert!(self.round.failed > 0, "ejected again, and no trial failed");
                }
                let causes = before.map_or(causes, |before| before.causes.union(causes));
                self.ejection = Some(Ejection { since: now, until: now + lasts, causes });
                self.end_round();
                self.lasted = lasts;
            }
            Reason::Tried => {
                assert!(self.ejection.take().is_some(), "back from an ejection");
                assert_eq!(self.round.failed, 0);
                assert_eq!(self.round.succeeded, u32::from(terms.trial_connections));
                assert_eq!((change.from, change.to), (State::Ejected, State::Up));
                self.returned = now;
                self.end_round();
            }
            Reason::Disproved | Reason::Pardoned => {
                assert!(self.ejection.take().is_some(), "back from an ejection");
                assert_ne!(change.to, State::Ejected);
                self.returned = now;
                self.end_round();
            }
            Reason::Checks => {
                assert_ne!(change.from, change.to);
                self.end_round();
            }
        }
    }

    fn end_round(&mut self) {
        self.round = Round { number: self.round.number + 1, ..Round::default() };
    }

    fn judge_room<'a>(&self, percent: u8, others: impl Iterator<Item = (u16, &'a Standing)>) {
        let others: Vec<_> = others.filter(|(weight, _)| *weight > 0).collect();
        let ejected = 1 + others.iter().filter(|(_, s)| s.ejection().in_force()).count();
        let most = (others.len() + 1) * usize::from(percent) / 100;
        assert!(ejected <= most, "{ejected} ejected, at most {most}");
        let another = others.iter().any(|(_, standing)| standing.state() == State::Up);
        assert!(another || percent == 100, "the last one was ejected");
    }

    /// One `base_ejection` longer than the last time, if that was a moment ago; as the first time,
    /// if it was long ago; something between, if between.
    fn judge_length(&self, now: Duration, lasts: Duration, terms: &Terms) {
        let (base, max) = (terms.base_ejection, terms.max_ejection);
        let longer = (self.lasted + base).min(max);
        assert!((base..=longer).contains(&lasts), "{lasts:?} after {:?}", self.lasted);
        let outside = if self.ejection.is_some() { Duration::ZERO } else { now - self.returned };
        assert!(outside >= base || lasts == longer, "forgiven too soon");
        assert!(outside < max || lasts == base, "not forgiven");
    }

    /// A passing check ended an ejection.
    pub fn judge_disproof(&self, result: &CheckResult) {
        let ejection = self.ejection.as_ref().expect("there was an ejection to end");
        assert!(result.passed && result.began >= ejection.since);
        assert!(result.finds.cover(ejection.causes), "{ejection:?} ended by {result:?}");
    }

    /// Trials are opened: after the time of the ejection, and again if too little came of them, of
    /// which what succeeded counts on.
    pub fn opens(&mut self, now: Duration, terms: &Terms) {
        let ejection = self.ejection.as_ref().expect("only what is ejected is tried");
        assert!(now >= ejection.until, "tried before its time: {ejection:?}");
        let Round { began, succeeded, failed, .. } = self.round;
        assert!(began.is_none_or(|began| now >= began + terms.base_ejection), "too early again");
        assert!(failed == 0 && succeeded < u32::from(terms.trial_connections), "it was decided");
        self.end_round();
        (self.round.began, self.round.succeeded) = (Some(now), succeeded);
    }

    /// A trial connection begins; returns its round.
    pub fn tries(&mut self, terms: &Terms) -> u32 {
        let round = &mut self.round;
        assert!(round.began.is_some() && round.failed == 0, "{round:?}");
        round.trying += 1;
        let taken = round.trying + round.succeeded;
        assert!(taken <= u32::from(terms.trial_connections), "too many trials: {round:?}");
        round.number
    }

    /// A trial connection has an outcome; `None`: it was cancelled.
    pub fn tried(&mut self, round: u32, outcome: Option<bool>) {
        if round != self.round.number {
            return;
        }
        self.round.trying = self.round.trying.checked_sub(1).expect("never below zero");
        self.round.succeeded += u32::from(outcome == Some(true));
        self.round.failed += u32::from(outcome == Some(false));
    }
}
