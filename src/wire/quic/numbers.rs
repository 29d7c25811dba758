//! Which packet numbers a client has used.

/// Numbers further behind the largest than this cannot be told to be new.
const WINDOW: u64 = 128;

/// The packet numbers of one client's Initial packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    largest: Option<u64>,
    /// The numbers up to the largest, which is the lowest bit.
    seen: u128,
}

/// Whether a packet number had been used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    First,
    Again,
    /// Too far behind the largest to be told.
    TooOld,
}

impl Numbers {
    pub(super) fn largest(&self) -> Option<u64> {
        self.largest
    }

    /// Notes a number down.
    pub(super) fn insert(&mut self, number: u64) -> Use {
        let ahead = match self.largest {
            Some(largest) if number <= largest => {
                let behind = largest - number;
                if behind >= WINDOW {
                    return Use::TooOld;
                }
                let again = self.seen >> behind & 1 == 1;
                self.seen |= 1 << behind;
                return if again { Use::Again } else { Use::First };
            }
            Some(largest) => number - largest,
            None => WINDOW,
        };
        self.seen = if ahead < WINDOW { self.seen << ahead | 1 } else { 1 };
        self.largest = Some(number);
        Use::First
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_first_once() {
        let mut numbers = Numbers::default();
        let mut check = |number, expected, largest| {
            assert_eq!(numbers.insert(number), expected, "{number}");
            assert_eq!(numbers.largest(), Some(largest), "{number}");
        };
        check(3, Use::First, 3);
        check(3, Use::Again, 3);
        check(0, Use::First, 3);
        check(130, Use::First, 130);
        check(3, Use::Again, 130);
        check(2, Use::TooOld, 130);
        check(4, Use::First, 130);
        check(4, Use::Again, 130);
        check(258, Use::First, 258);
        check(131, Use::First, 258);
        check(130, Use::TooOld, 258);
        check(u64::MAX, Use::First, u64::MAX);
        check(258, Use::TooOld, u64::MAX);
        check(u64::MAX - 127, Use::First, u64::MAX);
    }
}
