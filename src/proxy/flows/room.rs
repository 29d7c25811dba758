//! Room for flows: what one counts against, and who makes room where all is taken.

use std::time::Instant;

use super::super::account::Account;
use super::super::worker::Enrolled;
use super::Gear;
use super::door::Door;
use super::flow::{FlowOfProcess, Held};
use crate::flow::{FlowId, Key};
use crate::limits::ATTEMPTS_MAX;
use crate::state::Termination;

/// What the process has no more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// Places among its sessions, and the flows among them: each flow has one.
    Places,
    /// Descriptors or local ports: a flow has them with a socket of its own.
    Sockets,
}

impl Door {
    /// What a flow counts against. Where all is taken, the flow that is least missed makes room: for
    /// a place of the listener one at this door, for one of the process one at any.
    pub(super) fn admit(
        &mut self,
        gear: &mut Gear,
        account: &Account,
        key: &Key,
        now: Instant,
    ) -> Result<Held, Termination> {
        if gear.closing {
            return Err(Termination::Shutdown);
        }
        let state = self.listener.state.clone();
        let client = key.client().ip();
        let source = match &self.listener.sources {
            Some(sources) => Some(sources.place(client, now).ok_or(Termination::Limit)?),
            None => None,
        };
        let most = self.listener.limits.flows;
        // More than one has to go where a reload has lowered the limit.
        let listener = loop {
            if let Some(place) = state.flow_place(most) {
                break place;
            }
            let victim = self.table.victim().ok_or(Termination::Limit)?;
            self.end(gear, victim, Termination::Limit);
        };
        let mut tries = 1..ATTEMPTS_MAX;
        let process = loop {
            if let Some(place) = FlowOfProcess::take(&gear.worker.process) {
                break place;
            }
            // What is given up, another worker may be the quicker one to take.
            if tries.next().is_none() || !self.make_room(gear, None, Lack::Places) {
                return Err(Termination::Overload);
            }
        };
        let enrolled = Enrolled::new(&gear.worker, account.entry());
        Ok((enrolled, listener, process, source.map(Box::new)))
    }

    /// Ends the flow that the worker misses least, but not `kept`, which is one of this door; false
    /// if there is none.
    ///
    /// Each door has its own victim, and the fullest one pays ([`crate::flow::Table::rank`]): there
    /// the flood is, which must not push out who has been at another for long. None pays for a door
    /// that has more flows: the few that never get an answer at a quiet door would go before the many
    /// that do at a full one. Flows that have nothing of what is lacking come last.
    pub(super) fn make_room(&mut self, gear: &mut Gear, kept: Option<FlowId>, lack: Lack) -> bool {
        let own = match kept {
            Some(kept) => self.table.victim_but(kept),
            None => self.table.victim(),
        };
        let others = gear.doors.iter().flatten().map(|door| &**door);
        let own_flows = self.table.len() - usize::from(kept.is_some());
        let others = others.filter(|door| door.table.len() >= own_flows);
        let others = others.map(|door| (door, door.table.victim()));
        let all = std::iter::once((&*self, own)).chain(others);
        let ranked = all.filter_map(|(door, victim)| {
            let victim = victim?;
            let has_none = lack == Lack::Sockets && !door.has_socket(victim);
            Some((has_none, door.table.rank(victim)?, door.index, victim))
        });
        let first = ranked.min_by_key(|&(has_none, rank, ..)| (has_none, rank));
        let Some((.., index, victim)) = first else { return false };
        if index == self.index {
            self.end(gear, victim, Termination::Overload);
        } else {
            gear.at_door(index, |door, gear| door.end(gear, victim, Termination::Overload));
        }
        true
    }
}
