//! When an ejected backend may come back, and for how long it goes next time.

use std::time::Duration;

use super::Failures;

/// How long ejections last and how they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The first ejection lasts this long, the n-th in a row n times as long.
    pub base_ejection: Duration,
    /// None lasts longer, unless `base_ejection` is.
    pub max_ejection: Duration,
    /// Connections that try the backend at a time when the ejection is over, and how many of them
    /// have to succeed; at least 1.
    pub trial_connections: u8,
}

/// The ejections of one backend. Times are offsets from one origin, on a clock that only goes
/// forwards.
///
/// Each ejection in a row is longer by [`Terms::base_ejection`]. The number in a row goes down by
/// one for each `base_ejection` that the backend spends outside. That is Envoy's rule, where the
/// number goes down once an `interval` (10 s by default, beside a base of 30 s): there is no such
/// interval here, and the base is the measure of how long this pool takes to forgive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Ejections in a row, as it was at the end of the last one or at the beginning of this one.
    number: u32,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not ejected, since then.
    Over { since: Duration },
    Ejected {
        since: Duration,
        until: Duration,
        causes: Failures,
        /// On trial; the round of trials is given up then.
        trial_until: Option<Duration>,
    },
}

impl Default for Ejection {
    fn default() -> Self {
        Ejection { number: 0, phase: Phase::Over { since: Duration::ZERO } }
    }
}

impl Ejection {
    /// Whether the backend is ejected, on trial or not.
    pub fn in_force(&self) -> bool {
        matches!(self.phase, Phase::Ejected { .. })
    }

    /// Ejections in a row: how many times the base the last one lasted, less what is forgiven.
    pub fn in_a_row(&self, now: Duration, terms: &Terms) -> u32 {
        match self.phase {
            Phase::Ejected { .. } => self.number,
            Phase::Over { since } => {
                let spent = now.saturating_sub(since).as_nanos() / base(terms).as_nanos();
                self.number.saturating_sub(u32::try_from(spent).unwrap_or(u32::MAX))
            }
        }
    }

    /// When something happens by itself: the ejection time is over, or trials took too long.
    pub(in crate::health) fn due(&self) -> Option<Duration> {
        match self.phase {
            Phase::Over { .. } => None,
            Phase::Ejected { until, trial_until, .. } => Some(trial_until.unwrap_or(until)),
        }
    }

    /// Ejects, or again for longer; returns for how long.
    pub(in crate::health) fn eject(
        &mut self,
        now: Duration,
        causes: Failures,
        terms: &Terms,
    ) -> Duration {
        let before = match self.phase {
            Phase::Ejected { causes, .. } => causes,
            Phase::Over { .. } => Failures::NONE,
        };
        let base = base(terms);
        let longest = terms.max_ejection.max(base);
        // Beyond, a higher number would not lengthen the ejection, only the forgiving.
        let most = u32::try_from(longest.as_nanos().div_ceil(base.as_nanos())).unwrap_or(u32::MAX);
        self.number = self.in_a_row(now, terms).saturating_add(1).min(most);
        let lasts = base.saturating_mul(self.number).min(longest);
        self.phase = Phase::Ejected {
            since: now,
            until: now.saturating_add(lasts),
            causes: causes.union(before),
            trial_until: None,
        };
        lasts
    }

    /// Lets the backend back.
    pub(in crate::health) fn end(&mut self, now: Duration) {
        self.phase = Phase::Over { since: now };
    }

    /// A round of trials begins; it is given up after another `base_ejection`.
    pub(in crate::health) fn begin_trials(&mut self, now: Duration, terms: &Terms) {
        if let Phase::Ejected { trial_until, .. } = &mut self.phase {
            *trial_until = Some(now.saturating_add(base(terms)));
        }
    }

    /// No trials for now: the backend is down.
    pub(in crate::health) fn suspend_trials(&mut self) {
        if let Phase::Ejected { trial_until, .. } = &mut self.phase {
            *trial_until = None;
        }
    }

    /// Whether a check that passed disproves the ejection: it began when the backend was ejected
    /// already, and finds every kind of failure that the ejection is for.
    pub(in crate::health) fn disproved_by(&self, began: Duration, finds: Failures) -> bool {
        match self.phase {
            Phase::Over { .. } => false,
            Phase::Ejected { since, causes, .. } => began >= since && finds.cover(causes),
        }
    }
}

/// No ejection is for no time at all.
fn base(terms: &Terms) -> Duration {
    terms.base_ejection.max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Failure;
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const TERMS: Terms = Terms {
        base_ejection: Duration::from_secs(10),
        max_ejection: Duration::from_secs(35),
        trial_connections: 1,
    };

    fn connect() -> Failures {
        Failure::Connect.into()
    }

    #[test]
    fn time_grows_and_number_decays() {
        let mut ejection = Ejection::default();
        let mut now = 1000 * S;
        // (seconds outside before it, seconds it lasts)
        for (outside, expected) in [
            (0, 10),
            (0, 20),
            (9, 30),
            (9, 35),
            // The number stops at the one that reaches the maximum.
            (0, 35),
            (9, 35),
            // 4, less one for each 10 s, and one more.
            (10, 35),
            (20, 30),
            (25, 20),
            (20, 10),
            (3600, 10),
            (9, 20),
        ] {
            now += outside * S;
            assert_eq!(ejection.eject(now, connect(), &TERMS), expected * S, "at {now:?}");
            assert_eq!(ejection.due(), Some(now + expected * S));
            now += expected * S;
            ejection.end(now);
            assert_eq!(ejection.due(), None);
        }
        assert_eq!(ejection.in_a_row(now + 19 * S, &TERMS), 1);
        assert_eq!(ejection.in_a_row(now + 20 * S, &TERMS), 0);
        assert_eq!(ejection.in_a_row(Duration::MAX, &TERMS), 0);
    }

    #[test]
    fn again_without_coming_back() {
        let mut ejection = Ejection::default();
        for expected in [10, 20, 30, 35, 35] {
            assert_eq!(ejection.eject(3 * S, connect(), &TERMS), expected * S);
        }
    }

    #[test]
    fn trials_have_a_deadline() {
        let mut ejection = Ejection::default();
        ejection.begin_trials(S, &TERMS);
        assert_eq!(ejection, Ejection::default(), "nothing to try");
        ejection.eject(S, connect(), &TERMS);
        ejection.begin_trials(12 * S, &TERMS);
        assert_eq!(ejection.due(), Some(22 * S));
        ejection.suspend_trials();
        assert_eq!(ejection.due(), Some(11 * S));
    }

    #[test]
    fn checks_disprove_what_they_find() {
        let mut ejection = Ejection::default();
        let finds = Failures::FOUND_BY_CONNECT;
        assert!(!ejection.disproved_by(S, finds), "nothing to disprove");
        ejection.eject(5 * S, connect(), &TERMS);
        assert!(!ejection.disproved_by(4 * S, finds), "it began before");
        assert!(ejection.disproved_by(5 * S, finds));
        assert!(!ejection.disproved_by(5 * S, Failures::NONE));
        // What it was ejected for stays a cause until it is back.
        ejection.eject(20 * S, Failure::EarlyClose.into(), &TERMS);
        assert!(!ejection.disproved_by(30 * S, finds));
        assert!(ejection.disproved_by(30 * S, Failures::FOUND_BY_ANSWER));
        ejection.end(40 * S);
        ejection.eject(50 * S, connect(), &TERMS);
        assert!(ejection.disproved_by(50 * S, finds));
        ejection.eject(60 * S, Failure::Late.into(), &TERMS);
        assert!(!ejection.disproved_by(60 * S, Failures::FOUND_BY_ANSWER));
    }

    #[test]
    fn extremes() {
        let terms = |base, max| Terms { base_ejection: base, max_ejection: max, ..TERMS };
        let mut ejection = Ejection::default();
        let none = terms(Duration::ZERO, Duration::ZERO);
        assert_eq!(ejection.eject(S, connect(), &none), S / 1000);
        let inverted = terms(10 * S, S);
        assert_eq!(ejection.eject(S, connect(), &inverted), 10 * S);
        assert_eq!(ejection.eject(S, connect(), &inverted), 10 * S);
        let longest = terms(Duration::MAX, Duration::MAX);
        assert_eq!(ejection.eject(S, connect(), &longest), Duration::MAX);
        ejection.begin_trials(S, &longest);
        assert_eq!(ejection.due(), Some(Duration::MAX));
        let widest = terms(S / 1000, Duration::MAX);
        ejection.eject(S, connect(), &widest);
    }

    proptest! {
        /// Between the base and the maximum, and never below the one before it unless forgiven.
        #[test]
        fn bounded(
            base in 1..5000u64,
            max in 1..100_000u64,
            outside in prop::collection::vec(0..20_000u64, 1..60),
        ) {
            let terms = Terms {
                base_ejection: Duration::from_millis(base),
                max_ejection: Duration::from_millis(max),
                trial_connections: 1,
            };
            let (mut ejection, mut now) = (Ejection::default(), Duration::ZERO);
            let mut before = Duration::ZERO;
            for outside in outside {
                now += Duration::from_millis(outside);
                let lasts = ejection.eject(now, connect(), &terms);
                prop_assert!(lasts >= terms.base_ejection);
                prop_assert!(lasts <= terms.max_ejection.max(terms.base_ejection));
                prop_assert!(lasts >= before || outside >= base);
                before = lasts;
                now += lasts;
                ejection.end(now);
            }
        }
    }
}
