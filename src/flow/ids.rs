//! Which backend a QUIC connection id belongs to.

use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use super::clock::{Clock, nanos};
use super::index::{Index, Keyed};
use super::list::{Linked, Links, List};
use super::slots::Slots;
use crate::limits::FORGET_BATCH;

/// The longest connection id of QUIC version 1 (RFC 9000, section 17.2).
pub const ID_MAX: usize = 20;

/// Values by connection id, at most `max`: the longest unseen makes room for a new one. One owner;
/// for several threads shard by the first byte of the id, which [`Ids::find_prefix`] has as well,
/// and lock.
///
/// Besides `V`, an id takes about 70 bytes.
#[derive(Debug)]
pub struct Ids<V> {
    max: usize,
    clock: Clock,
    slots: Slots<Slot<V>>,
    index: Index,
    /// All.
    seen: List,
    /// How many there are of each length: a short header does not say how long its id is.
    lengths: [u32; ID_MAX + 1],
}

#[derive(Debug)]
struct Slot<V> {
    id: Id,
    links: Links,
    /// By the map's clock.
    seen: u64,
    value: V,
}

/// Padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id {
    bytes: [u8; ID_MAX],
    /// Never 0.
    length: u8,
}

impl<V: Clone> Ids<V> {
    /// Holds `max` ids at most.
    pub fn new(max: usize, now: Instant) -> Self {
        Ids {
            max,
            clock: Clock::new(now),
            slots: Slots::default(),
            index: Index::default(),
            seen: List::default(),
            lengths: [0; ID_MAX + 1],
        }
    }

    /// How many ids there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// From now on `id` belongs to `value`. One that is empty or longer than [`ID_MAX`] says
    /// nothing, and is not kept.
    pub fn learn(&mut self, id: &[u8], value: V, now: Instant) {
        let Some(id) = Id::new(id) else { return };
        let now = self.clock.advance(now);
        if let Some(slot) = self.see(&id, now) {
            slot.value = value;
            return;
        }
        if self.len() >= self.max {
            // With a maximum of 0 there is nobody to make room.
            let Some(oldest) = self.seen.front() else { return };
            self.remove(oldest);
        }
        let number = self.slots.insert(Slot { id, links: Links::default(), seen: now, value });
        self.index.insert(&self.slots, number);
        self.seen.push_back(&mut self.slots, number);
        self.count(&id, 1);
    }

    /// Whom exactly this id belongs to. That counts as seen.
    pub fn find(&mut self, id: &[u8], now: Instant) -> Option<V> {
        let now = self.clock.advance(now);
        self.see(&Id::new(id)?, now).map(|slot| slot.value.clone())
    }

    /// Whom the longest id belongs to that `bytes` begin with: those after the first byte of a
    /// packet with a short header. That counts as seen.
    pub fn find_prefix(&mut self, bytes: &[u8], now: Instant) -> Option<V> {
        (1..=ID_MAX.min(bytes.len())).rev().find_map(|length| {
            let used = self.lengths.get(length).is_some_and(|count| *count > 0);
            if used { self.find(bytes.get(..length)?, now) } else { None }
        })
    }

    /// Forgets ids that were last seen `age` ago or longer, [`FORGET_BATCH`] at most, and says how
    /// many; to be called again if there were any.
    pub fn expire(&mut self, now: Instant, age: Duration) -> usize {
        let now = self.clock.advance(now);
        let is_old = |slot: &Slot<V>| now.saturating_sub(slot.seen) >= nanos(age);
        for count in 0..FORGET_BATCH {
            let Some(oldest) = self.seen.front() else { return count };
            if !self.slots.get(oldest).is_some_and(is_old) {
                return count;
            }
            self.remove(oldest);
        }
        FORGET_BATCH
    }

    /// Forgets an id.
    pub fn forget(&mut self, id: &[u8]) {
        let number = Id::new(id).and_then(|id| self.index.find(&self.slots, &id));
        number.into_iter().for_each(|number| self.remove(number));
    }

    fn see(&mut self, id: &Id, now: u64) -> Option<&mut Slot<V>> {
        let number = self.index.find(&self.slots, id)?;
        self.seen.move_to_back(&mut self.slots, number);
        let slot = self.slots.get_mut(number)?;
        slot.seen = now;
        Some(slot)
    }

    fn remove(&mut self, number: u32) {
        self.seen.unlink(&mut self.slots, number);
        self.index.remove(&self.slots, number);
        if let Some(slot) = self.slots.remove(number) {
            self.count(&slot.id, -1);
        }
    }

    fn count(&mut self, id: &Id, change: i32) {
        if let Some(count) = self.lengths.get_mut(usize::from(id.length)) {
            *count = count.saturating_add_signed(change);
        }
    }
}

impl Id {
    fn new(id: &[u8]) -> Option<Self> {
        let length = u8::try_from(id.len()).ok().filter(|length| *length > 0)?;
        let mut bytes = [0; ID_MAX];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(Id { bytes, length })
    }
}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.bytes);
        state.write_u8(self.length);
    }
}

impl<V> Linked for Slot<V> {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<V> Keyed for Slot<V> {
    type Key = Id;

    fn key(&self) -> &Id {
        &self.id
    }
}

#[cfg(test)]
mod tests;
