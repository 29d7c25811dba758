//! How much of a pool may be ejected.

use crate::health::State;

/// Whether one more backend of a pool may be ejected, or one that is ejected may be so again.
/// `others` are all backends of the pool but that one: weight, state, whether an ejection is in
/// force (below a state of down as well). One of weight 0 never counts: nothing is lost with it.
///
/// At most `max_percent` of the backends, by number as in Envoy: by weight, a heavy backend could
/// never be ejected, dead or not. And never the last that is up, unless all may be ejected: what
/// fails sometimes is more than nothing. So of two backends 50 % are one, and of one 100 % are
/// needed.
pub fn has_room(max_percent: u8, others: impl IntoIterator<Item = (u16, State, bool)>) -> bool {
    let (mut total, mut ejected, mut another_up) = (1u64, 1u64, false);
    for (_, state, is_ejected) in others.into_iter().filter(|&(weight, ..)| weight > 0) {
        total += 1;
        ejected += u64::from(is_ejected);
        another_up |= state == State::Up;
    }
    ejected * 100 <= total * u64::from(max_percent) && (another_up || max_percent >= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions() {
        use State::{Down, Ejected, Unknown, Up};
        let check = |percent, others: &[(u16, State)], expected| {
            let others = others.iter().map(|&(weight, state)| (weight, state, state == Ejected));
            assert_eq!(has_room(percent, others.clone()), expected, "{percent} {others:?}");
        };
        check(50, &[], false);
        check(99, &[], false);
        check(100, &[], true);
        check(0, &[(1, Up); 99], false);
        check(1, &[(1, Up); 98], false);
        check(1, &[(1, Up); 99], true);
        check(50, &[(1, Up)], true);
        check(49, &[(1, Up)], false);
        check(50, &[(1, Ejected)], false);
        check(100, &[(1, Ejected)], true);
        check(50, &[(1, Up), (1, Up)], true);
        check(50, &[(1, Up), (1, Ejected)], false);
        check(50, &[(1, Up), (1, Up), (1, Ejected)], true);
        // Not the last one, whatever has become of the others.
        check(50, &[(1, Down)], false);
        check(99, &[(1, Down), (1, Unknown), (1, Ejected)], false);
        check(75, &[(1, Down), (1, Up), (1, Ejected)], true);
        // Weight 0 is nothing that would be left, nor anything that was ejected.
        check(50, &[(0, Up)], false);
        check(50, &[(0, Ejected), (1, Up)], true);
    }

    /// One that is down is ejected all the same if it was.
    #[test]
    fn ejected_below_down_counts() {
        assert!(has_room(
            50,
            [(1, State::Down, false), (1, State::Up, false), (1, State::Up, false)]
        ));
        assert!(has_room(
            50,
            [(1, State::Down, true), (1, State::Up, false), (1, State::Up, false)]
        ));
        assert!(!has_room(50, [(1, State::Down, true), (1, State::Up, false)]));
    }
}
