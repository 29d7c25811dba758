//! Passive detection: what real connections say of a backend, and what follows. The counterpart
//! of Envoy's outlier detection (its architecture overview, "Outlier detection") for connections.
//!
//! Two halves. Workers share [`Passive`], atomics that take an outcome at the price of one
//! compare-and-swap and say when control should look. Control alone owns an [`Ejection`], which
//! knows the time, inside a [`Standing`](super::Standing).
//!
//! ```text
//!            threshold crossed, and there is room     ejection time over, and a connection came
//!   not ejected ─────────────────────▶ ejected ─────────────────────────────▶ on trial
//!        ▲                              │   ▲  └───────────── one failed ─────────┘ │
//!        └─── a check that covers it ───┘   (for longer)                            │
//!        └───────────────────── as many succeeded as are allowed at a time ─────────┘
//! ```

use std::fmt;

mod ejection;
mod recorder;
mod room;
mod trials;

pub use ejection::{Ejection, Terms};
pub use recorder::{Rate, Recorder, Thresholds};
pub use room::has_room;
pub(super) use trials::Verdict;
pub use trials::{Claim, Trials};

/// What workers and control share of one backend. Workers report, control draws conclusions.
#[derive(Debug, Default)]
pub struct Passive {
    /// Outcomes of connections. Any worker writes; control reads and empties it.
    pub recorder: Recorder,
    /// Connections that may try the backend while it is ejected. Control opens and closes it;
    /// any worker claims, and gives back.
    pub trials: Trials,
}

/// How a connection to a backend failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Failure {
    /// It was not established: refused, timed out, unreachable. No client can provoke it.
    Connect = 1,
    /// It was not established in time: another attempt overtook it, or it was given up for taking
    /// too long. No check would find that: a check has patience. A client that leaves meanwhile is
    /// no failure.
    Late = 2,
    /// It was established, and the backend closed or reset it before its first byte although the
    /// client had sent something. A client that sends rubbish can provoke it.
    EarlyClose = 4,
}

/// A set of [`Failure`]s: what an ejection is for, or what a check would have found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures(u8);

impl Failures {
    /// Nothing; also what no check covers.
    pub const NONE: Failures = Failures(0);
    /// What a check covers that only connects.
    pub const FOUND_BY_CONNECT: Failures = Failures(Failure::Connect as u8);
    /// What a check covers that waits for the right answer: `tls`, `http`, and `tcp` or `udp` with
    /// something to expect.
    pub const FOUND_BY_ANSWER: Failures =
        Failures(Failure::Connect as u8 | Failure::EarlyClose as u8);

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self == Failures::NONE
    }

    /// These and that one.
    #[must_use]
    pub fn with(self, failure: Failure) -> Failures {
        Failures(self.0 | failure as u8)
    }

    /// These and those.
    #[must_use]
    pub fn union(self, other: Failures) -> Failures {
        Failures(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    pub fn cover(self, other: Failures) -> bool {
        other.0 & !self.0 == 0
    }

    /// The set as [`BITS`](Failures::BITS) bits.
    const fn bits(self) -> u8 {
        self.0
    }

    /// The set of these bits; others are ignored.
    const fn from_bits(bits: u8) -> Failures {
        Failures(bits & ((1 << Failures::BITS) - 1))
    }

    const BITS: u32 = 3;
}

impl From<Failure> for Failures {
    fn from(failure: Failure) -> Self {
        Failures::NONE.with(failure)
    }
}

/// The words of logs: `connect`, `connect and early close`.
impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            (Failure::Connect, "connect"),
            (Failure::Late, "late"),
            (Failure::EarlyClose, "early close"),
        ];
        let mut before = "";
        for (failure, word) in words {
            if self.cover(failure.into()) {
                write!(f, "{before}{word}")?;
                before = " and ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage() {
        let check = |causes: &[Failure], by_connect, by_answer, words: &str| {
            let causes = causes.iter().fold(Failures::NONE, |all, &failure| all.with(failure));
            assert_eq!(Failures::FOUND_BY_CONNECT.cover(causes), by_connect, "{causes}");
            assert_eq!(Failures::FOUND_BY_ANSWER.cover(causes), by_answer, "{causes}");
            assert_eq!(causes.to_string(), words);
            assert_eq!(Failures::from_bits(causes.bits()), causes);
        };
        use Failure::{Connect, EarlyClose, Late};
        check(&[Connect], true, true, "connect");
        check(&[EarlyClose], false, true, "early close");
        check(&[EarlyClose, Connect], false, true, "connect and early close");
        check(&[Late], false, false, "late");
        check(&[Late, Connect], false, false, "connect and late");
        assert!(!Failures::NONE.cover(Failure::Connect.into()));
    }
}
