//! The flows of one worker at one listener.

use std::cmp::Reverse;
use std::fmt;
use std::time::{Duration, Instant};

use super::clock::{Clock, nanos};
use super::index::{Index, Keyed};
use super::key::Key;
use super::list::{Linked, Links, List};
use super::slots::Slots;

/// Flows, each with a `T`, found by client and ordered by their last activity. One owner, no locks;
/// every call but [`Table::iter`] is O(1), with the exception of those that grow or shrink the map.
///
/// A flow begins unanswered: whoever sends one datagram from a forged address makes one of these,
/// so they are the first to go when there are too many ([`Table::victim`]). What a backend has
/// answered is kept apart, in an order of its own.
///
/// The owner bounds [`Table::len`]: the limit is shared by all workers. Besides `T`, a flow takes
/// about 80 bytes, and after a peak leaves 3 behind until the table is empty.
#[derive(Debug)]
pub struct Table<T> {
    slots: Slots<Slot<T>>,
    /// Flows that their client's datagrams belong to.
    index: Index,
    unanswered: List,
    answered: List,
    clock: Clock,
    /// Of the latest flow. Counted for all slots together, so that it says nothing of a slot whose
    /// memory was given back meanwhile.
    generation: u32,
}

/// Names a flow for as long as it lives; afterwards it finds nothing.
///
/// After 2^32 flows more in the same table the name may be taken again. As a word it is never below
/// 2^32: those are free for whatever else is told apart by such a word.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowId {
    number: u32,
    /// Never 0.
    generation: u32,
}

/// A flow as it is now.
#[derive(Debug)]
pub struct Flow<'a, T> {
    /// Its name.
    pub id: FlowId,
    /// Between whom.
    pub key: Key,
    /// Whether it is what [`Table::find`] finds by the key.
    pub attached: bool,
    /// Whether a backend has answered.
    pub answered: bool,
    /// When something was last sent either way.
    pub active: Instant,
    /// What the owner has put there.
    pub value: &'a T,
}

#[derive(Debug)]
struct Slot<T> {
    key: Key,
    links: Links,
    generation: u32,
    /// By the table's clock.
    active: u64,
    answered: bool,
    attached: bool,
    value: T,
}

impl<T> Table<T> {
    /// Without flows. `now` is where its time begins.
    pub fn new(now: Instant) -> Self {
        Table {
            slots: Slots::default(),
            index: Index::default(),
            unanswered: List::default(),
            answered: List::default(),
            clock: Clock::new(now),
            generation: 0,
        }
    }

    /// How many flows there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an unanswered flow, which its client's datagrams find from now on. One that was found
    /// before is detached.
    pub fn insert(&mut self, key: Key, value: T, now: Instant) -> FlowId {
        if let Some(number) = self.index.find(&self.slots, &key) {
            self.detach_slot(number);
        }
        let id = self.insert_detached(key, value, now);
        if let Some(slot) = self.slots.get_mut(id.number) {
            slot.attached = true;
        }
        self.index.insert(&self.slots, id.number);
        id
    }

    /// Adds an unanswered flow that no datagram of its client finds; a backend's answers do.
    pub fn insert_detached(&mut self, key: Key, value: T, now: Instant) -> FlowId {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        let generation = self.generation;
        let number = self.slots.insert(Slot {
            key,
            links: Links::default(),
            generation,
            active: self.clock.advance(now),
            answered: false,
            attached: false,
            value,
        });
        self.unanswered.push_back(&mut self.slots, number);
        FlowId { number, generation }
    }

    /// The flow that a client's datagram belongs to.
    pub fn find(&self, key: &Key) -> Option<FlowId> {
        self.id(self.index.find(&self.slots, key)?)
    }

    /// Lets a flow live on without its client's datagrams: the next one begins another flow.
    pub fn detach(&mut self, id: FlowId) {
        if self.get(id).is_some() {
            self.detach_slot(id.number);
        }
    }

    /// A client's datagram has passed: the flow becomes the latest among its like.
    pub fn touch(&mut self, id: FlowId, now: Instant) -> Option<&mut T> {
        let slot = live(&mut self.slots, id)?;
        slot.active = self.clock.advance(now);
        let list = if slot.answered { &mut self.answered } else { &mut self.unanswered };
        list.move_to_back(&mut self.slots, id.number);
        self.get_mut(id)
    }

    /// A backend's datagram has passed: the flow becomes the latest of those answered.
    pub fn answered(&mut self, id: FlowId, now: Instant) -> Option<&mut T> {
        let slot = live(&mut self.slots, id)?;
        if !slot.answered {
            slot.answered = true;
            self.unanswered.unlink(&mut self.slots, id.number);
            self.answered.push_back(&mut self.slots, id.number);
        }
        self.touch(id, now)
    }

    /// What the owner has put there.
    pub fn get(&self, id: FlowId) -> Option<&T> {
        let slot = self.slots.get(id.number)?;
        (slot.generation == id.generation).then_some(&slot.value)
    }

    /// What the owner has put there.
    pub fn get_mut(&mut self, id: FlowId) -> Option<&mut T> {
        live(&mut self.slots, id).map(|slot| &mut slot.value)
    }

    /// All there is to know of a flow.
    pub fn flow(&self, id: FlowId) -> Option<Flow<'_, T>> {
        let slot = self.slots.get(id.number)?;
        if slot.generation != id.generation {
            return None;
        }
        Some(Flow {
            id,
            key: slot.key,
            attached: slot.attached,
            answered: slot.answered,
            active: self.clock.instant(slot.active)?,
            value: &slot.value,
        })
    }

    /// Takes a flow out.
    pub fn remove(&mut self, id: FlowId) -> Option<T> {
        let slot = live(&mut self.slots, id)?;
        let list = if slot.answered { &mut self.answered } else { &mut self.unanswered };
        list.unlink(&mut self.slots, id.number);
        self.detach_slot(id.number);
        self.slots.remove(id.number).map(|slot| slot.value)
    }

    /// The idlest flow if it has been idle for `idle` or longer; `None` never ends one. The caller
    /// removes it and asks again.
    pub fn expired(&self, now: Instant, idle: Option<Duration>) -> Option<FlowId> {
        let (number, active) = self.idlest()?;
        let idled = self.clock.ticks(now).checked_sub(active)?;
        if idled >= nanos(idle?) { self.id(number) } else { None }
    }

    /// When [`Table::expired`] will have something if nothing happens until then.
    pub fn next_expiry(&self, idle: Option<Duration>) -> Option<Instant> {
        let (_, active) = self.idlest()?;
        self.clock.instant(active)?.checked_add(idle?)
    }

    /// Who has to go first: the idlest of those unanswered, and where there is none, of those
    /// answered. `None` if there is no flow: so it also serves to end them all in steps.
    pub fn victim(&self) -> Option<FlowId> {
        self.id(self.unanswered.front().or(self.answered.front())?)
    }

    /// The same, but for `kept`, which has just been active and so is the last of those like it.
    pub fn victim_but(&self, kept: FlowId) -> Option<FlowId> {
        let fronts = [self.unanswered.front(), self.answered.front()];
        fronts.into_iter().flatten().filter_map(|number| self.id(number)).find(|&id| id != kept)
    }

    /// Where several tables share what there is too little of: the victim with the least rank goes.
    /// That is one unanswered, and among victims of that kind the one whose table has most flows of
    /// it. `(answered, how many there are)`.
    pub fn rank(&self, victim: FlowId) -> Option<(bool, Reverse<usize>)> {
        let slot = self.slots.get(victim.number)?;
        let alike = if slot.answered { &self.answered } else { &self.unanswered };
        (slot.generation == victim.generation).then_some((slot.answered, Reverse(alike.len())))
    }

    /// All flows in no particular order. O(n).
    pub fn iter(&self) -> impl Iterator<Item = Flow<'_, T>> {
        self.slots.iter().filter_map(|(number, _)| self.flow(self.id(number)?))
    }

    fn detach_slot(&mut self, number: u32) {
        if let Some(slot) = self.slots.get_mut(number)
            && slot.attached
        {
            slot.attached = false;
            self.index.remove(&self.slots, number);
        }
    }

    /// Of all flows, and when it was last active. Of two the unanswered one.
    fn idlest(&self) -> Option<(u32, u64)> {
        let fronts = [self.unanswered.front(), self.answered.front()];
        let numbers = fronts.into_iter().flatten();
        let active = |number| Some((number, self.slots.get(number)?.active));
        numbers.filter_map(active).min_by_key(|&(_, active)| active)
    }

    fn id(&self, number: u32) -> Option<FlowId> {
        self.slots.get(number).map(|slot| FlowId { number, generation: slot.generation })
    }
}

fn live<T>(slots: &mut Slots<Slot<T>>, id: FlowId) -> Option<&mut Slot<T>> {
    slots.get_mut(id.number).filter(|slot| slot.generation == id.generation)
}

impl FlowId {
    /// As a word, such as an epoll event carries.
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.number)
    }

    /// From any word: one that is no flow's finds nothing.
    pub fn from_u64(word: u64) -> Self {
        FlowId { number: word as u32, generation: (word >> 32) as u32 }
    }
}

impl fmt::Debug for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.generation)
    }
}

impl<T> Linked for Slot<T> {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<T> Keyed for Slot<T> {
    type Key = Key;

    fn key(&self) -> &Key {
        &self.key
    }
}

#[cfg(test)]
mod tests;
