//! Storage whose places keep their number.

use std::collections::BTreeSet;

/// Places allocated together: a survivor of a peak keeps so many of them.
const CHUNK: usize = 8;

/// Values by number, in small allocations that go back to the allocator when they are empty.
///
/// A new value gets the lowest free place, so that after a peak what comes and goes gathers at the
/// low end and the rest empties. Growing never moves a value. What is given back leaves a pointer
/// and a number until all is.
#[derive(Debug)]
pub(super) struct Slots<S> {
    chunks: Vec<Option<Box<Chunk<S>>>>,
    /// Chunks with a free place, and those that are given back.
    roomy: BTreeSet<u32>,
    len: usize,
}

#[derive(Debug)]
struct Chunk<S> {
    /// A bit a place.
    used: u8,
    places: [Option<S>; CHUNK],
}

const FULL: u8 = u8::MAX;
const _: () = assert!(FULL.count_ones() as usize == CHUNK);

/// The number of no place.
pub(super) const NONE: u32 = u32::MAX;

impl<S> Default for Slots<S> {
    fn default() -> Self {
        Slots { chunks: Vec::new(), roomy: BTreeSet::new(), len: 0 }
    }
}

impl<S> Slots<S> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, number: u32) -> Option<&S> {
        let (chunk, place) = split(number);
        self.chunks.get(chunk)?.as_ref()?.places.get(place)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut S> {
        let (chunk, place) = split(number);
        self.chunks.get_mut(chunk)?.as_mut()?.places.get_mut(place)?.as_mut()
    }

    /// Its number is never [`NONE`].
    pub(super) fn insert(&mut self, value: S) -> u32 {
        let number = match self.roomy.first() {
            Some(&number) => number,
            None => {
                let number = u32::try_from(self.chunks.len())
                    .ok()
                    .filter(|&chunks| chunks < NONE / CHUNK as u32)
                    .expect("every caller has a bound far below 2^32");
                self.chunks.push(None);
                self.roomy.insert(number);
                number
            }
        };
        let chunk = self.chunks[number as usize].get_or_insert_with(Box::default);
        let place = chunk.used.trailing_ones();
        chunk.used |= 1 << place;
        chunk.places[place as usize] = Some(value);
        if chunk.used == FULL {
            self.roomy.remove(&number);
        }
        self.len += 1;
        number * CHUNK as u32 + place
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<S> {
        let (index, place) = split(number);
        let entry = self.chunks.get_mut(index)?;
        let chunk = entry.as_mut()?;
        let value = chunk.places.get_mut(place)?.take()?;
        if chunk.used == FULL {
            self.roomy.insert(number / CHUNK as u32);
        }
        chunk.used &= !(1 << place);
        if chunk.used == 0 {
            *entry = None;
        }
        self.len -= 1;
        if self.len == 0 {
            *self = Slots::default();
        }
        Some(value)
    }

    /// All, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &S)> {
        let chunks = (0u32..).zip(&self.chunks);
        chunks.flat_map(|(chunk, entry)| {
            let places = entry.iter().flat_map(|chunk| &chunk.places);
            let numbered = (chunk * CHUNK as u32..).zip(places);
            numbered.filter_map(|(number, value)| Some((number, value.as_ref()?)))
        })
    }
}

impl<S> Default for Chunk<S> {
    fn default() -> Self {
        Chunk { used: 0, places: [const { None }; CHUNK] }
    }
}

fn split(number: u32) -> (usize, usize) {
    (number as usize / CHUNK, number as usize % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_place_is_taken() {
        let mut slots = Slots::default();
        let numbers: Vec<u32> = (0..40).map(|value| slots.insert(value)).collect();
        assert_eq!(numbers, (0..40).collect::<Vec<_>>());
        for number in [35, 3, 20] {
            assert_eq!(slots.remove(number), Some(number));
            assert_eq!((slots.remove(number), slots.get(number)), (None, None));
        }
        assert_eq!([7, 8, 9, 10].map(|value| slots.insert(value)), [3, 20, 35, 40]);
        assert_eq!(slots.iter().nth(3), Some((3, &7)));
        assert_eq!((slots.iter().count(), slots.len()), (41, 41));
        assert_eq!((slots.get(41), slots.get(NONE)), (None, None));
        assert_eq!(slots.remove(NONE), None);
    }

    #[test]
    fn empty_chunks_are_given_back() {
        let mut slots = Slots::default();
        for value in 0..1000 {
            slots.insert(value);
        }
        let held = |slots: &Slots<u32>| slots.chunks.iter().flatten().count();
        assert_eq!(held(&slots), 1000_usize.div_ceil(CHUNK));
        for number in (0..1000).filter(|number| *number != 500) {
            slots.remove(number);
        }
        assert_eq!(held(&slots), 1);
        assert_eq!(slots.insert(1), 0);
        slots.remove(0);
        slots.remove(500);
        assert_eq!((slots.chunks.capacity(), slots.roomy.len()), (0, 0));
    }
}
