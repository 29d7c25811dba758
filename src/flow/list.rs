//! Lists in order of last use, through the slots themselves.

use super::slots::{NONE, Slots};

/// A slot's place in a list; in no list, it means nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    previous: u32,
    next: u32,
}

impl Default for Links {
    fn default() -> Self {
        Links { previous: NONE, next: NONE }
    }
}

/// What can be in a list.
pub(super) trait Linked {
    fn links(&mut self) -> &mut Links;
}

/// The longest unused first. A slot is in one list at most, and its owner knows in which.
#[derive(Debug)]
pub(super) struct List {
    front: u32,
    back: u32,
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        List { front: NONE, back: NONE, len: 0 }
    }
}

impl List {
    pub(super) fn front(&self) -> Option<u32> {
        (self.front != NONE).then_some(self.front)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a slot that is in no list.
    pub(super) fn push_back<S: Linked>(&mut self, slots: &mut Slots<S>, number: u32) {
        let back = self.back;
        let Some(slot) = slots.get_mut(number) else { return };
        *slot.links() = Links { previous: back, next: NONE };
        match slots.get_mut(back) {
            Some(last) => last.links().next = number,
            None => self.front = number,
        }
        self.back = number;
        self.len += 1;
    }

    /// Takes out a slot of this list.
    pub(super) fn unlink<S: Linked>(&mut self, slots: &mut Slots<S>, number: u32) {
        let Some(slot) = slots.get_mut(number) else { return };
        let Links { previous, next } = *slot.links();
        match slots.get_mut(previous) {
            Some(slot) => slot.links().next = next,
            None => self.front = next,
        }
        match slots.get_mut(next) {
            Some(slot) => slot.links().previous = previous,
            None => self.back = previous,
        }
        self.len = self.len.saturating_sub(1);
    }

    /// Makes a slot of this list its last.
    pub(super) fn move_to_back<S: Linked>(&mut self, slots: &mut Slots<S>, number: u32) {
        // One busy flow after the other: the usual case writes nothing.
        if self.back != number {
            self.unlink(slots, number);
            self.push_back(slots, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Linked for Links {
        fn links(&mut self) -> &mut Links {
            self
        }
    }

    #[test]
    fn any_order_of_leaving() {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for order in orders {
            let (mut slots, mut list) = (Slots::default(), List::default());
            let numbers = [(); 3].map(|()| slots.insert(Links::default()));
            for number in numbers {
                list.push_back(&mut slots, number);
            }
            let mut left = numbers.to_vec();
            for number in order {
                assert_eq!(list.front(), left.first().copied(), "{order:?}");
                assert_eq!(list.len(), left.len());
                list.unlink(&mut slots, number);
                left.retain(|other| *other != number);
            }
            assert_eq!((list.front(), list.back, list.len()), (None, NONE, 0), "{order:?}");
        }
    }

    #[test]
    fn to_the_back() {
        let (mut slots, mut list) = (Slots::default(), List::default());
        for _ in 0..3 {
            let number = slots.insert(Links::default());
            list.push_back(&mut slots, number);
        }
        for number in [0, 2, 2, 0] {
            list.move_to_back(&mut slots, number);
        }
        let drained = std::iter::from_fn(|| {
            let front = list.front()?;
            list.unlink(&mut slots, front);
            Some(front)
        });
        assert_eq!(drained.collect::<Vec<_>>(), [1, 2, 0]);
    }
}
