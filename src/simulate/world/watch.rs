//! Checks of backends, and when control looks at them.

use super::*;
use crate::health::standing;
use crate::simulate::report::Change;

impl World<'_> {
    /// A kernel answers in two hops, with yes or no; nobody does not.
    pub(super) fn check(&mut self, index: usize) {
        let Some(checks) = self.scenario.checks else { return };
        let condition = self.servers[index].condition();
        let silent = condition == Condition::Gone;
        let takes = if silent { checks.timeout } else { self.scenario.hop * 2 };
        let (began, passed) = (self.now, condition == Condition::Alive);
        self.after(takes, Event::Checked { index, began, passed });
    }

    pub(super) fn checked(&mut self, index: usize, began: Duration, passed: bool) {
        let change = self.pool.checked(self.now, index, began, passed);
        self.note(index, change);
        let in_doubt = self.pool.in_doubt(index);
        self.schedules[index].advance(began, in_doubt, &mut self.check_rng);
        // A check that took longer than the interval is followed by the next at once.
        let due = self.schedules[index].due().max(self.now);
        self.agenda.at(due, Event::CheckDue(index));
    }

    /// Looks at a backend: its time has come, or an outcome asks for it.
    pub(super) fn look(&mut self, index: usize) {
        let change = self.pool.look(self.now, index);
        self.note(index, change);
    }

    /// Tells of a change, and plans the next look.
    fn note(&mut self, index: usize, change: Option<standing::Change>) {
        if let Some(change) = change {
            self.tell(index, change);
        }
        let due = self.pool.due(self.now, index);
        if due != std::mem::replace(&mut self.looks[index], due)
            && let Some(due) = due
        {
            self.agenda.at(due.max(self.now), Event::LookDue(index));
        }
    }

    fn tell(&mut self, index: usize, change: standing::Change) {
        let standing::Change { from, to, reason } = change;
        let ejected = matches!(reason, standing::Reason::Ejected { .. });
        // An ejection that ends below `down` is no news.
        if from == to && !ejected {
            return;
        }
        let (pool, count) = (&mut self.pool, self.servers.len());
        let moved = self.probes.as_mut().filter(|_| from != to).map(|probes| {
            self.steps += (probes.len() * (1 + count / LOOKS_PER_STEP)) as u64;
            probes.look(pool, index)
        });
        let panic = self.pool.in_panic();
        self.tally.changed(Change {
            at: self.now,
            backend: index,
            state: to,
            reason,
            panic,
            moved,
        });
    }
}
