//! Slots by what is in them: a map that stores their numbers and leaves the keys where they are.

use std::hash::Hash;

use hashbrown::HashTable;

use super::slots::Slots;

/// A map this small is not worth giving back.
const KEPT: usize = 64;

/// What can be found by a key.
pub(super) trait Keyed {
    type Key: Hash + Eq;

    fn key(&self) -> &Self::Key;
}

/// Numbers of slots, at 10 to 21 bytes each. The hash is keyed at random in each process: clients
/// choose the keys.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: HashTable<Entry>,
    hasher: ahash::RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u32,
    /// Kept for when the map is rebuilt: looking at every slot for it would take 20 times as long,
    /// and everybody waits meanwhile.
    hash: u32,
}

impl Entry {
    /// The map takes a place from the low bits and a tag from the high ones.
    fn spread(&self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.hash)
    }
}

impl Index {
    pub(super) fn find<S: Keyed>(&self, slots: &Slots<S>, key: &S::Key) -> Option<u32> {
        let wanted = self.entry(0, key);
        let same = |entry: &Entry| {
            entry.hash == wanted.hash
                && slots.get(entry.number).is_some_and(|slot| slot.key() == key)
        };
        self.entries.find(wanted.spread(), same).map(|entry| entry.number)
    }

    /// Adds a slot whose key is not in here.
    pub(super) fn insert<S: Keyed>(&mut self, slots: &Slots<S>, number: u32) {
        let Some(slot) = slots.get(number) else { return };
        let entry = self.entry(number, slot.key());
        self.entries.insert_unique(entry.spread(), entry, Entry::spread);
    }

    /// Takes out a slot, which must not have been removed yet.
    pub(super) fn remove<S: Keyed>(&mut self, slots: &Slots<S>, number: u32) {
        let Some(slot) = slots.get(number) else { return };
        let hash = self.entry(number, slot.key()).spread();
        if let Ok(found) = self.entries.find_entry(hash, |entry| entry.number == number) {
            found.remove();
        }
        // Half full when rebuilt: half of them have to leave, or as many to come, before it is
        // rebuilt another time.
        let (len, capacity) = (self.entries.len(), self.entries.capacity());
        if len == 0 {
            self.entries = HashTable::new();
        } else if capacity > KEPT && len < capacity / 8 {
            self.entries.shrink_to(capacity / 4, Entry::spread);
        }
    }

    fn entry<K: Hash>(&self, number: u32, key: &K) -> Entry {
        Entry { number, hash: self.hasher.hash_one(key) as u32 }
    }
}
