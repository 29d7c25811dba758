//! The control side: checks, looks, panic.

use std::collections::BTreeMap;

use pointsman::balance::{Member, Policy, PolicyKind, Spec, key::KeyKind};
use pointsman::health::outlier::has_room;
use pointsman::health::standing::{Change, CheckResult, Reason};
use pointsman::health::{in_panic, slow_start};

use super::*;

pub(super) fn policy(kind: PolicyKind, backends: &BTreeMap<u32, Backend>) -> Policy {
    let spec = Spec { policy: kind, key: KeyKind::FiveTuple, table_size: 251, bounded_load: None };
    let keys: Vec<_> = backends.keys().map(u32::to_string).collect();
    let weights = backends.values().map(|backend| backend.weight);
    let members = keys.iter().zip(weights).map(|(key, weight)| Member { key, weight });
    Policy::new(&spec, &members.collect::<Vec<_>>()).expect("at most 9 backends")
}

impl World {
    /// The backend of this identity, unless it was removed.
    pub(super) fn backend(&mut self, (key, life): Id) -> Option<&mut Backend> {
        self.backends.get_mut(&key).filter(|backend| backend.life == life)
    }

    pub(super) fn start_check(&mut self, id: Id) {
        let (now, mut rng) = (self.now, self.rng.fork());
        let finds = self.finds.expect("there are checks");
        let Some(backend) = self.backend(id) else { return };
        let (passed, took) = match backend.fault {
            Fault::None => (true, 1),
            Fault::Slow => (true, rng.u64(30..200)),
            Fault::Flaky => (rng.bool(), 1),
            Fault::Closes => (!finds.cover(Failures::FOUND_BY_ANSWER), 2),
            Fault::Refuses => (false, 0),
            Fault::Drops => (false, TIMEOUT.as_millis() as u64),
        };
        self.after(MS * took as u32, Event::CheckEnds(id, now, passed));
    }

    pub(super) fn end_check(&mut self, id: Id, began: Duration, passed: bool) {
        let (now, finds) = (self.now, self.finds.expect("there are checks"));
        let (result, mut rng) = (CheckResult { began, passed, finds }, self.rng.fork());
        let Some(backend) = self.backend(id) else { return };
        let change = backend.standing.on_check(now, result, &backend.passive);
        backend.schedule.advance(began, backend.standing.in_doubt(), &mut rng);
        let next = backend.schedule.due().max(now);
        if let Some(Change { reason: Reason::Disproved, .. }) = change {
            backend.referee.judge_disproof(&result);
        }
        self.at(next, Event::CheckStarts(id));
        self.take_change(id, change);
    }

    pub(super) fn look(&mut self, id: Id) {
        let (now, terms, max_percent) = (self.now, self.terms, self.max_percent);
        let others = self.backends.iter().filter(|(key, _)| **key != id.0);
        let others =
            others.map(|(_, b)| (b.weight, b.standing.state(), b.standing.ejection().in_force()));
        let (room, mut denied) = (has_room(max_percent, others), 0);
        let Some(backend) = self.backend(id) else { return };
        let due = backend.standing.due();
        let change = backend.standing.look(now, &terms, &backend.passive, || {
            denied += u32::from(!room);
            room
        });
        if change.is_none() && backend.standing.due() != due {
            backend.referee.opens(now, &terms);
        }
        self.tally.denied += denied;
        self.take_change(id, change);
    }

    /// What control does after anything that may have changed a backend.
    fn take_change(&mut self, id: Id, change: Option<Change>) {
        let (now, terms, max_percent) = (self.now, self.terms, self.max_percent);
        if let Some(change) = &change {
            let Some(mut backend) = self.backends.remove(&id.0) else { return };
            let others = self.backends.values().map(|b| (b.weight, &b.standing));
            backend.referee.judge(now, change, &terms, max_percent, others);
            assert_eq!(backend.standing.state(), change.to);
            if change.to == State::Up {
                assert_eq!(backend.standing.came_up(), Some(now));
                assert_eq!(slow_start::level(Duration::ZERO, RAMP), 1);
            }
            self.backends.insert(id.0, backend);
            self.count(change);
            self.decide_panic();
            assert!(!self.calm, "nothing changes when all is well: {change:?}");
        }
        let Some(backend) = self.backend(id) else { return };
        let due = backend.standing.due();
        if due != std::mem::replace(&mut backend.planned, due)
            && let Some(due) = due
        {
            self.at(due.max(now), Event::Look(id));
        }
    }

    fn count(&mut self, change: &Change) {
        let tally = &mut self.tally;
        match change.reason {
            Reason::Ejected { .. } if change.from == State::Ejected => tally.ejected_again += 1,
            Reason::Ejected { .. } => tally.ejected += 1,
            Reason::Tried => tally.tried += 1,
            Reason::Disproved => tally.disproved += 1,
            Reason::Checks | Reason::Pardoned => {}
        }
    }

    pub(super) fn decide_panic(&mut self) {
        let states = self.backends.values().map(|b| (b.weight, b.standing.state()));
        let panic = in_panic(self.threshold, states);
        self.tally.panics += u32::from(panic && !self.panic);
        self.panic = panic;
    }
}
