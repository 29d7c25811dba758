//! Where a backend stands: checks, ejection and trials composed into the one state that picks,
//! status and logs go by.
//!
//! The effective state is what the checks say unless they say up; then `ejected` while an ejection
//! is in force, else `up`:
//!
//! | checks say | ejection in force | state |
//! |---|---|---|
//! | nothing yet | either | `unknown` |
//! | down | either | `down` |
//! | up, or there are none | yes | `ejected` |
//! | up, or there are none | no | `up` |
//!
//! An ejection below `down` stays in force: a backend that rises comes back as `ejected`, unless a
//! check that passed meanwhile has ended the ejection. Trials of before it went down are void.
//!
//! A check ends an ejection, at any time and with one pass as in Envoy, if it began after it and
//! would have found every kind of failure that the ejection is for. Only connections to a backend
//! that is `up` get it ejected: of one that is down, failures in panic are no news.

use std::time::Duration;

use super::outlier::{Ejection, Failures, Passive, Terms, Verdict};
use super::{Check, State};

/// What control knows of one backend. Control alone owns it, and publishes [`Standing::state`]
/// after each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    check: Check,
    ejection: Ejection,
    /// When it last became [`State::Up`], for slow start; `None`: it never was anything else.
    came_up: Option<Duration>,
}

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// When the check began: one from before an ejection says nothing of it.
    pub began: Duration,
    /// Whether it passed.
    pub passed: bool,
    /// Failures of connections that a check of this type would have found.
    pub finds: Failures,
}

/// Something to publish, log and count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The state before.
    pub from: State,
    /// The state now; the same if an ejection followed the other, or ended below `down`.
    pub to: State,
    /// What brought it about.
    pub reason: Reason,
}

/// What changes a backend's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Results of checks, by rise and fall; or a reload that ended them.
    Checks,
    /// Connections failed. An ejection to be counted.
    Ejected {
        /// How they failed.
        causes: Failures,
        /// Ejections in a row, this one included.
        in_a_row: u32,
        /// Until the first trial.
        lasts: Duration,
    },
    /// As many trial connections as it takes succeeded.
    Tried,
    /// A check passed that would have found what the ejection was for.
    Disproved,
    /// Ejected no longer: passive detection was switched off, or a trial failed but the pool has
    /// become too small for another ejection.
    Pardoned,
}

impl Standing {
    /// A backend of which `check` is known, and no ejection.
    pub fn new(check: Check) -> Self {
        Standing { check, ejection: Ejection::default(), came_up: None }
    }

    /// The effective state.
    pub fn state(&self) -> State {
        match self.check.state() {
            State::Up if self.ejection.in_force() => State::Ejected,
            state => state,
        }
    }

    /// Whether the next check may decide something.
    pub fn in_doubt(&self) -> bool {
        self.check.in_doubt()
    }

    /// Its ejections. One in force counts towards the most of a pool, whatever the state.
    pub fn ejection(&self) -> &Ejection {
        &self.ejection
    }

    /// When it last came up, from unknown as well; `None` if it has been up from the beginning.
    pub fn came_up(&self) -> Option<Duration> {
        self.came_up
    }

    /// When [`Standing::look`] is to be called even if no worker asks for it.
    pub fn due(&self) -> Option<Duration> {
        // Below any other state an ejection has nothing to do when its time is over.
        self.ejection.due().filter(|_| self.state() == State::Ejected)
    }

    /// A reload's new numbers for the checks.
    pub fn set_thresholds(&mut self, rise: u32, fall: u32) {
        self.check.set_thresholds(rise, fall);
    }

    /// A reload's other checks, or that there are none any more: then `check` is up.
    pub fn set_check(&mut self, now: Duration, check: Check, passive: &Passive) -> Option<Change> {
        let from = self.state();
        self.check = check;
        self.follow_checks(now, from, passive)
    }

    /// Takes the result of a check.
    pub fn on_check(
        &mut self,
        now: Duration,
        result: CheckResult,
        passive: &Passive,
    ) -> Option<Change> {
        let from = self.state();
        let disproved = result.passed && self.ejection.disproved_by(result.began, result.finds);
        self.check.on_result(result.passed);
        if disproved {
            self.let_back(now, passive);
            return self.changed(now, from, passive, Reason::Disproved);
        }
        self.follow_checks(now, from, passive)
    }

    /// Looks at what connections have shown: called when a worker asks for it, and when it is
    /// [due](Standing::due); at any other time nothing happens. `has_room` says whether the pool
    /// may have this backend ejected, and is asked only if it matters.
    pub fn look(
        &mut self,
        now: Duration,
        terms: &Terms,
        passive: &Passive,
        has_room: impl FnOnce() -> bool,
    ) -> Option<Change> {
        let from = self.state();
        let alarm = passive.recorder.take_alarm();
        let causes = match from {
            State::Unknown | State::Down => return None,
            State::Up => alarm?,
            State::Ejected => match passive.trials.verdict() {
                Some(Verdict::Failed(causes)) => causes,
                Some(Verdict::Passed) => {
                    self.let_back(now, passive);
                    return self.changed(now, from, passive, Reason::Tried);
                }
                None => {
                    self.try_when_due(now, terms, passive);
                    return None;
                }
            },
        };
        if has_room() {
            let lasts = self.ejection.eject(now, causes, terms);
            passive.trials.close();
            let in_a_row = self.ejection.in_a_row(now, terms);
            return self.changed(now, from, passive, Reason::Ejected { causes, in_a_row, lasts });
        }
        if from == State::Up {
            return None;
        }
        self.let_back(now, passive);
        self.changed(now, from, passive, Reason::Pardoned)
    }

    /// Ends an ejection without a trial: passive detection is off.
    pub fn pardon(&mut self, now: Duration, passive: &Passive) -> Option<Change> {
        let from = self.state();
        if !self.ejection.in_force() {
            return None;
        }
        self.let_back(now, passive);
        self.changed(now, from, passive, Reason::Pardoned)
    }

    /// A backend that is ejected still, but for whom the time is over, is tried; so it is when
    /// not enough has come of the last trials. Those may hang: a client that says nothing never
    /// shows whether the backend would have closed early, and must not keep it from coming back.
    fn try_when_due(&mut self, now: Duration, terms: &Terms, passive: &Passive) {
        if self.due().is_some_and(|due| now >= due) {
            passive.trials.open(terms.trial_connections.max(1));
            self.ejection.begin_trials(now, terms);
        }
    }

    fn follow_checks(&mut self, now: Duration, from: State, passive: &Passive) -> Option<Change> {
        if self.state() != State::Ejected && self.ejection.in_force() {
            passive.trials.close();
            self.ejection.suspend_trials();
        }
        self.changed(now, from, passive, Reason::Checks).filter(|change| change.from != change.to)
    }

    fn let_back(&mut self, now: Duration, passive: &Passive) {
        self.ejection.end(now);
        passive.trials.close();
    }

    fn changed(
        &mut self,
        now: Duration,
        from: State,
        passive: &Passive,
        reason: Reason,
    ) -> Option<Change> {
        let to = self.state();
        if to == State::Up && from != State::Up {
            self.came_up = Some(now);
            // What was counted before, or in panic, is not held against it.
            passive.recorder.reset();
        }
        Some(Change { from, to, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::super::outlier::{Failure, Thresholds};
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const LIMITS: Thresholds = Thresholds { consecutive: Some(3), rate: None };
    const TERMS: Terms = Terms {
        base_ejection: Duration::from_secs(10),
        max_ejection: Duration::from_secs(300),
        trial_connections: 1,
    };

    /// A backend, its time, and the shorthand of the tests below.
    struct Scene {
        now: Duration,
        standing: Standing,
        passive: Passive,
        room: bool,
        terms: Terms,
    }

    impl Scene {
        fn new(state: State) -> Self {
            let standing = Standing::new(Check::with_state(state, 2, 3));
            Scene { now: S, standing, passive: Passive::default(), room: true, terms: TERMS }
        }

        fn look(&mut self) -> Option<Change> {
            self.standing.look(self.now, &self.terms, &self.passive, || self.room)
        }

        fn fail(&mut self, failure: Failure) -> Option<Change> {
            let mut asked = false;
            for _ in 0..3 {
                asked = self.passive.recorder.record(Err(failure), &LIMITS);
            }
            assert!(asked);
            self.look()
        }

        fn check(&mut self, passed: bool, finds: Failures) -> Option<Change> {
            let result = CheckResult { began: self.now, passed, finds };
            self.standing.on_check(self.now, result, &self.passive)
        }

        /// At the moment something is due.
        fn wait(&mut self) -> Option<Change> {
            self.now = self.standing.due().expect("something is due");
            self.look()
        }

        #[track_caller]
        fn expect(&self, change: Option<Change>, from: State, to: State, reason: Reason) {
            assert_eq!(change, Some(Change { from, to, reason }));
            assert_eq!(self.standing.state(), to);
        }
    }

    fn ejected(failure: Failure, in_a_row: u32, seconds: u32) -> Reason {
        Reason::Ejected { causes: failure.into(), in_a_row, lasts: seconds * S }
    }

    use Failure::{Connect, EarlyClose};
    use State::{Down, Ejected, Unknown, Up};

    #[test]
    fn there_and_back() {
        let mut scene = Scene::new(Up);
        assert_eq!(
            (scene.look(), scene.standing.due(), scene.standing.came_up()),
            (None, None, None)
        );
        let change = scene.fail(Connect);
        scene.expect(change, Up, Ejected, ejected(Connect, 1, 10));
        assert_eq!(scene.standing.due(), Some(11 * S));
        assert!(!scene.passive.trials.available());
        scene.now = 10 * S;
        assert_eq!(scene.look(), None, "too early");
        assert!(!scene.passive.trials.available());

        assert_eq!(scene.wait(), None);
        assert_eq!(scene.standing.state(), Ejected);
        let claim = scene.passive.trials.claim().unwrap();
        assert!(scene.passive.trials.failed(claim, Connect));
        let change = scene.look();
        scene.expect(change, Ejected, Ejected, ejected(Connect, 2, 20));

        assert_eq!(scene.wait(), None);
        let claim = scene.passive.trials.claim().unwrap();
        assert!(scene.passive.trials.succeeded(claim));
        let change = scene.look();
        scene.expect(change, Ejected, Up, Reason::Tried);
        assert_eq!(scene.standing.came_up(), Some(31 * S));
        assert!(!scene.passive.trials.available());
        // Two were forgiven for 20 s outside.
        scene.now += 20 * S;
        let change = scene.fail(Connect);
        scene.expect(change, Up, Ejected, ejected(Connect, 1, 10));
    }

    #[test]
    fn all_trials_have_to_succeed() {
        let mut scene = Scene::new(Up);
        scene.terms.trial_connections = 2;
        scene.fail(Connect);
        scene.wait();
        let claims = [(); 2].map(|()| scene.passive.trials.claim().unwrap());
        let [first, second] = claims;
        assert!(!scene.passive.trials.succeeded(first));
        assert_eq!(scene.look(), None);
        assert!(scene.passive.trials.failed(second, Connect));
        let change = scene.look();
        scene.expect(change, Ejected, Ejected, ejected(Connect, 2, 20));
    }

    /// A trial that never ends does not keep the backend out for ever.
    #[test]
    fn trials_that_hang_are_given_up() {
        let mut scene = Scene::new(Up);
        scene.fail(EarlyClose);
        scene.wait();
        let silent = scene.passive.trials.claim().unwrap();
        assert!(!scene.passive.trials.available());
        scene.now += 9 * S;
        assert_eq!(scene.look(), None);
        assert!(!scene.passive.trials.available());
        assert_eq!(scene.wait(), None);
        let claim = scene.passive.trials.claim().unwrap();
        assert!(!scene.passive.trials.failed(silent, EarlyClose), "of the round before");
        assert!(scene.passive.trials.succeeded(claim));
        let change = scene.look();
        scene.expect(change, Ejected, Up, Reason::Tried);
    }

    /// A backend that gets one connection a round comes back all the same.
    #[test]
    fn few_connections_are_enough() {
        let mut scene = Scene::new(Up);
        scene.terms.trial_connections = 3;
        scene.fail(Failure::Late);
        for round in 1..=3 {
            assert_eq!(scene.wait(), None);
            let claim = scene.passive.trials.claim().unwrap();
            assert_eq!(scene.passive.trials.succeeded(claim), round == 3);
        }
        let change = scene.look();
        scene.expect(change, Ejected, Up, Reason::Tried);
    }

    #[test]
    fn checks_that_cover_end_it() {
        let mut scene = Scene::new(Up);
        scene.fail(EarlyClose);
        assert_eq!(scene.check(true, Failures::FOUND_BY_CONNECT), None);
        let before = CheckResult { began: S / 2, passed: true, finds: Failures::FOUND_BY_ANSWER };
        assert_eq!(scene.standing.on_check(scene.now, before, &scene.passive), None);
        let change = scene.check(true, Failures::FOUND_BY_ANSWER);
        scene.expect(change, Ejected, Up, Reason::Disproved);
        // On trial as well; the trial is void.
        scene.fail(Connect);
        scene.wait();
        let claim = scene.passive.trials.claim().unwrap();
        let change = scene.check(true, Failures::FOUND_BY_CONNECT);
        scene.expect(change, Ejected, Up, Reason::Disproved);
        assert!(!scene.passive.trials.failed(claim, Connect));
        assert_eq!(scene.look(), None);
    }

    #[test]
    fn down_outranks_ejected() {
        let mut scene = Scene::new(Up);
        scene.fail(EarlyClose);
        scene.wait();
        let claim = scene.passive.trials.claim().unwrap();
        let finds = Failures::FOUND_BY_CONNECT;
        assert_eq!(scene.check(false, finds), None);
        assert_eq!(scene.check(false, finds), None);
        let change = scene.check(false, finds);
        scene.expect(change, Ejected, Down, Reason::Checks);
        assert!(scene.standing.ejection().in_force());
        assert!(!scene.passive.trials.available(), "nothing is tried that is down");
        assert!(!scene.passive.trials.failed(claim, EarlyClose));
        assert_eq!((scene.standing.due(), scene.look()), (None, None));

        assert_eq!(scene.check(true, finds), None);
        let change = scene.check(true, finds);
        scene.expect(change, Down, Ejected, Reason::Checks);
        assert_eq!(scene.standing.due(), Some(11 * S), "in the past: at once");
        assert_eq!(scene.look(), None);
        assert!(scene.passive.trials.available());
    }

    #[test]
    fn ends_below_down() {
        let mut scene = Scene::new(Up);
        scene.fail(Connect);
        (0..3).for_each(|_| _ = scene.check(false, Failures::FOUND_BY_CONNECT));
        let change = scene.check(true, Failures::FOUND_BY_CONNECT);
        scene.expect(change, Down, Down, Reason::Disproved);
        let change = scene.check(true, Failures::FOUND_BY_CONNECT);
        scene.expect(change, Down, Up, Reason::Checks);
    }

    #[test]
    fn no_room() {
        let mut scene = Scene::new(Up);
        scene.room = false;
        assert_eq!(scene.fail(Connect), None);
        assert_eq!(scene.standing.state(), Up);
        scene.room = true;
        scene.fail(Connect);
        scene.wait();
        let claim = scene.passive.trials.claim().unwrap();
        scene.passive.trials.failed(claim, Connect);
        scene.room = false;
        let change = scene.look();
        scene.expect(change, Ejected, Up, Reason::Pardoned);
    }

    #[test]
    fn pardon_ends_it() {
        let mut scene = Scene::new(Up);
        assert_eq!(scene.standing.pardon(S, &scene.passive), None);
        scene.fail(Connect);
        let change = scene.standing.pardon(S, &scene.passive);
        scene.expect(change, Ejected, Up, Reason::Pardoned);
        assert_eq!(scene.standing.due(), None);
    }

    /// What fails in panic while it is down, or not checked yet, is neither ejected nor held
    /// against it when it comes up.
    #[test]
    fn failures_while_not_up_are_no_news() {
        for state in [Unknown, Down] {
            let mut scene = Scene::new(state);
            assert_eq!(scene.fail(Connect), None);
            for _ in 0..2 {
                scene.passive.recorder.record(Err(Connect), &LIMITS);
            }
            (0..2).for_each(|_| _ = scene.check(true, Failures::FOUND_BY_CONNECT));
            assert_eq!((scene.standing.state(), scene.standing.came_up()), (Up, Some(S)));
            assert!(!scene.passive.recorder.record(Err(Connect), &LIMITS));
            assert_eq!(scene.standing.state(), Up);
        }
    }

    #[test]
    fn checks_that_come_and_go() {
        let mut scene = Scene::new(Down);
        let up = Check::with_state(Up, 1, 1);
        let change = scene.standing.set_check(5 * S, up, &scene.passive);
        scene.expect(change, Down, Up, Reason::Checks);
        assert_eq!(scene.standing.came_up(), Some(5 * S));
        assert_eq!(scene.standing.set_check(6 * S, up, &scene.passive), None);
        scene.fail(Connect);
        let change = scene.standing.set_check(7 * S, Check::new(2, 3), &scene.passive);
        scene.expect(change, Ejected, Unknown, Reason::Checks);
    }
}
